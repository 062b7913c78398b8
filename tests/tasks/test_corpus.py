"""Where a run's search looks: an index in the home, made once, of the questions' passages or of a corpus."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from agent_r1.config import parse
from agent_r1.errors import DataError
from agent_r1.questions.records import Json, Passage
from agent_r1.tools.finder import Recognising
from agent_r1.tools.search import SearchTool
from agent_r1.tools.search_server import SearchServer
from storage import passages
from tasks import corpus as corpora
from tasks.context import RunContext
from tasks.corpus import finder_over, open_finder
from tasks.prepare import prepare


def hotpot(number: int, gold: str = "Rome") -> Json:
    """A question with two passages of two sentences, of which one is gold."""
    context: list[Json] = [
        ["Rome", ["Rome is the capital &amp; more.", " It has 7 hills."]],
        [f"Town {number}", ["A town.", f" Its number is {number}."]],
    ]
    return {
        "_id": f"q{number}",
        "question": f"What is the {number}th?",
        "answer": str(number),
        "supporting_facts": [[gold, 1]],
        "context": context,
    }


CORPUS: list[Json] = [
    {"id": "0", "contents": '"Rome"\nRome is the capital & more. It has 7 hills.'},
    {"id": "1", "title": "Oslo", "text": "Another capital without hills."},
]


@pytest.fixture(autouse=True)
def begin_anew() -> None:
    forget()


def forget() -> None:
    """As in a new process, which has opened nothing."""
    for cached in (corpora._index, corpora._folder, corpora._known, corpora._sha256):
        cached.cache_clear()


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """Three training questions and one for validation, over a corpus."""
    questions = [hotpot(0), hotpot(1), hotpot(2, gold="Town 2")]
    (tmp_path / "train.json").write_text(json.dumps(questions))
    (tmp_path / "validation.json").write_text(json.dumps([hotpot(9)]))
    (tmp_path / "corpus.json").write_text(json.dumps(CORPUS))
    data: dict[str, Json] = {
        "path": str(tmp_path / "train.json"),
        "validation_path": str(tmp_path / "validation.json"),
    }
    search: dict[str, Json] = {"corpus": str(tmp_path / "corpus.json")}
    return RunContext(tmp_path / "home", "r", parse({"data": data, "search": search, "tools": ["search"]}, "test"))


def without_corpus(context: RunContext) -> RunContext:
    plain = context.config.model_copy(update={"search": parse({}, "test").search})
    return RunContext(context.home, "plain", plain)


def shown(context: RunContext, query: str, split: str = "train") -> list[tuple[str, int | None]]:
    """The sources of a search."""
    result = SearchTool(open_finder(context, split)).call({"query": query})
    return [(source.passage_id, source.sentence) for source in result.sources]


def test_gold_evidence_is_found_in_a_corpus(context: RunContext) -> None:
    receipt = prepare.fn(context)
    assert isinstance(receipt["corpus_sha256"], str)
    rome = next(each.id for each in passages.read(context.data / "train" / "passages.parquet") if each.title == "Rome")
    assert shown(context, "rome hills") == [(rome, None), (rome, 0), (rome, 1), ("corpus:1", None)]
    assert shown(context, "number") == [], "the questions' own passages are not searched"


def test_gold_that_the_corpus_lacks_is_counted_in_a_warning(
    context: RunContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="agent_r1.corpus")
    prepare.fn(context)
    assert "1 of 2 gold passages of the train questions are not in the corpus" in caplog.text
    assert "their evidence can never be found" in caplog.text
    assert "all 1 gold passages of the validation questions are in the corpus" in caplog.text


def test_an_index_is_made_once_for_all_splits_and_runs(context: RunContext) -> None:
    prepare.fn(context)
    (manifest,) = (context.home / "indexes").glob("*/index/manifest.json")
    made = manifest.stat().st_mtime_ns
    forget()
    other = RunContext(context.home, "other", context.config)
    prepare.fn(other)
    assert shown(other, "hills", "validation") == shown(context, "hills", "validation") != []
    assert list((context.home / "indexes").glob("*/index/manifest.json")) == [manifest]
    assert manifest.stat().st_mtime_ns == made
    first, second = open_finder(context, "train"), open_finder(other, "validation")
    assert isinstance(first, Recognising)
    assert isinstance(second, Recognising)
    assert first.finder is second.finder, "it is opened once"


def test_passages_of_the_questions_are_found_as_an_index_in_memory_finds_them(context: RunContext) -> None:
    context = without_corpus(context)
    receipt = prepare.fn(context)
    assert "corpus_sha256" not in receipt
    memory = SearchTool(passages.read(context.data / "train" / "passages.parquet"))
    for query in ("hills", "town 2", "number is", "nothing here"):
        assert SearchTool(open_finder(context, "train")).call({"query": query}) == memory.call({"query": query})


def test_a_corpus_that_changed_is_noticed_and_the_run_goes_on_with_the_old_one(
    context: RunContext, caplog: pytest.LogCaptureFixture
) -> None:
    prepare.fn(context)
    before = shown(context, "hills")
    (context.home.parent / "corpus.json").write_text('[{"title": "New", "text": "new hills"}]')
    prepare.fn(context)
    assert "corpus.json has changed since the run was prepared: it goes on with the index of what it was" in caplog.text
    assert shown(context, "hills") == before


def test_a_corpus_that_changed_and_has_no_index_any_more_is_an_error(context: RunContext) -> None:
    prepare.fn(context)
    (context.home.parent / "corpus.json").write_text('[{"title": "New", "text": "new hills"}]')
    (manifest,) = (context.home / "indexes").glob("*/index/manifest.json")
    manifest.unlink()
    forget()
    with pytest.raises(DataError, match=r"corpus\.json has changed since the run was prepared, and the index"):
        open_finder(context, "train")


def test_a_damaged_index_is_made_again(context: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    prepare.fn(context)
    before = shown(context, "hills")
    (scores,) = (context.home / "indexes").glob("*/index/bm25/data*.npy")
    scores.write_bytes(scores.read_bytes()[:-4] + b"\0\0\0\0")
    forget()
    assert shown(context, "hills") == before
    assert "index is damaged" in caplog.text


def test_a_broken_corpus_stops_prepare_and_is_not_kept(context: RunContext) -> None:
    (context.home.parent / "corpus.json").write_text('[{"title": "New"}]')
    with pytest.raises(DataError, match=r"corpus\.json: item 1: field text: missing"):
        prepare.fn(context)
    assert list((context.home / "indexes").glob("*/index")) == []


def test_evaluation_of_any_model_searches_where_the_configuration_says(context: RunContext, tmp_path: Path) -> None:
    own = [Passage("p", "Oslo", "Another  capital without hills.")]
    settings = context.config.search
    assert finder_over(parse({}, "test").search, tmp_path, own) is own
    over_corpus = finder_over(settings, context.home, own)
    assert isinstance(over_corpus, Recognising)
    assert {each.id for each in over_corpus.find("capital", 3)} == {"p", "corpus:0"}
    url = settings.model_copy(update={"corpus": None, "url": "http://127.0.0.1:9/retrieve"})
    over_server = finder_over(url, context.home, own)
    assert isinstance(over_server, Recognising)
    assert isinstance(over_server.finder, SearchServer)
    over_server.close()
