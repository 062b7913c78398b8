"""Scoring SQL by execution: whether two results are the same, and whether an answer's equals that of a gold query.

Pure but for asking the database, which is the tool's; which queries are gold is the questions' to say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from agent_r1.errors import DataError
from agent_r1.tools.sql import SqlTool
from agent_r1.tools.sql_messages import QueryResult, Scalar

TOLERANCE = 1e-6
"""Relative; but two whole numbers are equal only if they are the same."""
_TINY = 1e-12  # what is left of a sum that should be 0
_MOST_COLUMNS = 100
_CELLS = 2_000_000  # that a search for the order of columns may look at
_CACHED_GOLDS = 256
_TRIES = 3  # of a gold query, on a machine that may be busy with other things
_Column = tuple[Hashable, ...]
_Key = Callable[[Scalar], Hashable]
_TOKEN = re.compile(
    r"""(?P<skipped>--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|`[^`]*`?|\[[^\]]*\]?|\$\$.*?(?:\$\$|\Z)|\s+)"""
    r"""|(?P<word>\w+)|(?P<sign>.)""",
    re.DOTALL,
)
_FENCE = re.compile(r"```(?:[a-z]*[ \t]*\n|sql\s)?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def execution_match(answer: str | None, golds: Sequence[str], database: SqlTool) -> float:
    """1.0 if the answer is a query with the same result as any of `golds`, which are alternatives; else 0.0.

    Rows count in order where the gold query orders them. An answer in a fenced block is taken out of it. An answer
    that takes too long is wrong, and one that spells the right rows out is right. DataError where not one gold query
    runs. Results of gold queries are kept, for the many attempts at one question.
    """
    results = running(golds, database)
    query = query_of(answer)
    if not query:
        return 0.0
    found = database.result(query)
    if found.error is not None:
        return 0.0
    return float(any(same_result(found, result, is_ordered(gold)) for gold, result in results.items()))


def running(golds: Sequence[str], database: SqlTool) -> dict[str, QueryResult]:
    """The results of those gold queries that run, in their order. DataError where not one does."""
    results: dict[str, QueryResult] = {}
    errors: list[str] = []
    for gold in golds:
        try:
            results[gold] = _gold_result(database, gold)
        except _GoldFailed as error:
            errors.append(f"{gold!r}: {' '.join(str(error).split())}")
    if not results:
        raise DataError(f"{database.path}: no gold query of the question runs: {'; '.join(errors) or 'there is none'}")
    return results


class _GoldFailed(Exception):
    pass


@lru_cache(maxsize=_CACHED_GOLDS)
def _gold_result(database: SqlTool, query: str) -> QueryResult:
    """Raises _GoldFailed, which is not kept: what took too long once may run the next time, so it is tried again."""
    error = None
    for _ in range(_TRIES):
        result = database.result(query)
        if result.error is None:
            return result
        error = result.error
    raise _GoldFailed(error)


def query_of(answer: str | None) -> str:
    """The query in an answer: the last fenced block where there is one, without semicolons at its end; "" for none."""
    if answer is None:
        return ""
    blocks = _FENCE.findall(answer)
    return (blocks[-1] if blocks else answer).strip().rstrip("; \t\r\n")


def is_ordered(query: str) -> bool:
    """Whether the outermost SELECT has an ORDER BY; those in brackets, texts and comments do not count."""
    tokens = [match for match in _TOKEN.finditer(query) if not match["skipped"] and match[0] != ";"]
    words = [match[0].lower() for match in tokens]
    while _is_wrapped(words):
        words = words[1:-1]
    depth = 0
    for word, following in pairwise(words):
        depth += (word == "(") - (word == ")")
        if depth == 0 and (word, following) == ("order", "by"):
            return True
    return False


