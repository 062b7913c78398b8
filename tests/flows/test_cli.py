"""The command line: exit codes, one readable line for an error, JSON for programs."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fakes

from flows import configs
from flows.cli import main
from flows.configs import find_config

Install = Callable[[str], Fakes]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def yaml(tmp_path: Path) -> str:
    """A small configuration file named small.yaml."""
    path = tmp_path / "small.yaml"
    path.write_text("iterations: 1\n")
    return str(path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home that the environment names."""
    monkeypatch.setenv("AGENT_R1_HOME", str(tmp_path / "home"))
    return str(tmp_path / "home")


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from flows.cli import main; code = main(['--help']); "
        "print(code, sorted({'torch', 'prefect', 'mlflow', 'pandas', 'duckdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.splitlines()[-1] == "0 []"


def test_runs_needs_neither_torch_nor_prefect(tmp_path: Path) -> None:
    code = (
        "import sys; from flows.cli import main; code = main(['runs', '--home', sys.argv[1]]); "
        "print(code, sorted({'torch', 'prefect', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["train", "--bogus"], 2, "No such option: --bogus"),
        (["train", "--iterations", "x"], 2, "--iterations"),
        (["resume"], 2, "Missing argument"),
        (["train", "no-such-config"], 2, "no-such-config: no such file, and no shipped configuration"),
        (["train", "YAML", "--set", "ppo.epochz=2"], 2, "unknown key 'ppo.epochz'"),
        (["train", "YAML", "--set", "ppo.epochs=0"], 2, "ppo.epochs"),
        (["train", "YAML", "--iterations", "-1"], 2, "iterations"),
        (["train", "YAML", "--run", "a/b"], 2, "run name 'a/b'"),
        (["train", "YAML", "--home", "YAML/below"], 2, "at or below a regular file"),
        (["train", "YAML", "--from", "other"], 1, "no run 'other'"),
        (["resume", "other", "--home", "."], 1, "no run 'other'"),
        (["reannotate", "other"], 2, "Missing option '--name'"),
        (["reannotate", "other", "--name", "b", "--home", "."], 1, "no run 'other'"),
        (["reannotate", "other", "--name", "b", "--home", "nowhere"], 2, "does not exist"),
        (["show", "other", "--home", "."], 1, "no run 'other'"),
        (["show", "other", "--home", "nowhere"], 2, "does not exist"),
        (["compare", "a"], 2, "two or more"),
        (["evaluate", "a", "--method", "cot"], 2, "--method cot: expected direct, rag, react, policy or all"),
        (["evaluate", "a", "--split", "dev"], 2, "expected train, validation or test"),
        (["evaluate", "nope"], 2, "runs are: none"),
        (["train", "hotpotqa-smollm2", "--set", "data.path=gone.json"], 2, "data.path: gone.json: no such file"),
        (["train", "YAML", "--home", "/proc"], 2, "cannot be written"),
        (["train", "YAML", "--home", "a?b"], 2, "expected a path without"),
    ],
)
def test_errors_are_one_line_on_stderr_with_the_right_exit_code(
    arguments: list[str], code: int, says: str, yaml: str, home: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Captured,
) -> None:  # fmt: skip
    del home
    monkeypatch.chdir(tmp_path)
    assert main([argument.replace("YAML", yaml) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("agent-r1: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_debug_shows_the_traceback(home: str, tmp_path: Path, capsys: Captured) -> None:
    del home
    for arguments in (["show", "x", "--debug"], ["--debug", "show", "x"]):
        assert main([*arguments, "--home", str(tmp_path)]) == 1
        assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_one_line_and_exit_code_1(yaml: str, home: str, fakes: Install, capsys: Captured) -> None:
    del home
    fakes("annotate 1")
    assert main(["train", yaml]) == 1
    error = capsys.readouterr().err
    assert error == "agent-r1: RuntimeError: annotate 1 fails (--debug shows the traceback)\n"


def test_evaluate_makes_no_home(home: str, capsys: Captured) -> None:
    assert main(["evaluate", "nope"]) == 2
    assert not Path(home).exists()
    assert home in capsys.readouterr().err


def test_an_error_on_a_full_disk_says_so(
    yaml: str, home: str, fakes: Install, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    fakes("annotate 1")
    monkeypatch.setattr("flows.interruption.FULL", float("inf"))
    assert main(["train", yaml]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"agent-r1: the disk of home {home} is full (")
    assert error.endswith(" MB left): annotate 1 fails\n")


def test_hints_can_be_pasted_where_the_home_has_a_space_and_a_quote(
    yaml: str, tmp_path: Path, fakes: Install, capsys: Captured
) -> None:
    fakes("")
    assert main(["train", yaml, "--home", str(tmp_path / "it's a home")]) == 0
    out = capsys.readouterr().out
    query = out.split("every row:")[1].strip()
    done = subprocess.run(query.replace("python ", f"{sys.executable} ", 1), shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ui = out.split("curves and tables:")[1].splitlines()[1]
    assert shlex.split(ui) == ["agent-r1", "ui", "--home", f"{tmp_path}/it's a home"]


def test_train_shows_what_was_learned_and_what_to_open_next(
    yaml: str, home: str, fakes: Install, capsys: Captured
) -> None:
    fakes("")
    assert main(["train", yaml]) == 0
    out = capsys.readouterr().out
    assert f"run small: new, in {home}" in out
    assert "iteration 1/1  reward  0.100  sampled EM  0.250  greedy EM  0.500" in out
    for command in ("agent-r1 show small", "agent-r1 compare small", "agent-r1 ui", "read_only=True"):
        assert command in out
    query = out.split("every row:")[1].strip()
    done = subprocess.run(query.replace("python ", f"{sys.executable} ", 1), shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_is_130_and_says_how_to_go_on(
    yaml: str, home: str, fakes: Install, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    fakes("")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.annotate.annotate", interrupt)
    assert main(["train", yaml, "--run", "mine"]) == 130
    assert capsys.readouterr().err == f"stopped; go on with: agent-r1 resume mine --home {home}\n"
    monkeypatch.undo()


def test_iterations_and_settings_override_the_file(yaml: str, home: str, fakes: Install, capsys: Captured) -> None:
    del home
    made = fakes("")
    assert main(["train", yaml, "--iterations", "2", "--set", "seed=3", "--run", "b"]) == 0
    assert "rollout 2.0" in made.begun
    capsys.readouterr()
    assert main(["show", "b", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["config"]["seed"], shown["config"]["iterations"], shown["status"]) == (3, 2, "finished")
    assert len(shown["stages"]) == 16


def test_tables_and_json_say_the_same_of_two_runs(yaml: str, home: str, fakes: Install, capsys: Captured) -> None:
    del home
    fakes("")
    assert main(["train", yaml, "--run", "one"]) == 0
    assert main(["train", yaml, "--run", "two", "--set", "seed=1"]) == 0
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    assert [(row["run"], row["done"]) for row in json.loads(capsys.readouterr().out)] == [("one", 1), ("two", 1)]
    assert main(["compare", "one", "two", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["config"] == [{"key": "seed", "one": "0", "two": "1"}]
    assert compared["by_iteration"][1]["two sampled EM"] == 0.25
    for arguments in (["runs"], ["show", "one"], ["show", "one", "--iteration", "1"], ["compare", "one", "two"]):
        assert main(arguments) == 0
        assert "one" in capsys.readouterr().out


def test_a_configuration_is_a_file_or_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shipped.yaml").write_text("")
    monkeypatch.setattr(configs, "CONFIGS", tmp_path)
    assert find_config("shipped") == tmp_path / "shipped.yaml"
    assert find_config(str(tmp_path / "shipped.yaml")) == tmp_path / "shipped.yaml"
