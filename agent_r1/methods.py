"""Ways of answering the same questions with the same weights: what a trained policy is compared with.

`direct` answers from memory; `rag` (naive RAG) from the passages that one search for the question's text finds; `react`
is prompted to think and call the tools in turn; `policy` does as it was trained. A method is a changed configuration,
and for rag the passages before the question. Sampling is left to rollout.py, metrics to evaluation.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from agent_r1.chat import Chat
from agent_r1.config import Config, parse
from agent_r1.environments import Environments, OfDatabase
from agent_r1.formats.calls import Write
from agent_r1.own import environment_maker
from agent_r1.questions.records import Passage, Question
from agent_r1.tool_calls import ParsedTurn, ToolCall
from agent_r1.tools.protocol import JsonObject, Tool
from agent_r1.tools.search import SearchTool
from agent_r1.trajectory import CallRecord

METHODS = ("direct", "rag", "react", "policy")
OF_DATABASES = ("sql", "schema", "lookup")
"""Tools that ask a database."""

ANSWER = "write only the answer, as short as possible, between <answer> and </answer>."
DIRECT = f"Answer the question: {ANSWER}"
RAG = f"Read the passages, then answer the question: {ANSWER}"
REACT = f"""\
Answer the question by thinking and acting in turn. In every turn write a thought after "Thought:", then call one tool \
and stop: its result comes next. Once you know the answer, do not call a tool but {ANSWER}"""
NEW_TOKENS = 128
"""Room for a turn of a model that was not trained to be short; a trained policy keeps its own."""
CONTEXT = 2048
"""Room for the prompts of the methods, where the model has so much."""

_SEARCH = (
    "In which country was the author of Emma born?",
    "I need to know who wrote Emma.",
    {"query": "author of the novel Emma"},
    "[1] Emma (novel): Emma is a novel by the English author Jane Austen, who was born in Steventon.",
    "Jane Austen wrote it. She was born in Steventon, which is in England.",
    "England",
)
_LOOKUP = (
    "Which country is the birthplace of Ada in?",
    "I need the birthplace of Ada.",
    {"entity": "Ada", "relation": "birthplace"},
    "London",
    "Ada was born in London, which is in England.",
    "England",
)
_SQL = (
    "How old is the oldest cat?",
    "I need the highest age in the table of cats.",
    {"query": "SELECT max(age) FROM cats"},
    "max(age)\n19",
    "The oldest cat is 19.",
    "19",
)
_CALCULATOR = (
    "Four boxes hold twelve eggs each, and five eggs break. How many are left?",
    "I need 4 * 12 - 5.",
    {"expression": "4 * 12 - 5"},
    "43",
    "43 eggs are left.",
    "43",
)
_EXAMPLES: Mapping[str, tuple[str, str, JsonObject, str, str, str]] = {
    "search": _SEARCH, "lookup": _LOOKUP, "sql": _SQL, "calculator": _CALCULATOR,
}  # fmt: skip
"""Question, thought, arguments, result, thought, answer of a worked example with a tool."""


def configured(method: str, config: Config, tokenizer: PreTrainedTokenizerBase) -> Config:
    """The configuration by which a method answers with a policy that is configured so. ValueError for no method."""
    if method == "policy":
        return config
    if method == "react":
        write = Chat(tokenizer, [], "", config.model.tool_format).call
        return _changed(config, tokenizer, react_prompt(config.tools, write))
    if method == "direct":
        return _at_once(_changed(config, tokenizer, DIRECT), search=False)
    if method == "rag":  # as many passages, and tokens of them, as the policy could find turn by turn
        searches = max(config.rollout.max_turns - 1, 1)
        return _at_once(_changed(config, tokenizer, RAG, searches), search=True)
    raise ValueError(f"unknown method {method!r}; known: {', '.join(METHODS)}")


def react_prompt(tools: Sequence[str], write: Write) -> str:
    """What ReAct (arXiv 2210.03629) tells the model, with a worked example of the first tool that has one."""
    name = next((tool for tool in tools if tool in _EXAMPLES), None)
    if name is None:
        return REACT
    question, thought, arguments, result, last, answer = _EXAMPLES[name]
    return (
        f"{REACT}\n\nAn example:\nQuestion: {question}\nThought: {thought}\n{write(name, arguments)}\n"
        f"Result: {result}\nThought: {last}\n<answer>{answer}</answer>"
    )


def unfit(
    method: str, config: Config, questions: Sequence[Question], passages: Sequence[Passage], world: bool
) -> str | None:
    """Why a method says nothing about questions with these passages, of the built-in world or not; None if it does."""
    if method != "policy" and any(question.database is not None for question in questions):
        return "an answer is a query here, which no prompt of this method asks for"
    if method == "rag" and not (passages or config.search.corpus or config.search.url):
        return "there are no passages to search"
    if method == "react" and not config.tools and not config.mcp:
        return "the configuration has no tools"
    needing = [name for name in config.tools if name in OF_DATABASES]
    if method in ("react", "policy") and needing and not world and config.data.databases is None:
        return f"the tool {needing[0]!r} needs the built-in world's database"
    return None


def needed(methods: Sequence[str], config: Config) -> Config:
    """The configuration with the tools that the methods need between them, the search for rag last."""
    own = bool({"react", "policy"} & set(methods))
    names = (*(config.tools if own else ()), *(["search"] if "rag" in methods else []))
    return config.model_copy(update={"tools": tuple(dict.fromkeys(names)), "mcp": config.mcp if own else ()})


def environments_for(method: str, config: Config, found: Config, opened: Environments) -> Environments:
    """The environments of a method whose configuration is `found`, over open ones with the tools of `needed`."""
    kept = [tool for tool in opened.tools if tool.name != "search" or "search" in config.tools]
    return _over(opened, found, kept if method in ("react", "policy") else [])


def retrieve(questions: Sequence[Question], found: Config, opened: Environments) -> dict[str, CallRecord]:
    """What rag, configured so, finds for each question's own text, by its id, within `rollout.max_observation` tokens.

    It searches with the search tool of `opened`, of which there must be one.
    """
    (search,) = (tool for tool in opened.tools if tool.name == "search")
    wide = search.showing(found.search.results) if isinstance(search, SearchTool) else search
    turns = [ParsedTurn([ToolCall("search", {"query": question.text})], [], None, "") for question in questions]
    records = _over(opened, found, [wide]).run_calls(list(zip(questions, turns, strict=True)))
    return {question.id: record for question, (record,) in zip(questions, records, strict=True)}


def _over(opened: Environments, config: Config, tools: Sequence[Tool | OfDatabase]) -> Environments:
    limits, model = config.rollout, config.model
    chat = Chat(opened.chat.tokenizer, tools, limits.system_prompt, model.tool_format, model.thinking)
    make = environment_maker(config.environment)
    return replace(opened, tools=tools, chat=chat, max_observation=limits.max_observation, make=make)


def put(question: Question, given: Mapping[str, CallRecord]) -> Question:
    """The question as it is asked: with what was found for it before it, where something was."""
    if question.id not in given:
        return question
    return replace(question, text=f"{given[question.id].text}\n\nQuestion: {question.text}")


def _changed(config: Config, tokenizer: PreTrainedTokenizerBase, prompt: str, searches: int = 1) -> Config:
    """Another system prompt, room for long answers, and for the results of so many searches at once."""
    limits, tree = config.rollout, config.model_dump(mode="json")
    most = config.model.tiny.context if config.model.path == "tiny" else tokenizer.model_max_length
    context = max(limits.max_context, min(CONTEXT, most))
    tree["rollout"] |= {
        "system_prompt": prompt,
        "max_context": context,
        "max_new_tokens": max(limits.max_new_tokens, min(NEW_TOKENS, context // 4)),
        "max_observation": min(limits.max_observation * searches, max(limits.max_observation, context // 2)),
    }
    tree["search"]["results"] *= searches
    return parse(tree, "a method's configuration")


def _at_once(config: Config, search: bool) -> Config:
    """One turn, without tools; `search` is the method's own, before the question."""
    tree = config.model_dump(mode="json")
    tree |= {"tools": ["search"] if search else [], "mcp": [], "environment": "tools"}
    tree["rollout"]["max_turns"] = 1
    if not search:
        tree["search"] |= {"corpus": None, "url": None}
    return parse(tree, "a method's configuration")
