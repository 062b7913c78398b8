"""The built-in world: disjoint splits, answers that only the tools give, questions read independently."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from agent_r1 import tiny
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Evidence, Question
from agent_r1.scoring import exact_match
from agent_r1.sections import WorldConfig
from agent_r1.seeds import generator
from agent_r1.tool_calls import parse
from agent_r1.tools.search import SearchTool
from agent_r1.tools.sql import SqlTool
from agent_r1.world.ask import ask
from agent_r1.world.demonstrate import call, demonstrating_tool, expert, facts_of, sloppy
from agent_r1.world.generate import SPLITS, World, generate, passages, write_database
from agent_r1.world.lookup import LookupTool
from agent_r1.world.names import PREFIXES, SUFFIXES
from agent_r1.world.relations import EARLIER, TABLES

CONFIG = WorldConfig(
    people=20, cities=8, countries=5, companies=8, films=10, warm_start_scale=2, hops=(1, 2, 3, 4),
    kinds=("compositional", "comparison", "bridge_comparison"), phrasings=3, noise=0.4,
)  # fmt: skip
WORLDS = generate(CONFIG)
TRAIN = WORLDS["train"]
QUESTIONS = ask(TRAIN, CONFIG, 400)
PHRASES = {p: r.name for relations in TABLES.values() for r in relations for p in r.phrasings}


def of_kind(kind: str) -> list[Question]:
    return [question for question in QUESTIONS if question.kind == kind]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "train.duckdb"
    write_database(TRAIN, path)
    return path


def test_splits_share_no_name() -> None:
    names = {split: set(world.kind_of) for split, world in WORLDS.items()}
    assert tuple(names) == SPLITS
    assert sum(map(len, names.values())) == len(set().union(*names.values())) == 51 * (2 + 3)


def test_name_halves_come_from_disjoint_pools() -> None:
    assert len(set(PREFIXES)) == len(set(SUFFIXES)) == 40
    assert not {half.lower() for half in PREFIXES} & set(SUFFIXES)
    for name in TRAIN.kind_of:
        assert name[:3] in PREFIXES
        assert name[3:] in SUFFIXES


def test_a_world_too_large_for_its_names_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="names"):
        generate(WorldConfig(people=2000))


def test_every_entity_has_every_relation_to_another_of_the_right_kind() -> None:
    for name, kind in TRAIN.kind_of.items():
        for relation in TABLES[kind]:
            value = TRAIN.facts[name, relation.name]
            if relation.target == "year":
                assert 1900 <= int(value) < 2000
            else:
                assert TRAIN.kind_of[value] == relation.target
                assert value != name
    assert len(TRAIN.facts) == sum(len(TABLES[kind]) for kind in TRAIN.kind_of.values())


def test_the_same_seed_makes_the_same_world_and_another_seed_another() -> None:
    assert generate(CONFIG) == WORLDS
    assert ask(TRAIN, CONFIG, 50) == QUESTIONS[:50]
    assert passages(TRAIN, CONFIG) == passages(generate(CONFIG)["train"], CONFIG)
    other = CONFIG.model_copy(update={"seed": 1})
    assert generate(other)["train"].facts != TRAIN.facts


def test_hops_are_asked_in_equal_parts_and_kinds_where_hops_allow() -> None:
    """400 questions, 100 of each number of hops; two kinds share 2 hops, two share 4."""
    assert Counter(question.hops for question in QUESTIONS) == {1: 100, 2: 100, 3: 100, 4: 100}
    kinds = Counter((question.hops, question.kind) for question in QUESTIONS)
    assert kinds == {
        (1, "compositional"): 100,
        (2, "compositional"): 50,
        (2, "comparison"): 50,
        (3, "compositional"): 100,
        (4, "compositional"): 50,
        (4, "bridge_comparison"): 50,
    }


def test_demonstrated_questions_have_each_kind_in_equal_parts() -> None:
    """60 questions, 10 of each of the six pairs of hops and kind."""
    kinds = Counter((question.hops, question.kind) for question in ask(TRAIN, CONFIG, 60, each_kind_alike=True))
    assert len(kinds) == 6
    assert set(kinds.values()) == {10}


def test_a_year_is_one_token_to_the_tokenizer_of_a_policy_from_nothing() -> None:
    tokens = tiny.tokenizer()
    assert [len(tokens.encode(f"{year}")) for year in (1900, 1976, 1999)] == [1, 1, 1]
    assert tokens.decode(tokens.encode("SELECT 1976 < 1912")) == "SELECT 1976 < 1912"


def test_ids_are_unique_and_say_split_and_configuration() -> None:
    ids = [question.id for question in QUESTIONS]
    other = ask(TRAIN, CONFIG.model_copy(update={"phrasings": 1}), 10)
    validation = ask(WORLDS["validation"], CONFIG, 10)
    assert len(set(ids)) == 400
    assert not set(ids) & {question.id for question in [*other, *validation]}
    assert all("-train-" in one for one in ids)


def test_no_question_is_asked_twice_while_the_world_has_others() -> None:
    large = generate(WorldConfig())["train"]
    asked = ask(large, WorldConfig(hops=(3, 4)), 500)
    assert len({question.text for question in asked}) == 500


def test_compositional_answers_are_right() -> None:
    """An independent reading: the phrases from right to left, each a step through the facts."""
    for question in of_kind("compositional"):
        body = question.text.removeprefix("What is the ").removesuffix("?")
        *phrases, entity = split(body)
        assert len(phrases) == question.hops
        met = [entity]
        for phrase in reversed(phrases):
            entity = TRAIN.facts[entity, PHRASES[phrase]]
            met.append(entity)
        assert question.answers == (entity,)
        assert len(set(met)) == len(met), "an entity is met twice: fewer hops would do"


def split(body: str) -> list[str]:
    """The phrases and the entity; a phrase may hold " of ": creator of the seat of government of Beldan."""
    rest, found = body, []
    while " of " in rest:
        phrase = max((p for p in PHRASES if rest.startswith(f"{p} of ")), key=len)
        found.append(phrase)
        rest = rest[len(phrase) + len(" of ") :].removeprefix("the ")
    return [*found, rest]


def test_comparison_answers_are_right() -> None:
    answers = Counter()
    for question in of_kind("comparison"):
        first, second = [word for word in re.findall(r"[A-Z][a-z]{5}", question.text) if word in TRAIN.kind_of]
        if question.text.startswith("Do "):
            found = re.search(r"have the same (.+)\?$", question.text)
            assert found
            relation = PHRASES[found[1]]
            same = TRAIN.facts[first, relation] == TRAIN.facts[second, relation]
            assert question.answers == ("yes" if same else "no",)
            answers[question.answers[0]] += 1
        else:
            kind = TRAIN.kind_of[first]
            year, beginning = EARLIER[kind]
            assert TRAIN.kind_of[second] == kind
            assert question.text == f"{beginning}, {first} or {second}?"
            years = {name: int(TRAIN.facts[name, year]) for name in (first, second)}
            assert years[first] != years[second]
            assert question.answers == (min(years, key=years.__getitem__),)
            answers["first" if question.answers[0] == first else "second"] += 1
    assert all(answers[answer] >= 5 for answer in ("yes", "no", "first", "second"))


def test_bridge_comparison_answers_are_right() -> None:
    places = Counter()
    for question in of_kind("bridge_comparison"):
        found = re.fullmatch(r"Which \w+ has the (\w+) who was born earlier, (\w+) or (\w+)\?", question.text)
        assert found
        relation, first, second = found.groups()
        born = {name: int(TRAIN.facts[TRAIN.facts[name, relation], "birth_year"]) for name in (first, second)}
        assert born[first] != born[second]
        assert question.answers == (min(born, key=born.__getitem__),)
        places[question.answers[0] == first] += 1
    assert min(places.values()) >= 10


def test_evidence_is_a_sentence_for_each_hop_that_states_its_fact() -> None:
    texts = {passage.id: passage.sentences for passage in passages(TRAIN, CONFIG)}
    for question in QUESTIONS:
        facts = facts_of(question)
        assert len(facts) == len(question.evidence) == question.hops
        for (subject, relation, value), gold in zip(facts, question.evidence, strict=True):
            assert TRAIN.facts[subject, relation] == value
            assert gold.passage_id == subject
            assert gold.sentence is not None
            sentence = texts[subject][gold.sentence]
            assert re.fullmatch(rf" The (.+) of {subject} is {value}\.", sentence)
            assert PHRASES[sentence.removeprefix(" The ").split(f" of {subject} ")[0]] == relation


def test_a_passage_states_every_fact_of_its_entity_and_noise_states_none() -> None:
    made = passages(TRAIN, CONFIG)
    own = [passage for passage in made if passage.id in TRAIN.kind_of]
    noise = [passage for passage in made if passage.id.endswith("/noise")]
    assert len(own) == len(TRAIN.kind_of)
    assert len(own) + len(noise) == len(made)
    assert 0.2 < len(noise) / len(own) < 0.6
    assert all("".join(passage.sentences) == passage.text for passage in made)
    assert not any(" is " in passage.text for passage in noise)
    assert passages(TRAIN, CONFIG.model_copy(update={"noise": 0.0})) != made


def test_the_database_holds_the_facts_and_nothing_else(database: Path) -> None:
    """Gold answers are there as plain facts alone: five tables of names, relations and years."""
    with duckdb.connect(str(database), read_only=True) as connection:
        tables = {str(name) for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert tables == set(TABLES)
        count = 0
        for kind, relations in TABLES.items():
            columns = [str(row[0]) for row in connection.execute(f"DESCRIBE {kind}").fetchall()]
            assert columns == ["name", *(relation.name for relation in relations)]
            for name, *values in connection.execute(f"SELECT * FROM {kind}").fetchall():
                for relation, value in zip(relations, values, strict=True):
                    assert TRAIN.facts[name, relation.name] == str(value)
                    count += 1
        assert count == len(TRAIN.facts)


def test_a_database_is_written_over_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"
    write_database(WORLDS["test"], path)
    write_database(TRAIN, path)
    assert LookupTool(path).call({"entity": TRAIN.names["person"][0], "relation": "mentor"}).ok


def names_in(question: Question) -> list[str]:
    return [word for word in re.findall(r"[A-Z][a-z]{5}", question.text) if word in TRAIN.kind_of]


def derived(question: Question, values: list[str]) -> str:
    """The answer from what the tools returned for each fact, and from the question's text."""
    names = names_in(question)
    if question.kind == "compositional":
        return values[-1]
    if question.text.startswith("Do "):
        return "yes" if values[0] == values[1] else "no"
    years = values[1::2] if question.kind == "bridge_comparison" else values
    return names[0] if int(years[0]) < int(years[1]) else names[1]


