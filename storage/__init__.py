"""Where things lie: the DuckDB store, files beside it, checkpoints and MLflow. What is computed is left to agent_r1."""
