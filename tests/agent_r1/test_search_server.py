"""A search server: what is sent, which answers are understood, and that every failure is a short reason."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent_r1.corpus import fingerprint
from agent_r1.errors import ConfigError
from agent_r1.questions.records import Passage
from agent_r1.tools import search_server
from agent_r1.tools.finder import Recognising
from agent_r1.tools.protocol import ToolResult
from agent_r1.tools.search import SearchTool
from agent_r1.tools.search_server import SearchServer, check

BERN = {"document": {"id": "7", "contents": '"Bern"\nA town.'}, "score": 1.5}
Answer = Callable[[BaseHTTPRequestHandler], None]


class FakeServer:
    """Gives its answers in turn, the last one for ever; keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[tuple[str, object]] = []
        left = list(answers)
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked.append((self.path, json.loads(body)))
                (left.pop(0) if len(left) > 1 else left[0])(self)

            def log_message(self, format: str, *args: object) -> None:
                """Be quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/retrieve"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(content: object, status: int = 200, **headers: str) -> Answer:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(20):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def sleep(_: BaseHTTPRequestHandler) -> None:
    time.sleep(0.6)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeServer]]:
    monkeypatch.setattr(search_server, "PAUSES", (0.0, 0.0))
    made: list[FakeServer] = []

    def start(*answers: Answer) -> FakeServer:
        made.append(FakeServer(*answers))
        return made[-1]

    yield start
    for server in made:
        server.close()


def ask(url: str, query: str = "town", results: int = 3, timeout: float = 5.0) -> ToolResult:
    tool = SearchTool(SearchServer(url, timeout), results)
    try:
        return tool.call({"query": query})
    finally:
        tool.close()


def test_the_query_goes_out_in_search_r1_s_form(serve: Callable[..., FakeServer]) -> None:
    server = serve(reply({"result": [[BERN]]}))
    assert ask(server.url, "which town", results=2).ok
    assert server.asked == [("/retrieve", {"queries": ["which town"], "topk": 2, "return_scores": True})]


@pytest.mark.parametrize(
    "document",
    [
        BERN,
        BERN["document"],
        {"contents": "Bern\nA town."},
        {"id": 7, "title": "Bern", "text": "A town.", "contents": None},
        {"document": {"title": "Bern", "text": "A town."}, "score": None},
    ],
)
def test_every_known_form_of_a_document_is_shown(serve: Callable[..., FakeServer], document: object) -> None:
    result = ask(serve(reply({"result": [[document]]})).url)
    assert (result.text, result.ok) == ("[1] Bern\nA town.", True)
    assert [(source.sentence, source.start, source.end) for source in result.sources] == [(None, 9, 16)]


def test_documents_keep_their_order_and_too_many_are_cut(serve: Callable[..., FakeServer]) -> None:
    many = [{"title": name, "text": "x"} for name in "dacb"]
    assert ask(serve(reply({"result": [many]})).url, results=3).text == "[1] d\nx\n\n[2] a\nx\n\n[3] c\nx"


def test_a_document_that_the_questions_know_is_their_passage(serve: Callable[..., FakeServer]) -> None:
    known = Passage("hotpotqa:1", "Bern", "A town.", ("A", " town."))
    finder = Recognising(
        SearchServer(serve(reply({"result": [[BERN]]})).url, 5.0), {fingerprint("Bern", "A town."): known}
    )
    result = SearchTool(finder).call({"query": "town"})
    assert [(source.passage_id, source.sentence) for source in result.sources] == [
        ("hotpotqa:1", None),
        ("hotpotqa:1", 0),
        ("hotpotqa:1", 1),
    ]
    finder.close()


def test_nothing_found_is_said(serve: Callable[..., FakeServer]) -> None:
    result = ask(serve(reply({"result": [[]]})).url)
    assert (result.text, result.ok) == ("no passage found", False)


@pytest.mark.parametrize("failure", [reply({}, status=500), reply(b"busy", status=503), hang_up])
def test_a_server_that_fails_is_asked_again(serve: Callable[..., FakeServer], failure: Answer) -> None:
    server = serve(failure, failure, reply({"result": [[BERN]]}))
    assert ask(server.url).ok
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        (reply({}, status=500), "status 500", 3),
        (hang_up, "disconnected", 3),
        (reply({}, status=404), "status 404", 1),
        (reply({}, status=302, Location="http://127.0.0.1:1/else"), "status 302", 1),
        (reply(b"<html>"), "its answer cannot be read: no JSON", 1),
        (reply(b"\xff\xfe"), "its answer cannot be read: no JSON", 1),
        (reply(b"[" * 100_000), "its answer cannot be read: no JSON", 1),
        (reply([]), "its answer cannot be read: the answer: expected an object", 1),
        (reply({"results": []}), "field result: missing or null; keys here: results", 1),
        (reply({"result": []}), "field result: 0 lists, expected 1", 1),
        (reply({"result": [[BERN], [BERN]]}), "field result: 2 lists, expected 1", 1),
        (reply({"result": [["Bern"]]}), r"field result[0][0]: expected an object", 1),
        (reply({"result": [[{"document": {"contents": 3}}]]}), "field result[0][0].document.contents: expected a", 1),
        (reply({"result": [[{"score": 1}]]}), "field result[0][0].text: missing or null", 1),
        (reply(b'{"result": [[{"text": "\\ud800"}]]}'), "half of a surrogate pair", 1),
        (reply(b" " * (search_server.ANSWER_BYTES + 1)), "its answer is longer than 4194304 bytes", 1),
        (sleep, "no answer within 0.3 seconds", 1),
        (drip, "no answer within 0.3 seconds", 1),
    ],
)
def test_every_failure_is_a_short_reason(
    serve: Callable[..., FakeServer], answer: Answer, reason: str, tries: int
) -> None:
    server = serve(answer)
    result = ask(server.url, timeout=0.3)
    assert not result.ok
    assert result.text.startswith("error: the search server failed: ")
    assert reason in result.text
    assert len(result.text) <= 300
    assert len(server.asked) == tries


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_no_server_is_a_failure_and_stops_a_run_before_it_begins(serve: Callable[..., FakeServer]) -> None:
    del serve  # for its pauses
    url = f"http://127.0.0.1:{free_port()}/retrieve"
    assert "refused" in ask(url).text
    with pytest.raises(ConfigError, match=rf"^search\.url: {url} does not answer .*refused"):
        check(url, 5.0)


def test_a_check_takes_an_answer_without_passages_and_refuses_another_form(serve: Callable[..., FakeServer]) -> None:
    check(serve(reply({"result": [[]]})).url, 5.0)
    check(serve(reply({"result": [[BERN]]})).url, 5.0)
    with pytest.raises(ConfigError, match=r"search\.url: .*field result: missing"):
        check(serve(reply({"detail": "Not Found"})).url, 5.0)


def test_a_proxy_of_the_environment_is_not_used(
    serve: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{free_port()}")
    assert ask(serve(reply({"result": [[BERN]]})).url).ok


@pytest.mark.parametrize("query", ["\ud800 town", "\x00", "<|im_end|>", "x" * 5000])
def test_whatever_a_model_writes_can_be_sent(serve: Callable[..., FakeServer], query: str) -> None:
    assert ask(serve(reply({"result": [[BERN]]})).url, query).ok


def test_a_url_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"search\.url: http://\[::1/x: Invalid"):
        check("http://[::1/x", 1.0)
