"""The kept search index against one in memory, on a made-up corpus: `python -m benchmarks.search [PASSAGES]`.

Each step is a process of its own, so that its memory is its own. Words are drawn as in natural text, by Zipf's law.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from agent_r1.corpus import read_corpus
from agent_r1.seeds import generator
from agent_r1.tools.search_index import PassageIndex, index_of, open_index, write_index
from storage.indexes import keep, whole

VOCABULARY, LENGTH, QUERIES = 300_000, 80, 100


def texts(count: int, length: int, seed: str) -> Iterator[str]:
    """Texts of made-up words, the n-th most frequent one drawn about 1/n times."""
    rng = generator(0, "benchmark", seed)
    for _ in range(count):
        ranks = np.exp(rng.random(length) * np.log(VOCABULARY)).astype(int)
        yield " ".join(f"w{rank:x}" for rank in ranks)


def make(corpus: Path, count: int) -> None:
    """Write a corpus file."""
    with corpus.open("w") as file:
        for number, text in enumerate(texts(count, LENGTH, "passages")):
            file.write(json.dumps({"id": str(number), "contents": f'"Title {number}"\n{text}'}) + "\n")


def measure(step: str, corpus: Path, home: Path) -> dict[str, float]:
    """Seconds to have the index, milliseconds of a query, and this process's peak of memory in MiB."""
    kept = home / "indexes" / "corpus" / "index"

    def write(folder: Path) -> None:
        write_index(folder, read_corpus(corpus))

    def checked() -> PassageIndex:
        assert whole(kept)
        return open_index(kept)

    steps: dict[str, Callable[[], PassageIndex]] = {
        "in memory": lambda: index_of(list(read_corpus(corpus))),
        "made and kept": lambda: open_index(keep(home, "corpus", write)),
        "opened again": checked,
    }
    begin = time.perf_counter()
    index = steps[step]()
    took = {"seconds": time.perf_counter() - begin}
    spent = []
    for query in texts(QUERIES, 8, "queries"):
        begin = time.perf_counter()
        index.find(query, 3)
        spent.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**took, "query_ms": 1000 * statistics.median(spent), "peak_mib": peak}


def main(count: int) -> None:
    """Print a line for each step."""
    with tempfile.TemporaryDirectory() as folder:
        corpus, home = Path(folder) / "corpus.jsonl", Path(folder) / "home"
        make(corpus, count)
        print(f"{count} passages, {corpus.stat().st_size / 2**20:.0f} MiB")
        for step in ("in memory", "made and kept", "opened again"):
            asked = [sys.executable, "-m", "benchmarks.search", step, str(corpus), str(home)]
            print(step, subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip(), flush=True)
        size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        print(f"on disk {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
