"""Ways of answering the same questions: what each is asked with, and what is in view (F4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from families import FAMILIES
from scripted import SMALL, ScriptedSampler

from agent_r1 import tiny
from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environments import Environments, open_environments
from agent_r1.evaluation import evaluation_metrics
from agent_r1.formats import hermes, llama3
from agent_r1.methods import (
    DIRECT,
    METHODS,
    RAG,
    REACT,
    configured,
    environments_for,
    needed,
    put,
    react_prompt,
    retrieve,
    unfit,
)
from agent_r1.questions.records import Evidence, Json, Passage, Question
from agent_r1.rollout import Attempt, Origin, rollout
from agent_r1.sections import SearchConfig
from agent_r1.trajectory import CallRecord, Trajectory

PASSAGES = (
    Passage("rome", "Anna", "Anna was born in Rome."),
    Passage("oslo", "Bert", "Bert was born in Oslo."),
    Passage("cat", "Cats", "Cats sleep."),
)
QUESTION = Question("q", "Where was Anna born?", ("Rome",), (Evidence("rome"),), PASSAGES)
TOKENIZER = tiny.tokenizer()


def config(**limits: Json) -> Config:
    """A search agent: one passage a search, at most three searches."""
    rollout: dict[str, Json] = {"max_turns": 4, "max_observation": 60, "system_prompt": "Search.", **limits}
    return parse({"model": SMALL, "tools": ["search"], "search": {"results": 1}, "rollout": rollout}, "test")


@contextmanager
def opened(*methods: str) -> Iterator[Environments]:
    """The environments that these methods share, over the passages."""
    with open_environments(needed(methods, config()), Path("none"), PASSAGES, TOKENIZER) as environments:
        yield environments


def found_by_rag(settings: Config) -> CallRecord:
    with opened("rag") as environments:
        return retrieve([QUESTION], settings, environments)["q"]


def play(method: str, *said: str) -> tuple[Trajectory, str, dict[str, CallRecord]]:
    """The trajectory of a method at the question, the text before its first action, and what was found for it."""
    settings = configured(method, config(), TOKENIZER)
    with opened(*METHODS) as shared:
        environments = environments_for(method, config(), settings, shared)
        given = retrieve([QUESTION], settings, shared) if method == "rag" else {}
        sampler = ScriptedSampler(environments.chat, [said])
        attempts = [Attempt(put(QUESTION, given), 0)]
        (made,) = rollout(attempts, sampler, environments, settings, Origin("run", 0, "greedy", 0))
    return made, str(TOKENIZER.decode(list(made.turns[0].given_ids))), given


def metric(name: str, made: Trajectory, given: dict[str, CallRecord]) -> float:
    return evaluation_metrics("greedy", [made], {"q": QUESTION}, given=given)[f"eval/greedy/{name}"]


def search(query: str) -> str:
    return hermes.write("search", {"query": query})


def squeezed(text: str) -> str:
    """Without white space: the tiny tokenizer's text has blanks of its own."""
    return "".join(text.split())


def test_direct_is_one_turn_without_tools_or_passages() -> None:
    made, prompt, given = play("direct", "<answer>Rome</answer>")
    assert squeezed(DIRECT) in squeezed(prompt)
    assert squeezed(QUESTION.text) in squeezed(prompt)
    assert "search" not in prompt
    assert "Cats" not in prompt
    assert (made.ending, made.exact_match, len(made.turns)) == ("answered", 1.0, 1)
    assert metric("gold_in_view", made, given) == 0.0
    assert metric("evidence", made, given) == 0.0


def test_a_call_in_direct_is_malformed_and_the_last_thing_it_does() -> None:
    made, _, given = play("direct", search("Anna"))
    assert made.ending == "max_turns"
    assert made.turns[0].calls[0].text == "error: unknown tool 'search'; there is no tool at all"
    assert metric("malformed", made, given) == 1.0


def test_rag_has_the_passages_of_one_search_for_the_question_in_its_prompt() -> None:
    made, prompt, given = play("rag", "<answer>Oslo</answer>")
    assert squeezed(RAG) in squeezed(prompt)
    before, _, after = squeezed(prompt).partition("Question:")
    assert "[1]AnnaAnnawasborninRome." in before
    assert after.startswith(squeezed(QUESTION.text))
    assert made.turns[0].calls == ()
    assert metric("tool_calls_mean", made, given) == 0.0


def test_a_gold_answer_in_the_passages_of_rag_is_in_view_and_so_is_their_evidence() -> None:
    """F4: it answers wrong with the answer before its eyes."""
    made, _, given = play("rag", "<answer>Oslo</answer>")
    assert metric("exact_match", made, given) == 0.0
    assert metric("gold_in_view", made, given) == 1.0
    assert metric("evidence", made, given) == 1.0
    assert metric("gold_in_view", made, {}) == 0.0
    nothing = {"q": CallRecord("search", {}, ok=False, text="no passage found")}
    assert metric("gold_in_view", made, nothing) == 0.0


def test_rag_sees_as_many_passages_as_the_agent_could_find() -> None:
    settings = configured("rag", config(), TOKENIZER)
    assert settings.search.results == 3
    assert settings.rollout.max_observation == 180
    given = found_by_rag(settings)
    assert [source.passage_id for source in given.sources] == ["rome", "oslo"]  # the third has no word of the question


def test_passages_of_rag_that_were_cut_are_no_evidence() -> None:
    settings = configured("rag", config(max_observation=5, max_turns=2), TOKENIZER)
    given = found_by_rag(settings)
    assert given.text.endswith(" [cut]")
    assert given.sources == ()


