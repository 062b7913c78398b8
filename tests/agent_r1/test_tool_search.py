"""The search tool: what it finds, and where its result says that each passage and sentence stands."""

from typing import cast

import pytest

from agent_r1.questions.records import Passage
from agent_r1.tools.finder import NothingFoundError
from agent_r1.tools.protocol import JsonObject, Source, Tool, ToolResult
from agent_r1.tools.search import SearchTool

ROME = Passage(
    "p1", "Rome", "Rome is the capital of Italy. It has 7 hills.", ("Rome is the capital of Italy.", " It has 7 hills.")
)
BERN = Passage("p2", "Bern", "Bern is a town. Zürich is larger.")
FIRM = Passage("p3", "AT&amp;T", "A firm of 1885 &amp; after.")
PASSAGES = (ROME, BERN, FIRM)


def first_title(query: str) -> str:
    return SearchTool(PASSAGES).call({"query": query}).text.split("\n")[0]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("capital of Italy", "[1] Rome"),
        ("7", "[1] Rome"),
        ("1885", "[1] AT&T"),
        ("Zürich", "[1] Bern"),
        ("ZÜRICH", "[1] Bern"),
        ("Zu\u0308rich", "[1] Bern"),
        ("zurich", "[1] Bern"),
        ("at&t", "[1] AT&T"),
        ("a", "[1] Bern"),  # a word like any other: once in both, and Bern is not longer than the firm
    ],
)
def test_any_word_of_title_or_text_is_found(query: str, title: str) -> None:
    assert first_title(query) == title


class Elsewhere:
    """A finder that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.closed = False

    def find(self, query: str, results: int) -> list[Passage]:
        self.asked.append((query, results))
        if query == "fog":
            raise NothingFoundError("no fog today")
        return [BERN]

    def close(self) -> None:
        self.closed = True


def test_a_finder_is_asked_instead_of_passages_and_closed_with_the_tool() -> None:
    finder = Elsewhere()
    tool = SearchTool(finder, results=2)
    assert tool.call({"query": "town"}) == SearchTool(PASSAGES).call({"query": "bern"})
    assert tool.call({"query": "fog"}) == ToolResult("no fog today", ok=False)
    assert not tool.call({"query": "x" * 5000, "k": 1}).ok
    tool.call({"query": "x" * 5000})
    tool.close()
    assert finder.asked == [("town", 2), ("fog", 2), ("x" * 2000, 2)]
    assert finder.closed


def test_result_shows_titles_unescaped_and_texts_as_they_are() -> None:
    result = SearchTool(PASSAGES, results=2).call({"query": "1885 firm hills"})
    assert result.ok
    assert (
        result.text
        == "[1] AT&T\nA firm of 1885 &amp; after.\n\n[2] Rome\nRome is the capital of Italy. It has 7 hills."
    )


def test_sources_are_the_spans_of_passage_and_sentences() -> None:
    result = SearchTool(PASSAGES).call({"query": "hills"})
    # "[1] Rome\n" is 9 characters, the sentences are 29 and 16
    assert result.sources == (Source("p1", None, 9, 54), Source("p1", 0, 9, 38), Source("p1", 1, 38, 54))
    assert [result.text[source.start : source.end] for source in result.sources] == [ROME.text, *ROME.sentences]


def test_passage_that_was_cut_is_no_source_but_its_whole_sentences_are() -> None:
    result = SearchTool(PASSAGES, max_characters=30).call({"query": "hills"})
    assert result.text == "[1] Rome\nRome is the capital of Italy. …"
    assert result.sources == (Source("p1", 0, 9, 38),)


def test_equal_scores_keep_the_order_of_the_passages() -> None:
    passages = [Passage(str(i), f"t{i}", "same words") for i in range(40)]
    result = SearchTool(passages, results=4).call({"query": "words"})
    assert [source.passage_id for source in result.sources] == ["0", "1", "2", "3"]


def test_passages_without_a_word_of_the_query_are_not_shown() -> None:
    result = SearchTool(PASSAGES, results=10).call({"query": "hills unknownword"})
    assert {source.passage_id for source in result.sources} == {"p1"}


@pytest.mark.parametrize("passages", [(), PASSAGES, (Passage("e", "", ""),)])
def test_nothing_found_is_a_readable_failure(passages: tuple[Passage, ...]) -> None:
    result = SearchTool(passages).call({"query": "xylophone"})
    assert not result.ok
    assert "no passage found" in result.text
    assert result.sources == ()


@pytest.mark.parametrize("arguments", [{}, None, [], "Rome", {"query": None}, {"query": 3}, {"query": " "}, {"q": "x"}])
def test_wrong_arguments_are_failures_that_name_the_parameter(arguments: object) -> None:
    result = SearchTool(PASSAGES).call(cast(JsonObject, arguments))
    assert not result.ok
    assert "'query'" in result.text


def test_extra_parameter_is_named() -> None:
    result = SearchTool(PASSAGES).call({"query": "Rome", "limit": 3})
    assert not result.ok
    assert "'limit'" in result.text


def test_word_without_letters_or_with_special_tokens_does_not_raise() -> None:
    tool = SearchTool(PASSAGES)
    for query in ("?!", "\x00", "\ud800", "<|im_end|>", "a " * 5000):
        tool.call({"query": query})


def test_search_is_a_tool_with_an_openai_schema() -> None:
    tool: Tool = SearchTool(PASSAGES)
    assert tool.name == "search"
    assert tool.schema["type"] == "function"
    tool.close()


@pytest.mark.parametrize("number", [0, -1])
def test_limits_below_one_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        SearchTool(PASSAGES, results=number)
    with pytest.raises(ValueError, match=str(number)):
        SearchTool(PASSAGES, max_characters=number)


def test_an_index_can_show_more_passages_without_being_made_again() -> None:
    one = SearchTool([Passage(name, name, "fog") for name in ("p", "q", "r")], results=1)
    two = one.showing(2)
    assert one.call({"query": "fog"}).text == "[1] p\nfog"
    assert two.call({"query": "fog"}).text == "[1] p\nfog\n\n[2] q\nfog"
    assert two._finder is one._finder
