"""One Prefect task a file: load, call agent_r1, save, leave a receipt. When they run is left to flows."""

import os

os.environ["DO_NOT_TRACK"] = "true"  # read by Prefect while it is imported
