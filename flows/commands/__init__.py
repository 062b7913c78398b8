"""What a user may ask for: commands as functions with their options. Doing it is left to the other files of flows."""
