"""The vLLM engine against a stand-in for the server, which has its endpoints and can misbehave (fake_vllm)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from agent_r1.config import Config, parse
from agent_r1.errors import ConfigError, EngineError, EngineLostError
from agent_r1.questions.records import Json
from agent_r1.sampler import Action, ActionRequest, Sampler
from agent_r1.vllm_sampler import VllmSampler
from agent_r1.vllm_server import VllmServer, Weights
from tasks.engine import on_server

FAKE = Path(__file__).with_name("fake_vllm")
END = 7


@dataclass(frozen=True)
class Fake:
    """Where the stand-in reads how to misbehave, and where our server keeps its log."""

    folder: Path

    def told(self, *words: str) -> None:
        (self.folder / "misbehave").write_text("\n".join(words))

    def server(self, **settings: Json) -> VllmServer:
        return VllmServer(config(**settings), self.folder / "vllm.log")

    @property
    def starts(self) -> int:
        """How many servers were started so far."""
        return len((self.folder / "starts").read_text().splitlines())

    @property
    def living(self) -> list[str]:
        """Processes of our servers: keeper, server and what the server started."""
        listed = subprocess.run(["ps", "-ww", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
        return [line for line in listed.splitlines() if str(self.folder) in line and not line.startswith("Z")]


def config(**settings: Json) -> Config:
    served: dict[str, Json] = {"python": sys.executable} if "url" not in settings else {}
    rollout: dict[str, Json] = {"engine": "vllm", "vllm": {**served, **settings}}
    return parse({"rollout": rollout, "device": "cpu"}, "test")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    """In a folder with a short name, as the one for temporary files, so that processes can be told by their socket."""
    tmp_path_factory.getbasetemp()  # before another folder is the one for temporary files
    with tempfile.TemporaryDirectory(prefix="fake-", dir="/tmp") as name:
        monkeypatch.setenv("PYTHONPATH", str(FAKE))
        monkeypatch.setenv("FAKE_VLLM", f"{name}/misbehave")
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Fake(Path(name))


@pytest.fixture
def server(fake: Fake) -> Iterator[VllmServer]:
    made = fake.server(timeout=20.0)
    yield made
    made.close()


def state(server: VllmServer) -> dict[str, Json]:
    return server._get("/state")


def ask(server: VllmServer, version: str, *requests: ActionRequest, tokens: int = 2) -> list[Action]:
    session = VllmSampler(server, version).session(end_ids=(END,), temperature=0.5, greedy=False, max_new_tokens=tokens)
    return session.act(requests)


def sampled(*requests: ActionRequest) -> Callable[[Sampler], list[Action]]:
    """What `on_server` is to sample, twice if need be."""
    return lambda sampler: sampler.session(end_ids=(END,), temperature=0.5, greedy=False, max_new_tokens=2).act(
        requests
    )


def first(row: int, seed: int) -> ActionRequest:
    return ActionRequest(row, (1, 2), seed, restart=True)


def test_actions_come_back_in_the_order_of_the_requests(server: VllmServer, tmp_path: Path) -> None:
    server.load(Weights(tmp_path, "a"))
    assert ask(server, "a", first(0, 11), first(1, 12)) == [
        Action((11, END), (-0.5, -0.5), finished=True),
        Action((12, END), (-0.5, -0.5), finished=True),
    ]
    assert ask(server, "a", first(0, 11), tokens=1) == [Action((11,), (-0.5,), finished=False)]


def test_a_turn_sees_exactly_what_was_sampled_before_it(server: VllmServer, tmp_path: Path) -> None:
    server.load(Weights(tmp_path, "a"))
    session = VllmSampler(server, "a").session(end_ids=(END,), temperature=0.5, greedy=False, max_new_tokens=2)
    session.act([first(0, 11), first(1, 12)])
    session.act([ActionRequest(1, (3,), 2**63 + 13)])
    session.act([ActionRequest(1, (9, 9), 14, restart=True)])
    seen = state(server)["seen"]
    assert isinstance(seen, list)
    contexts = [one["token_ids"] for one in seen if isinstance(one, dict)]
    assert contexts[2:] == [[1, 2, 12, END, 3], [9, 9]]
    assert seen[2]["sampling_params"] == {  # type: ignore[index,call-overload]
        "temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 13,
        "max_tokens": 2, "stop_token_ids": [END], "ignore_eos": True, "logprobs": 0, "detokenize": False,
    }  # fmt: skip


def test_greedy_is_temperature_zero_and_scored_at_one(server: VllmServer, tmp_path: Path) -> None:
    server.load(Weights(tmp_path, "a"))
    sampler = VllmSampler(server, "a")
    sampler.session(end_ids=(END,), temperature=1.0, greedy=True, max_new_tokens=1).act([first(0, 1)])
    seen = state(server)["seen"]
    assert seen[0]["sampling_params"]["temperature"] == 0  # type: ignore[index,call-overload]
    with pytest.raises(ValueError, match=r"greedy actions are scored at 1, got 0.5"):
        sampler.session(end_ids=(END,), temperature=0.5, greedy=True, max_new_tokens=1)


def test_new_weights_are_taken_in_place_and_old_ones_not_read_again(server: VllmServer, tmp_path: Path) -> None:
    server.load(Weights(tmp_path / "one", "a"))
    began = state(server)
    server.load(Weights(tmp_path / "one", "a"))
    server.load(Weights(tmp_path / "two", "b"))
    then = state(server)
    assert (began["weights"], began["reloads"], began["version"]) == (str(tmp_path / "one"), 0, "a")
    assert (then["weights"], then["reloads"], then["version"]) == (str(tmp_path / "two"), 1, "b")
    assert then["pid"] == began["pid"]
    with pytest.raises(EngineError, match="with the weights b, not with a"):
        ask(server, "a", first(0, 1))


def test_on_a_shared_gpu_weights_are_dropped_before_an_update_and_taken_before_the_cache_is(
    fake: Fake, server: VllmServer
) -> None:
    server.rest()
    server.load(Weights(fake.folder / "one", "a"))
    server.rest()
    assert state(server)["posted"] == ["/reset_prefix_cache", "/update_weight_version"], "nothing is shared on a CPU"
    server._shares_gpu = True
    server.rest()
    server.rest()
    server.load(Weights(fake.folder / "one", "a"))
    assert state(server)["posted"][2:] == [  # type: ignore[index]
        "/sleep?level=2",
        "/update_weight_version",
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
        "/reset_prefix_cache",
        "/update_weight_version",
    ]
    fake.told("sleepless")
    server.rest()
    assert fake.living == [], "a server that cannot give up its memory is ended"


def test_adapters_are_put_on_a_base_that_is_read_once(fake: Fake) -> None:
    rollout: dict[str, Json] = {"engine": "vllm", "vllm": {"python": sys.executable}}
    settings = parse({"rollout": rollout, "device": "cpu", "model": {"lora": {"rank": 9}}}, "test")
    server = VllmServer(settings, fake.folder / "vllm.log")
    base = fake.folder / "base"
    try:
        for name in ("one", "two"):
            server.load(Weights(base, name, fake.folder / name))
            assert ask(server, name, first(0, 11))[0].ids == (11, END)
            then = state(server)
            assert then["adapter"] == {
                "lora_name": "policy", "lora_path": str(fake.folder / name), "load_inplace": True
            }  # fmt: skip
        assert (then["weights"], then["reloads"]) == (str(base), 0)
        assert [one["model"] for one in then["seen"]] == ["policy", "policy"]  # type: ignore[union-attr,index,call-overload]
        assert " ".join(map(str, then["arguments"])).endswith("--enable-lora --max-lora-rank 16")  # type: ignore[arg-type]
        server.load(Weights(fake.folder / "another", "b", fake.folder / "two"))
        assert (state(server)["weights"], state(server)["reloads"]) == (str(fake.folder / "another"), 1)
    finally:
        server.close()
    with pytest.raises(ConfigError, match=r"model\.lora\.rank 513 is above 512"):
        VllmServer(parse({"rollout": rollout, "model": {"lora": {"rank": 513}}}, "test"), fake.folder / "log").check()


@pytest.mark.parametrize("word", ["no-reload", "keeps-cache"])
def test_a_server_that_does_not_take_weights_is_started_anew(fake: Fake, server: VllmServer, word: str) -> None:
    server.load(Weights(fake.folder / "one", "a"))
    before = state(server)["pid"]
    fake.told(f"{word}!")
    server.load(Weights(fake.folder / "two", "b"))
    after = state(server)
    assert after["pid"] != before
    assert (after["weights"], after["version"]) == (str(fake.folder / "two"), "b")


@pytest.mark.parametrize("word", ["die", "hang", "abort"])
def test_where_the_server_is_lost_everything_is_sampled_again_on_a_new_one(fake: Fake, word: str) -> None:
    server = fake.server(timeout=3.0)
    fake.told(f"{word}!")
    try:
        made = on_server(server, Weights(fake.folder, "a"), sampled(first(0, 11), first(1, 12)))  # type: ignore[attr-defined]
        assert [action.ids for action in made] == [(11, END), (12, END)]
        assert state(server)["completions"] == 2, "by the new server"
    finally:
        server.close()


def test_a_server_that_is_lost_again_and_again_is_an_error_with_its_last_words(fake: Fake) -> None:
    fake.told("die")
    server = fake.server()
    with pytest.raises(EngineError, match=r"gone in the middle of its work .*out of cheese"):
        on_server(server, Weights(fake.folder, "a"), sampled(first(0, 11)))  # type: ignore[attr-defined]
    assert fake.living == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("other-weights", "the weights someone else's, not with a"),
        ("two-versions", "the weights a, late, not with a"),
        ("odd", "a form that is not known"),
        ("empty", "for the reason 'stop' after 0 tokens"),
        ("short-logprobs", "for the reason 'stop' after 2 tokens"),
        ("length-with-end", f"at token {END} for the reason 'length'"),
    ],
)
def test_an_answer_that_cannot_be_trusted_is_an_error(fake: Fake, server: VllmServer, word: str, message: str) -> None:
    server.load(Weights(fake.folder, "a"))
    fake.told(word)
    with pytest.raises(EngineError, match=message):
        ask(server, "a", first(0, 11))


def test_a_server_that_does_not_start_says_why(fake: Fake) -> None:
    fake.told("no-start")
    with pytest.raises(EngineError, match=r"did not start .*no such model architecture"):
        fake.server().load(Weights(fake.folder, "a"))
    fake.told("slow-start")
    with pytest.raises(EngineError, match=r"did not come up within rollout.vllm.start_timeout, 1 s"):
        fake.server(start_timeout=1.0).load(Weights(fake.folder, "a"))
    assert fake.living == []


def test_the_run_s_settings_reach_the_server_and_the_user_s_come_last(fake: Fake) -> None:
    server = fake.server(arguments=["--max-model-len", "99"])
    try:
        server.load(Weights(fake.folder, "a"))
        arguments = state(server)["arguments"]
        assert isinstance(arguments, list)
        assert arguments[:2] == ["--model", str(fake.folder)]
        assert arguments[-2:] == ["--max-model-len", "99"]
        text = " ".join(map(str, arguments))
        assert "--max-model-len 512 " in text
        assert "--dtype float32 " in text
        assert "--logprobs-mode processed_logprobs" in text
    finally:
        server.close()


def test_the_server_and_what_it_started_end_with_close(fake: Fake, server: VllmServer) -> None:
    server.load(Weights(fake.folder, "a"))
    assert len(fake.living) == 3, "keeper, server, engine core"
    server.close()
    assert fake.living == []
    assert list(fake.folder.glob("agent-r1-*")) == []


def test_the_server_ends_where_something_kills_its_keeper_alone(fake: Fake, server: VllmServer) -> None:
    server.load(Weights(fake.folder, "a"))
    listed = subprocess.run(["pgrep", "-f", f"vllm_keeper.py {fake.folder}"], capture_output=True, text=True)
    os.kill(int(listed.stdout), signal.SIGKILL)
    deadline = time.monotonic() + 5
    while len(fake.living) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(fake.living) == 1, "the core, which ends with a real server"
    server.load(Weights(fake.folder, "b"))
    assert len(fake.living) == 3
    assert ask(server, "b", first(0, 11))[0].ids == (11, END)


def test_the_socket_is_elsewhere_where_the_folder_for_temporary_files_has_a_long_name(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = fake.folder / ("d" * 60)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    server = fake.server()
    try:
        server.load(Weights(fake.folder, "a"))
        assert ask(server, "a", first(0, 11))[0].ids == (11, END)
    finally:
        server.close()


START = """
import sys, time
from pathlib import Path
from tests.agent_r1.test_vllm import config
from agent_r1.vllm_server import VllmServer, Weights
server = VllmServer(config(), Path(sys.argv[1]) / "vllm.log")
server.load(Weights(Path(sys.argv[1]), "a"))
print("up", flush=True)
time.sleep(60)
"""


GENTLE = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("how", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in GENTLE)])
def test_the_server_never_outlives_the_run_whatever_kills_it(fake: Fake, how: signal.Signals) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{FAKE}{os.pathsep}{root}"}
    run = subprocess.Popen([sys.executable, "-c", START, str(fake.folder)], stdout=subprocess.PIPE, env=environment)
    assert run.stdout is not None
    assert run.stdout.readline() == b"up\n"
    assert len(fake.living) == 4, "the run, keeper, server, engine core"
    run.send_signal(how)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 5
    while fake.living and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fake.living == []
    assert list(fake.folder.glob("agent-r1-*")) == []


@pytest.fixture
def elsewhere(fake: Fake) -> Iterator[str]:
    """The URL of a server that is not ours."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    module = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(fake.folder),
        "--port",
        str(port),
    ]
    process = subprocess.Popen(module, env=os.environ, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health")
            break
        except httpx.TransportError:
            time.sleep(0.05)
    yield url
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_server_by_url_is_told_the_weights_and_left_alive(fake: Fake, elsewhere: str) -> None:
    server = fake.server(url=elsewhere)
    server.check()
    server.load(Weights(fake.folder, "a"))
    assert ask(server, "a", first(0, 11))[0].ids == (11, END)
    server.close()
    assert httpx.get(f"{elsewhere}/state").json()["weights"] == str(fake.folder)
    fake.told("hang")
    slow = fake.server(url=elsewhere, timeout=0.5)
    with pytest.raises(EngineLostError, match=r"did not answer within rollout.vllm.timeout, 0 s \(http"):
        on_server(slow, Weights(fake.folder, "a"), sampled(first(0, 11)))  # type: ignore[attr-defined]
    assert httpx.get(f"{elsewhere}/state").status_code == 200


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("short", "takes contexts of 16 tokens, rollout.max_context is 512: start it with --max-model-len 512"),
        ("no-tokens", "has no /inference/v1/generate: start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"),
        ("raw_logits", "says raw_logits for log-probabilities"),
    ],
)
def test_a_server_by_url_that_cannot_do_it_is_refused_before_any_work(
    fake: Fake, elsewhere: str, word: str, message: str
) -> None:
    fake.told(word)
    with pytest.raises(EngineError, match=message):
        fake.server(url=elsewhere).check()