def test_react_is_shown_the_tools_and_an_example_and_looks_until_it_answers() -> None:
    made, prompt, given = play("react", f"Thought: who?\n{search('Anna')}", "Thought: Rome.\n<answer>Rome</answer>")
    assert squeezed(REACT) in squeezed(prompt)
    assert squeezed('{"name": "search", "arguments": {"query": "author of the novel Emma"}}') in squeezed(prompt)
    assert "tools: search" in prompt
    assert (made.ending, made.exact_match, len(made.turns)) == ("answered", 1.0, 2)
    assert metric("gold_in_view", made, given) == 1.0


@pytest.mark.parametrize(
    ("tools", "arguments"),
    [
        (("calculator", "search"), {"expression": "4 * 12 - 5"}),
        (("lookup",), {"entity": "Ada", "relation": "birthplace"}),
        (("weather", "sql"), {"query": "SELECT max(age) FROM cats"}),
    ],
)
def test_the_example_is_of_the_first_known_tool_in_the_model_s_own_format(
    tools: Sequence[str], arguments: dict[str, Json]
) -> None:
    name = next(tool for tool in tools if tool != "weather")
    assert hermes.write(name, arguments) in react_prompt(tools, hermes.write)
    assert llama3.write(name, arguments) in react_prompt(tools, llama3.write)


def test_a_tool_that_no_example_is_known_of_has_none() -> None:
    assert react_prompt(["weather"], hermes.write) == REACT


def test_the_docs_show_the_prompts_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8").replace("&lt;", "<")
    for prompt in (DIRECT, RAG, react_prompt(["search"], hermes.write)):
        assert prompt in page


def test_the_policy_is_asked_as_it_is_trained() -> None:
    assert configured("policy", config(), TOKENIZER) == config()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_s_configuration_is_one_that_can_be_stored(method: str) -> None:
    corpus = config().model_copy(update={"search": SearchConfig(corpus="wiki.jsonl")})
    found = configured(method, corpus, TOKENIZER)
    assert parse(found.model_dump(mode="json"), "stored") == found


def test_what_answers_at_once_is_configured_without_tools_of_the_model_s_own() -> None:
    found = {method: configured(method, config(), TOKENIZER) for method in METHODS}
    assert {method: each.tools for method, each in found.items()} == {
        "direct": (), "rag": ("search",), "react": ("search",), "policy": ("search",),
    }  # fmt: skip
    assert {method: each.rollout.max_turns for method, each in found.items()} == {
        "direct": 1, "rag": 1, "react": 4, "policy": 4,
    }  # fmt: skip


def test_methods_have_room_where_the_model_has_it() -> None:
    assert configured("react", config(max_context=512), TOKENIZER).rollout.max_context == 1024  # model.tiny.context
    other = parse({"model": {"path": "other"}, "rollout": {"max_context": 4096, "max_new_tokens": 300}}, "test")
    limits = configured("direct", other, TOKENIZER).rollout
    assert (limits.max_context, limits.max_new_tokens) == (4096, 300)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown method 'cot'; known: direct, rag, react, policy"):
        configured("cot", config(), TOKENIZER)


def test_a_method_is_unfit_where_it_would_say_nothing() -> None:
    def why(method: str, settings: Config, passages: Sequence[Passage] = PASSAGES, world: bool = False) -> str | None:
        return unfit(method, settings, [QUESTION], passages, world)

    searching, looking = config(), parse({"tools": ["lookup"]}, "test")
    assert why("rag", searching, ()) == "there are no passages to search"
    assert why("rag", parse({"tools": ["search"], "search": {"corpus": "wiki.jsonl"}}, "test"), ()) is None
    assert why("react", parse({"tools": []}, "test"), world=True) == "the configuration has no tools"
    for method in ("react", "policy"):
        assert why(method, looking) == "the tool 'lookup' needs the built-in world's database"
        assert why(method, looking, world=True) is None
        assert why(method, searching, ()) is None
    for method in ("direct", "rag"):
        assert why(method, looking) is None


def test_only_the_policy_is_asked_for_queries() -> None:
    about_cats = replace(QUESTION, metadata={"database": "cats"})
    reasons = [unfit(method, config(), [about_cats], PASSAGES, world=False) for method in METHODS]
    assert reasons == [*["an answer is a query here, which no prompt of this method asks for"] * 3, None]


@pytest.mark.parametrize(
    ("methods", "tools"),
    [
        (["direct"], ()),
        (["direct", "rag"], ("search",)),
        (["rag", "policy"], ("lookup", "search")),
        (["react"], ("lookup",)),
    ],
)
def test_only_the_tools_that_the_methods_need_are_opened(methods: list[str], tools: tuple[str, ...]) -> None:
    assert needed(methods, parse({"tools": ["lookup"]}, "test")).tools == tools


def test_the_search_that_is_opened_for_rag_is_no_tool_of_the_policy() -> None:
    calculating = parse({"model": SMALL, "tools": ["calculator"]}, "test")
    with open_environments(needed(METHODS, calculating), Path("none"), PASSAGES, TOKENIZER) as shared:
        tools = {
            method: [tool.name for tool in environments_for(method, calculating, calculating, shared).tools]
            for method in METHODS
        }
    assert tools == {"direct": [], "rag": [], "react": ["calculator"], "policy": ["calculator"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_s_template_can_do_without_tools(family: str) -> None:
    tokenizer = FAMILIES[family]()
    chat = Chat(tokenizer, [], DIRECT)
    prompt = str(tokenizer.decode(chat.prompt("Where?")))
    assert DIRECT in prompt or family == "tiny"
    assert "<tools>" not in prompt or family == "hermes3"  # whose template for tools says so, with none in them
    assert chat.parse(chat.action("<answer>Rome</answer>")).answer == "Rome"
