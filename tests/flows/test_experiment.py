"""Experiments from plan to summary: fake stages, a real store, real results, no Prefect."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from fakes import Fakes

from agent_r1.errors import ConfigError, RunError
from agent_r1.experiment import Plan
from agent_r1.questions.records import Json
from flows import experiment
from flows.configs import CONFIGS, find_config
from flows.experiment import check_done, choose, make_plan, run_pieces, stored_results
from flows.experiment_report import report
from flows.home import all_rows, stored_context
from flows.locks import run_lock
from flows.session import run_training
from flows.start import begin
from storage import results
from tasks.context import RunContext
from tasks.stage import Receipt

Install = Callable[[str], Fakes]
TREE: dict[str, Json] = {
    "base": "base.yaml",
    "set": {"iterations": 2},
    "seeds": [0, 1],
    "variants": {"dense": None, "outcome": {"rewards": {"evidence": 0}}},
    "last": 1,
    "comparisons": [["dense", "outcome"]],
}
ALL = ["x-dense-s0", "x-outcome-s0", "x-dense-s1", "x-outcome-s1"]


def planned(folder: Path, **changes: Json) -> Plan:
    """The experiment x, its base beside it."""
    (folder / "base.yaml").write_text("store: {lock_wait: 5.0}")
    (folder / "x.yaml").write_text(yaml.safe_dump({**TREE, **changes}))
    return make_plan(folder / "x.yaml", "x", find_config)


def work(home: Path, plan: Plan, folder: Path, only: list[str] | None = None) -> tuple[list[str], dict[str, Exception]]:
    said: list[str] = []
    failures = run_pieces(home, plan, choose(plan, only or [], []), folder, said.append)
    return said, failures


def test_every_run_starts_from_the_start_of_its_seed_and_leaves_a_result(tmp_path: Path, fakes: Install) -> None:
    made, plan = fakes(""), planned(tmp_path)
    _, failures = work(tmp_path, plan, tmp_path / "results")
    assert failures == {}
    assert made.begun.count("warm_start") == 6
    assert made.begun.count("test 2") == 4
    starts = {row.run: [note["after"] for note in row.notes] for row in all_rows(tmp_path)}
    assert starts["x-base-s1"] == []
    assert starts["x-outcome-s1"] == ["x-base-s1@0"]
    found = stored_results(plan, tmp_path / "results")
    assert list(found) == ALL
    one = found["x-outcome-s1"]
    assert (one.variant, one.seed, one.iterations) == ("outcome", 1, 2)
    assert one.overrides == {"rewards": {"evidence": 0}}
    assert one.identity == plan.pieces[3].config.identity
    assert one.series["eval/sampled/exact_match"] == {0: 0.0, 1: 0.25, 2: 0.5}
    assert one.test == {"test/sampled/exact_match": 0.4}
    assert "time/update_seconds" in one.series


def test_what_is_done_is_not_done_again(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    plan, folder = planned(tmp_path, seeds=[0]), tmp_path / "results"
    work(tmp_path, plan, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = fakes("")
    said, _ = work(tmp_path, plan, folder)
    assert again.begun == []
    assert [line.partition(":")[0] for line in said] == [f"run {run}" for run in ALL[:2]]
    results.path_of(folder, "dense", 0).unlink()
    work(tmp_path, plan, folder)
    assert again.begun == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_results_of_another_home_count(tmp_path: Path, fakes: Install) -> None:
    """Made in pieces, here and there, and put together."""
    fakes("")
    plan, folder = planned(tmp_path, seeds=[0]), tmp_path / "results"
    work(tmp_path / "here", plan, folder, ["dense"])
    work(tmp_path / "there", plan, folder)
    assert {row.run for row in all_rows(tmp_path / "there")} == {"x-base-s0", "x-outcome-s0"}
    assert list(stored_results(plan, folder)) == ALL[:2]


def test_a_result_of_another_configuration_is_refused_before_any_work(tmp_path: Path, fakes: Install) -> None:
    made, folder = fakes(""), tmp_path / "results"
    work(tmp_path, planned(tmp_path, seeds=[0]), folder, ["dense"])
    begun = list(made.begun)
    other = planned(tmp_path, seeds=[0], set={"iterations": 2, "ppo": {"epochs": 9}})
    with pytest.raises(RunError, match=r"dense-s0.json: .*another configuration: ppo.epochs is 2 there and 9 here"):
        work(tmp_path, other, folder)
    assert made.begun == begun


def test_more_iterations_go_on_from_fewer_and_replace_the_result(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    folder = tmp_path / "results"
    work(tmp_path, planned(tmp_path, seeds=[0]), folder, ["dense"])
    longer = planned(tmp_path, seeds=[0], set={"iterations": 3})
    assert stored_results(longer, folder) == {}
    again = fakes("")
    work(tmp_path, longer, folder, ["dense"])
    assert [name for name in again.begun if name.startswith(("update", "test"))] == ["update 3", "test 3"]
    assert stored_results(longer, folder)["x-dense-s0"].test == {"test/sampled/exact_match": 0.6}
    with pytest.raises(RunError, match="a result of 3 iterations, above 2"):
        work(tmp_path, planned(tmp_path, seeds=[0]), folder)


def test_a_run_that_another_process_works_on_is_left_to_it_and_waited_for(
    tmp_path: Path, fakes: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes("")
    plan, folder = planned(tmp_path, seeds=[0]), tmp_path / "results"
    order: list[str] = []
    lock = run_lock(tmp_path / "runs" / "x-dense-s0")
    lock.__enter__()

    def wait(_seconds: float) -> None:
        order.extend(stored_results(plan, folder))
        lock.__exit__(None, None, None)  # the other process is gone, its run unfinished

    monkeypatch.setattr(experiment.time, "sleep", wait)
    said, _ = work(tmp_path, plan, folder)
    assert order == ["x-outcome-s0"], "all others first"
    assert "waiting for other processes: x-dense-s0" in said
    assert list(stored_results(plan, folder)) == ALL[:2]


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, fakes: Install) -> None:
    made = fakes("")
    update = made.update

    def failing(context: RunContext, iteration: int, checkpoint: Receipt, annotated: Receipt) -> Receipt:
        if context.run == "x-dense-s0":
            raise RuntimeError("no memory")
        return update(context, iteration, checkpoint, annotated)

    plan, folder = planned(tmp_path, seeds=[0]), tmp_path / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.update.update", failing)
        _, failures = work(tmp_path, plan, folder)
    assert list(failures) == ["x-dense-s0"]
    with pytest.raises(RunError, match=r"^run x-dense-s0 failed: RuntimeError: no memory$") as raised:
        check_done(failures)
    assert "in failing" in "".join(traceback.format_exception(raised.value)), "--debug shows where"
    assert list(stored_results(plan, folder)) == ["x-outcome-s0"]
    _, failures = work(tmp_path, plan, folder)
    assert failures == {}
    assert list(stored_results(plan, folder)) == ALL[:2]


def test_where_a_start_fails_its_seed_fails(tmp_path: Path, fakes: Install) -> None:
    fakes("warm_start")
    _, failures = work(tmp_path, planned(tmp_path), tmp_path / "results")
    assert str(failures["x-dense-s0"]) == str(failures["x-outcome-s0"]) == "its start x-base-s0 failed"
    assert str(failures["x-base-s0"]) == "warm_start fails"


def test_a_damaged_start_is_made_again_before_a_variant_needs_it(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    plan, folder = planned(tmp_path, seeds=[0]), tmp_path / "results"
    work(tmp_path, plan, folder, ["dense"])
    weights = stored_context(tmp_path, "x-base-s0").checkpoint(0) / "policy" / "model.safetensors"
    weights.unlink()
    again = fakes("")
    _, failures = work(tmp_path, plan, folder)
    assert failures == {}
    assert again.begun.count("warm_start") == 2, "of the base, and of the other variant"
    assert weights.is_file()


def test_a_finished_run_that_started_elsewhere_is_no_run_of_the_experiment(tmp_path: Path, fakes: Install) -> None:
    made, plan, folder = fakes(""), planned(tmp_path, seeds=[0]), tmp_path / "results"
    dense = plan.pieces[0]
    run_training(tmp_path, dense.run, lambda: begin(tmp_path, dense.run, dense.config), lambda _: None)
    before = made.begun.count("update 2")
    _, failures = work(tmp_path, plan, folder)
    assert str(failures["x-dense-s0"]) == "run 'x-dense-s0' exists and starts from nothing, not x-base-s0@0"
    assert list(stored_results(plan, folder)) == ["x-outcome-s0"]
    assert made.begun.count("update 2") == before + 1


def test_shipped_experiments_have_a_plan() -> None:
    for path in (CONFIGS / "experiments").glob("*.yaml"):
        assert make_plan(path, path.stem, find_config).pieces


def test_only_some_variants_and_seeds(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [piece.run for piece in choose(plan, ["outcome"], [1])] == ["x-outcome-s1"]
    assert [piece.run for piece in choose(plan, [], [1])] == ALL[2:]
    with pytest.raises(ConfigError, match="--only grpo: there is dense, outcome"):
        choose(plan, ["grpo"], [])
    with pytest.raises(ConfigError, match="--seed 7: there is 0, 1"):
        choose(plan, [], [7])
    some = planned(tmp_path, variant_seeds={"outcome": [1]})
    with pytest.raises(ConfigError, match="--only outcome --seed 0: chooses no run; runs are x-dense-s0, x-dense-s1"):
        choose(some, ["outcome"], [0])


def test_the_summary_says_what_is_missing_and_is_written_as_files(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    plan, folder = planned(tmp_path), tmp_path / "made" / "results"
    work(tmp_path, plan, folder, ["dense"])
    found = json.loads(report(plan, stored_results(plan, folder), folder.parent).json_text())
    assert found["missing"] == ["x-outcome-s0", "x-outcome-s1"]
    assert found["remarks"][:2] == ["no result of x-outcome-s0 yet", "no result of x-outcome-s1 yet"]
    (variant,) = found["variants"]
    assert variant["primary"] == {"mean": 0.4, "low": 0.4, "high": 0.4, "by_seed": {"0": 0.4, "1": 0.4}}
    assert json.loads((folder.parent / "summary.json").read_text()) == found
    assert "| dense | 2 | 0.400 [0.400, 0.400] |" in (folder.parent / "summary.md").read_text()
    assert (folder.parent / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = (folder.parent / "summary.html").read_text()
    assert "2 of 4 runs are finished" in page
    assert "no result of x-outcome-s0 yet" in page
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", ""), "nothing from the network"


def test_nothing_at_all_is_a_summary_of_what_is_missing(tmp_path: Path) -> None:
    found = report(planned(tmp_path), {}, tmp_path / "made").json
    assert isinstance(found, dict)
    assert found["missing"] == ALL
    assert not (tmp_path / "made").exists()


def test_results_that_were_not_made_alike_are_remarked(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    plan, folder = planned(tmp_path), tmp_path / "results"
    work(tmp_path, plan, folder)
    path = results.path_of(folder, "dense", 1)
    tree = json.loads(path.read_text())
    tree |= {
        "code_version": "9.9",
        "start_weights": "other",
        "machine": {**tree["machine"], "cpus": 99},
        "changes": ["code: 1 -> 2"],
    }
    tree["library_versions"]["torch"] = "9"
    tree["config"] |= {"device": "cuda:1", "threads": 3}
    path.write_text(json.dumps(tree))
    found = report(plan, stored_results(plan, folder), tmp_path / "made").json
    assert isinstance(found, dict)
    remarks = "\n".join(str(remark) for remark in found["remarks"])  # type: ignore[union-attr]
    assert "made by several versions of the code: 0.1.0" in remarks
    assert "made with several versions of torch" in remarks
    assert "seconds are not comparable" in remarks
    assert "made with several settings of device: auto, cuda:1" in remarks
    assert "made with several settings of threads: 3, torch's choice" in remarks
    assert "seed 1: its runs start from different weights" in remarks
    assert "x-dense-s1 changed on resume: code: 1 -> 2" in remarks


def test_a_broken_result_is_named(tmp_path: Path) -> None:
    path = results.path_of(tmp_path, "dense", 0)
    for text in ("{", "[]", '{"format": 1}', '{"format": 99}', '{"format": 1, "series": [], "test": {}}'):
        path.write_text(text)
        with pytest.raises(RunError, match=r"dense-s0.json: not the result of a run"):
            stored_results(planned(tmp_path), tmp_path)


def test_a_result_that_is_not_what_its_name_says_is_named(tmp_path: Path, fakes: Install) -> None:
    fakes("")
    plan = planned(tmp_path, seeds=[0])
    work(tmp_path, plan, tmp_path, ["dense"])
    path = results.path_of(tmp_path, "dense", 0)
    good = json.loads(path.read_text())
    wrong: list[tuple[dict[str, Json], str]] = [
        ({"variant": "outcome"}, "variant is 'outcome', expected 'dense'"),
        ({"seed": 1}, "seed is 1, expected 0"),
        ({"experiment": "y"}, "experiment is 'y', expected 'x'"),
        ({"test": None}, "NoneType"),
        ({"test": [0.5]}, "list"),
        ({"test": {"test/sampled/exact_match": "0.5"}}, "test/sampled/exact_match: expected a number or null"),
        ({"iterations": "2"}, "iterations: expected int, got '2'"),
        ({"machine": None}, "machine: expected dict, got None"),
        ({"series": {}}, "expected values of eval/sampled/exact_match"),
        ({"series": {"eval/sampled/exact_match": {}}}, "expected values of eval/sampled/exact_match"),
        ({"series": {"eval/sampled/exact_match": {"0": None}}}, "expected values of eval/sampled/exact_match"),
    ]
    for changes, problem in wrong:
        path.write_text(json.dumps({**good, **changes}))
        with pytest.raises(RunError, match=f"dense-s0.json: not the result of a run: .*{problem}"):
            stored_results(plan, tmp_path)
