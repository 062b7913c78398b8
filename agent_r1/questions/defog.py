"""Defog's text-to-SQL questions: an answer is a query, and a question may have several that are equally right.

Column sets and their order differ between the files; those with `db_type` name their dialect, the others are Postgres.
Running queries and comparing results is left to who scores them. https://github.com/defog-ai/sql-eval
"""

from __future__ import annotations

import re
from itertools import combinations

from agent_r1.questions.items import Value
from agent_r1.questions.records import Json, Question

MOST_QUERIES = 256
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_ALTERNATIVE = re.compile(rf"(?:{_QUOTED}|[^;'\"])+")
_COLUMN = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|[^,()])+")
_TOKEN = re.compile(rf"{_QUOTED}|\{{[^{{}}]*\}}|[{{}}]")
_GROUP_BY = re.compile(r"(GROUP\s+BY\s+)\{\s*\}", re.IGNORECASE)


def defog_question(item: Value) -> Question:
    """A question; its text ends with the instructions, where it has some, after a blank line.

    `metadata` has the database's name, the dialect of the queries, and the instructions. `kind` and `category` are
    Defog's category. The id comes from what is asked of which database.
    """
    instructions, full, kind = (item.get(key) for key in ("instructions", "full_instructions", "query_category"))
    dialect = item.get("db_type")
    text = item["question"].filled_text().strip()
    metadata: dict[str, Json] = {
        "database": item["db_name"].filled_text(),
        "dialect": "postgres" if dialect is None else dialect.filled_text(),
    }
    if kind is not None:
        metadata |= {"kind": kind.text(), "category": kind.text()}
    if instructions is not None and instructions.text().strip():
        metadata["instructions"] = instructions.text().strip()
        text = f"{text}\n\n{instructions.text().strip()}"
    if full is not None and full.text().strip():
        metadata["full_instructions"] = full.text().strip()
    return Question(id="", text=text, answers=gold_queries(item["query"]), dataset="defog", metadata=metadata)


def is_defog(item: Value) -> bool:
    """Whether an item has the layout."""
    keys = set(item.keys())
    return "db_name" in keys and bool({"query", "query_category", "db_type"} & keys)


def gold_queries(query: Value) -> tuple[str, ...]:
    """Every query that is right, each once, without a semicolon at its end, by Defog's rule.

    Alternatives are separated by ";". One with {a, b} stands for one query with each non-empty subset of the columns,
    in their order, which also takes the place of {} after GROUP BY. Quoted text is left alone. DataError for braces
    with another meaning, and for more than MOST_QUERIES.
    """
    found: dict[str, None] = {}
    text = query.filled_text()
    if _ALTERNATIVE.sub("", text).strip(";"):
        raise query.error("a quote that is never closed")
    for alternative in _ALTERNATIVE.findall(text):
        for each in _expanded(query, alternative.strip()):
            if each:
                found.setdefault(each)
            if len(found) > MOST_QUERIES:
                raise query.error(f"more than {MOST_QUERIES} queries would be right")
    if not found:
        raise query.error("no query in it")
    return tuple(found)


def _expanded(query: Value, alternative: str) -> list[str]:
    braces = [match for match in _TOKEN.finditer(alternative) if match[0][0] in "{}"]
    columns = [match for match in braces if match[0].strip("{} ")]
    if not braces:
        return [alternative]
    empty = [match for match in _GROUP_BY.finditer(alternative) if columns and match.start() > columns[0].end()]
    if len(columns) != 1 or len(braces) != 1 + len(empty):
        raise query.error("braces, expected {a, b} once in a query, and {} only after a GROUP BY that follows it")
    names = [name.strip() for name in _COLUMN.findall(columns[0][0][1:-1]) if name.strip()]
    if 2 ** len(names) > MOST_QUERIES:
        raise query.error(f"{len(names)} columns in braces, expected at most {MOST_QUERIES.bit_length() - 1}")
    left, right = alternative[: columns[0].start()], alternative[columns[0].end() :]
    chosen = [", ".join(some) for size in range(1, len(names) + 1) for some in combinations(names, size)]
    return [left + some + _GROUP_BY.sub(lambda match, some=some: match[1] + some, right) for some in chosen]