def test_log_probabilities_before_the_temperature_are_refused_where_it_is_not_one(fake: Fake, elsewhere: str) -> None:
    fake.told("raw_logprobs")
    fake.server(url=elsewhere).check()
    rollout: dict[str, Json] = {"engine": "vllm", "temperature": 0.7, "vllm": {"url": elsewhere}}
    with pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
        VllmServer(parse({"rollout": rollout}, "test"), fake.folder / "log").check()


def test_a_server_without_adapters_is_refused_where_they_are_needed(fake: Fake, elsewhere: str) -> None:
    settings: dict[str, Json] = {
        "rollout": {"engine": "vllm", "vllm": {"url": f"{elsewhere}/"}},
        "model": {"lora": {"rank": 4}},
    }
    server = VllmServer(parse(settings, "test"), fake.folder / "log")
    server.check()
    fake.told("no-lora")
    with pytest.raises(EngineError, match=r"takes no adapters: .*--enable-lora and --max-lora-rank 8"):
        server.check()


def test_who_shares_a_server_never_takes_the_other_s_weights_for_its_own(fake: Fake, elsewhere: str) -> None:
    one, two = fake.server(url=elsewhere), fake.server(url=elsewhere)
    here, there = fake.folder / "here", fake.folder / "there"
    one.load(Weights(here, "one", here))
    two.load(Weights(there, "two", there))
    with pytest.raises(EngineError, match="with the weights two, not with one"):
        ask(one, "one", first(0, 1))
    one.load(Weights(here, "one again", fake.folder / "new"))
    assert (state(one)["weights"], state(one)["version"]) == (str(here), "one again")
    fake.told("keeps-cache!")
    with pytest.raises(EngineError, match="keeps what the old weights left"):
        two.load(Weights(there, "three", there))
    with pytest.raises(EngineError, match="with the weights being changed, not with one again"):
        ask(one, "one again", first(0, 1))


def test_a_server_that_is_not_there_is_refused_before_any_work(fake: Fake) -> None:
    for url in ("http://127.0.0.1:1", "http://[::1"):
        with pytest.raises(EngineError, match=rf"rollout\.vllm\.url: {re.escape(url)} does not answer"):
            fake.server(url=url).check()


def test_an_interpreter_without_vllm_is_refused_before_any_work(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake.server().check()
    monkeypatch.delenv("PYTHONPATH")
    with pytest.raises(ConfigError, match=r"rollout.vllm.python: .* is no Python interpreter that has vLLM"):
        fake.server().check()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match=r"rollout.vllm.python: .*text is no Python interpreter"):
        fake.server(python=str(tmp_path / "text")).check()
    with pytest.raises(ConfigError, match=r"no Python interpreter at .*: run `make install-vllm`"):
        fake.server(python=str(tmp_path / "none")).check()
    with pytest.raises(ConfigError, match=r"vllm.python and vllm.arguments start one of our own"):
        config(url="http://127.0.0.1:1", arguments=["--x"])
