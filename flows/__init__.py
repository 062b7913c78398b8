"""When things run: the training flow, the command line, and reports. What runs is left to tasks."""

import os

os.environ["DO_NOT_TRACK"] = "true"  # read by Prefect while it is imported