def test_gold_answers_are_reached_through_lookup(database: Path) -> None:
    tool = LookupTool(database)
    for question in QUESTIONS:
        values = []
        for (subject, relation, value), gold in zip(facts_of(question), question.evidence, strict=True):
            result = tool.call({"entity": subject, "relation": relation})
            assert (result.text, result.ok) == (value, True)
            (source,) = result.sources
            assert Evidence(source.passage_id, source.sentence) == gold
            assert (source.start, source.end) == (0, len(value))
            values.append(result.text)
        assert exact_match(derived(question, values), question.answers) == 1.0


def test_gold_answers_are_reached_through_sql_and_demonstrated_calls(database: Path) -> None:
    tool = SqlTool(database)
    try:
        for question in QUESTIONS[:40]:
            values = []
            *calls, last = expert(question, "sql")
            for text in calls:
                (made,) = parse(text).calls
                result = tool.call(made.arguments)
                assert result.ok, result.text
                values.append(result.text.splitlines()[-1])
            assert exact_match(derived(question, values), question.answers) == 1.0
            assert last == f"<answer>{question.answers[0]}</answer>"
            assert values[-1] == question.answers[0]  # all that is left is to copy it
    finally:
        tool.close()


def test_gold_evidence_is_reached_through_search() -> None:
    tool = SearchTool(passages(TRAIN, CONFIG))
    for question in QUESTIONS:
        for gold in question.evidence:
            shown = {(source.passage_id, source.sentence) for source in tool.call({"query": gold.passage_id}).sources}
            assert (gold.passage_id, gold.sentence) in shown


