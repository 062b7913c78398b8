"""The built-in multi-hop world: entities, their relations as a database and as passages, and questions about them."""
