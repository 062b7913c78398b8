"""Trajectories for the terminal: which there are, and one of them turn by turn, its tokens coloured by mask.

Decoding is for the eye alone; training reads the ids. Loading and storing are left to storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from agent_r1.errors import RunError
from agent_r1.questions.records import Json
from agent_r1.trajectory import Annotation, Credit, Purpose, Trajectory, Turn
from flows.tables import Grid, visible
from storage import annotations, trajectories
from tasks.context import RunContext

PURPOSES: tuple[Purpose, ...] = ("train", "sampled", "greedy", "test_sampled", "test_greedy")
LISTED = 8  # trajectories of each purpose that a terminal shows
Decode = Callable[[Sequence[int]], str]


def listing(context: RunContext, iteration: int, every: bool = False) -> Grid:
    """Trajectories of an iteration: some of each purpose, or every one."""
    cells: list[list[Json]] = []
    with context.store.read() as con:
        rewards: dict[str, float] = {}
        for row in annotations.load(con, context.run, iteration):
            rewards[row.trajectory_id] = rewards.get(row.trajectory_id, 0.0) + sum(row.rewards)
        for purpose in PURPOSES:
            found = trajectories.load(con, context.run, iteration, purpose)
            for one in found if every else found[:LISTED]:
                reward = rewards.get(one.trajectory_id)
                cells.append(
                    [one.trajectory_id, one.ending, len(one.turns), one.answer, one.exact_match, one.f1, reward]
                )
    names = ("trajectory", "ending", "turns", "answer", "EM", "F1", "reward")
    return Grid(f"{context.run}: trajectories of iteration {iteration}{'' if every else ' (some)'}", names, cells)


def find(context: RunContext, wanted: str) -> Trajectory:
    """The trajectory of that id, or whose id is the only one to end so. RunError where there is none, or more."""
    with context.store.read() as con:
        ids = trajectories.ending_with(con, context.run, wanted)
        if not ids:
            raise RunError(f"run {context.run!r} has no trajectory {wanted!r}")
        (name, iteration, purpose), *others = ids
        if others and name != wanted:
            raise RunError(f"{len(ids)} trajectories end in {wanted!r}, such as {name} and {others[0][0]}: give more")
        found = trajectories.load(con, context.run, iteration, purpose)
    return next(one for one in found if one.trajectory_id == name)


def notes_of(context: RunContext, trajectory: Trajectory) -> tuple[list[Annotation], list[Credit]]:
    """What annotate and update made of it, by segment; nothing for evaluation or before those stages."""
    if trajectory.purpose != "train":
        return [], []
    name = trajectory.trajectory_id
    with context.store.read() as con:
        marked = annotations.load(con, context.run, trajectory.iteration)
        credited = annotations.load_credits(con, context.run, trajectory.iteration)
    return [row for row in marked if row.trajectory_id == name], [row for row in credited if row.trajectory_id == name]


def record(trajectory: Trajectory, marked: Sequence[Annotation], credited: Sequence[Credit]) -> Json:
    """All of it for programs."""
    everything = asdict(trajectory) | {"trajectory_id": trajectory.trajectory_id}
    everything |= {"annotations": [asdict(row) for row in marked], "credits": [asdict(row) for row in credited]}
    return _jsonable(everything)


def render(
    console: Console, trajectory: Trajectory, marked: Sequence[Annotation], credited: Sequence[Credit], decode: Decode
) -> None:
    """Turn by turn: given tokens dim, chosen ones bold (in [[brackets]] without colour), then what they were worth."""
    plain = console.no_color or not console.is_terminal
    parts = {turn: prices for row in marked for turn, prices in row.reward_parts.items()}
    advantages = _by_turn(trajectory, marked, credited)
    console.print(Text(trajectory.trajectory_id, style="bold"))
    legend = "chosen by the agent: [[in brackets]]" if plain else "given by the world: dim; chosen by the agent: bold"
    answer = "none" if trajectory.answer is None else visible(trajectory.answer)
    scores = f"exact match {trajectory.exact_match:g}, F1 {trajectory.f1:.3g}"
    console.print(Text(f"ending {trajectory.ending}, answer {answer}, {scores}, checkpoint {trajectory.checkpoint}"))
    console.print(Text(f"{legend}\n"))
    for turn in trajectory.turns:
        console.print(Text(f"turn {turn.index}" + (f", segment {turn.segment}" if turn.segment else ""), style="cyan"))
        console.print(_tokens(turn, decode, plain))
        for call in turn.calls:
            name = "malformed call" if call.malformed else call.name
            result = Text(f"  {visible(name)}: {'ok' if call.ok else 'failed'}: {visible(call.text)}")
            console.print(result, style="green" if call.ok else "red")
        console.print(Text(f"  {_worth(parts.get(turn.index), advantages.get(turn.index))}\n"), style="yellow")


def _tokens(turn: Turn, decode: Decode, plain: bool) -> Text:
    given, chosen = visible(decode(turn.given_ids)), visible(decode(turn.action_ids))
    if plain:
        return Text(f"{given}[[{chosen}]]")
    return Text.assemble((given, "dim"), (chosen, "bold magenta"))


def _worth(prices: Mapping[str, float] | None, advantages: Sequence[float] | None) -> str:
    if prices is None:
        return "not annotated"
    shown = ", ".join(f"{name} {value:+.3g}" for name, value in prices.items() if value) or "nothing"
    line = f"reward {sum(prices.values()):+.3g} ({shown})"
    if advantages:
        mean = sum(advantages) / len(advantages)
        line += f"; advantage {mean:+.3f} on average, {min(advantages):+.3f} to {max(advantages):+.3f}"
    return line


def _by_turn(
    trajectory: Trajectory, marked: Sequence[Annotation], credited: Sequence[Credit]
) -> dict[int, list[float]]:
    """The advantages of each turn's chosen tokens, which are in one order with the mask's True places."""
    by_segment = {row.segment: row for row in credited}
    chosen: dict[int, list[float]] = {}
    for row in marked:
        if row.segment in by_segment:
            pairs = zip(row.action_mask, by_segment[row.segment].advantages, strict=True)
            chosen[row.segment] = [advantage for mask, advantage in pairs if mask]
    found: dict[int, list[float]] = {}
    for turn in trajectory.turns:
        rest = chosen.get(turn.segment, [])
        found[turn.index], chosen[turn.segment] = rest[: len(turn.action_ids)], rest[len(turn.action_ids) :]
    return found


def _jsonable(value: object) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"not JSON: {value!r}")