def test_lookup_finds_exact_names_and_says_when_it_finds_nothing(database: Path) -> None:
    tool = LookupTool(database)
    person = TRAIN.names["person"][0]
    assert tool.call({"entity": f" {person} ", "relation": "mentor"}).text == TRAIN.facts[person, "mentor"]
    for arguments in ({"entity": person, "relation": "capital"}, {"entity": "Nobody", "relation": "mentor"}):
        assert (tool.call(arguments).ok, tool.call(arguments).text) == (False, "nothing found")
    assert tool.call({"entity": 3, "relation": "mentor"}).text == "error: entity must be a string"
    assert tool.call({"entity": person}).text == "error: relation must be a string"
    tool.close()


def test_an_expert_asks_for_each_fact_and_then_answers() -> None:
    question = next(question for question in QUESTIONS if question.hops == 3)
    *calls, last = expert(question, "lookup")
    asked = [parse(text).calls[0] for text in calls]
    assert [(made.name, made.arguments["entity"], made.arguments["relation"]) for made in asked] == [
        ("lookup", subject, relation) for subject, relation, _ in facts_of(question)
    ]
    assert parse(last).answer == question.answers[0]


@pytest.mark.parametrize("name", ["lookup", "sql", "search"])
def test_a_sloppy_demonstration_is_well_formed_seeded_and_seldom_right(name: str, database: Path) -> None:
    """And whatever tool it asks, it goes on with a name or year of the world, never with the tool's other words."""
    makers = {
        "lookup": lambda: LookupTool(database),
        "sql": lambda: SqlTool(database),
        "search": lambda: SearchTool(passages(TRAIN, CONFIG)),
    }
    tool = makers[name]()
    said = {*TRAIN.kind_of, *TRAIN.facts.values()}

    def observe(text: str) -> str:
        return tool.call(parse(text).calls[0].arguments).text

    def right(question: Question) -> bool:
        texts = list(sloppy(question, name, observe, generator(0, question.id)))
        assert texts == list(sloppy(question, name, observe, generator(0, question.id)))
        assert all(len(parse(text).calls) == 1 and not parse(text).errors for text in texts[:-1])
        assert parse(texts[-1]).answer in said
        return parse(texts[-1]).answer in question.answers

    asked = [question for question in of_kind("compositional") if question.hops != 1][:120]
    wins = sum(map(right, asked))
    said |= {"yes", "no"}
    choices = [*of_kind("comparison"), *of_kind("bridge_comparison")]
    assert sum(map(right, choices)) < 0.4 * len(choices)
    tool.close()
    assert 0 < wins < 0.4 * len(asked)


