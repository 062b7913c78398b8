"""What passages are called. The same passage has one id in every question, so the union of passages is a corpus."""

from __future__ import annotations

import hashlib


def passage_id(dataset: str, title: str, text: str) -> str:
    """An id such as "hotpotqa:0c4f9e...", the dataset and 16 hex digits from title and text alone."""
    digest = hashlib.sha256(f"{title}\x1f{text}".encode()).hexdigest()
    return f"{dataset}:{digest[:16]}"