def same_result(found: QueryResult, gold: QueryResult, ordered: bool) -> bool:
    """Whether two results are equal: rows as a multiset, or as a list where `ordered`; columns in any order, any name.

    Numbers are equal within TOLERANCE, and true is 1; texts are equal exactly; NULL equals NULL. A result that is an
    error equals nothing. Of more than a hundred columns the order counts. Where so many columns hold the same values in
    different rows that the search for their order takes too long, the results count as different.
    """
    if found.error is not None or gold.error is not None:
        return False
    if len(found.columns) != len(gold.columns) or len(found.rows) != len(gold.rows):
        return False
    key = _equality([value for result in (found, gold) for row in result.rows for value in row])
    ours, theirs = _columns(found, key), _columns(gold, key)
    if len(ours) > _MOST_COLUMNS:
        rows = list(zip(*ours, strict=True)), list(zip(*theirs, strict=True))
        return rows[0] == rows[1] if ordered else Counter(rows[0]) == Counter(rows[1])
    return Counter(ours) == Counter(theirs) if ordered else _rows_match(ours, theirs)


def _equality(values: Iterable[Scalar]) -> _Key:
    """A key for each value, the same for equal ones. Numbers close to each other share one."""
    numbers = sorted({value for value in values if isinstance(value, int | float) and value == value})
    places: dict[int | float, int] = {}
    first, has_whole = math.nan, False
    for value in numbers:
        is_whole = value == value // 1
        if (is_whole and has_whole) or not _is_close(first, value):
            first, has_whole = value, False
        has_whole = has_whole or is_whole
        places[value] = len(places) if first is value else places[first]

    def key(value: Scalar) -> Hashable:
        if value is None or isinstance(value, str):
            return value
        return places.get(value, -1)  # NaN is no key, and equals NaN

    return key


def _is_close(first: int | float, second: int | float) -> bool:
    try:
        return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=_TINY)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def _columns(result: QueryResult, key: _Key) -> list[_Column]:
    return [tuple(key(row[column]) for row in result.rows) for column in range(len(result.columns))]


def _rows_match(ours: Sequence[_Column], theirs: Sequence[_Column]) -> bool:
    """Whether an order of our columns makes our rows, as a multiset, theirs.

    Depth first, column by column: rows alike so far share a number, and a column of ours fits where it parts our rows
    as theirs are parted. Of columns that are equal throughout one is tried.
    """
    profiles = [_profile(column) for column in ours]
    wanted_profiles = [_profile(column) for column in theirs]
    if Counter(profiles) != Counter(wanted_profiles):
        return False
    height = len(ours[0]) if ours else 0
    tries = _CELLS // max(height, 1)

    def fits(left: list[int], ours_so_far: Sequence[int], theirs_so_far: Sequence[int]) -> bool:
        nonlocal tries
        if not left:
            return True
        column = len(theirs) - len(left)
        numbers: dict[tuple[int, Hashable], int] = {}
        wanted = _number(theirs_so_far, theirs[column], numbers)
        tried: set[_Column] = set()
        for candidate in left:
            if profiles[candidate] != wanted_profiles[column] or ours[candidate] in tried or tries <= 0:
                continue
            tried.add(ours[candidate])
            tries -= 1
            got = _number(ours_so_far, ours[candidate], numbers)
            if Counter(got) == Counter(wanted) and fits([other for other in left if other != candidate], got, wanted):
                return True
        return False

    return fits(list(range(len(ours))), [0] * height, [0] * height)


def _profile(column: _Column) -> frozenset[tuple[Hashable, int]]:
    return frozenset(Counter(column).items())


def _number(so_far: Sequence[int], column: Sequence[Hashable], numbers: dict[tuple[int, Hashable], int]) -> list[int]:
    """A number for each row's values so far with the next one; equal values have equal numbers."""
    pairs = zip(so_far, column, strict=True)
    return [numbers.setdefault(pair, len(numbers)) for pair in pairs]


def _is_wrapped(words: Sequence[str]) -> bool:
    """Whether one pair of brackets holds the whole query."""
    if len(words) < 2 or words[0] != "(" or words[-1] != ")":
        return False
    depth = 0
    for number, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return number == len(words) - 1
    return False
