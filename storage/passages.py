"""The passages of a corpus in one Parquet file. Searching them is left to agent_r1's search tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agent_r1.errors import StoreError
from agent_r1.questions.records import Passage
from storage.files import replace_file

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("sentences", pa.list_(pa.string())),
    ]
)


def write(path: Path, passages: Sequence[Passage]) -> None:
    """Write the passages in their order; the file appears complete or not at all."""
    columns = [
        [passage.id for passage in passages],
        [passage.title for passage in passages],
        [passage.text for passage in passages],
        [list(passage.sentences) for passage in passages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    replace_file(path, lambda draft: pq.write_table(table, draft, compression="zstd"))


def read(path: Path) -> list[Passage]:
    """The passages in their order. StoreError where the file is missing or damaged."""
    try:
        columns = pq.read_table(path, schema=SCHEMA).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: the passages cannot be read: {' '.join(str(error).split())}") from error
    rows = zip(columns["id"], columns["title"], columns["text"], columns["sentences"], strict=True)
    return [Passage(id, title, text, tuple(sentences)) for id, title, text, sentences in rows]