def test_a_sloppy_demonstration_that_goes_on_to_the_end_leaves_the_choice_to_sql(database: Path) -> None:
    """Else the one step that tells two names apart is never shown, and reinforcement never finds it."""
    tool = SqlTool(database)

    def observe(text: str) -> str:
        return tool.call(parse(text).calls[0].arguments).text

    asked = [*of_kind("comparison"), *of_kind("bridge_comparison")]
    shown = [list(sloppy(question, "sql", observe, generator(0, question.id))) for question in asked]
    tool.close()
    chose = [len(texts) == (question.hops or 0) + 2 for texts, question in zip(shown, asked, strict=True)]
    assert ["SELECT if(" in texts[-2] or "min_by" in texts[-2] for texts in shown] == chose
    assert 0.05 < sum(chose) / len(chose) < 0.3, "half of them stop at each call"


@pytest.mark.parametrize(
    ("tools", "tool"), [(("sql", "lookup"), "lookup"), (("search", "sql"), "sql"), (("calculator",), "calculator")]
)
def test_demonstrations_use_the_plainest_tool_there_is(tools: tuple[str, ...], tool: str) -> None:
    assert demonstrating_tool(tools) == tool


def test_a_search_call_asks_with_words() -> None:
    assert parse(call("search", "Beldan", "birth_year")).calls[0].arguments == {"query": "Beldan birth year"}


def test_the_smallest_world_can_be_asked_everything() -> None:
    """All its films may have one director: another bridge is asked then."""
    for seed in range(30):
        small = WorldConfig(
            seed=seed, people=8, cities=4, countries=3, companies=4, films=4, warm_start_scale=1, hops=(2, 4),
            kinds=("comparison", "bridge_comparison", "compositional"),
        )  # fmt: skip
        world = generate(small)["train"]
        assert len(ask(world, small, 20)) == 20


def test_a_world_whose_films_share_a_director_still_has_bridge_questions() -> None:
    facts = dict(TRAIN.facts)
    for film in TRAIN.names["film"]:
        facts[film, "director"] = TRAIN.names["person"][0]
    world = World("train", TRAIN.names, TRAIN.kind_of, facts)
    asked = ask(world, CONFIG.model_copy(update={"hops": (4,), "kinds": ("bridge_comparison",)}), 40)
    assert not any("director" in question.text for question in asked)
