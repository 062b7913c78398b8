"""Named faults."""
from __future__ import annotations
NAMED: dict = {}
