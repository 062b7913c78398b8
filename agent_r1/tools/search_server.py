"""A search server by URL, in the retrieval interface of Search-R1 (arXiv 2503.09516), as a finder.

    POST {"queries": ["..."], "topk": 3, "return_scores": true}
    200  {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"}, "score": 1.2}, ...]]}

Documents may also stand there without "document" around them, and have "title" and "text" instead of "contents".
"""

from __future__ import annotations

import json
import time

import httpx

from agent_r1.corpus import title_and_text
from agent_r1.errors import ConfigError, DataError
from agent_r1.questions.items import Value
from agent_r1.questions.passages import passage_id
from agent_r1.questions.records import Passage
from agent_r1.tools.finder import NothingFoundError

ANSWER_BYTES = 4 * 2**20
PAUSES = (0.2, 1.0)  # seconds before each further try, where the server fails or hangs up


class ServerFailedError(NothingFoundError):
    """The server did not answer, or in another form than the one above."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"error: the search server failed: {reason}"[:300])
        self.reason = reason


class SearchServer:
    """A finder that asks a server. Whatever goes wrong there is a ServerFailedError with a short reason.

    Proxies of the environment are not used, and redirects not followed: questions go to `url` and nowhere else.
    """

    def __init__(self, url: str, timeout: float) -> None:
        """`timeout` is in seconds, for one try. ConfigError where the URL is none."""
        self._timeout = timeout
        try:
            self._url = httpx.URL(url)
            self._client = httpx.Client(
                timeout=timeout,
                trust_env=False,
                follow_redirects=False,
                verify=self._url.scheme == "https",  # certificates take time to read
                headers={"Accept-Encoding": "identity"},  # so that the bytes that come are those that are counted
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"search.url: {url}: {error}") from error

    def find(self, query: str, results: int) -> list[Passage]:
        """The server's passages, in its order."""
        sent = query.encode("utf-8", "replace").decode()  # a model may write half of a surrogate pair
        answer = self._ask(json.dumps({"queries": [sent], "topk": results, "return_scores": True}).encode())
        try:
            found = _passages(answer)
        except (DataError, ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, DataError) else "no JSON"
            raise ServerFailedError(f"its answer cannot be read: {reason}") from error
        if not found:
            raise NothingFoundError("no passage found")
        return found[:results]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, body: bytes) -> bytes:
        for pause in (*PAUSES, None):
            try:
                return self._post(body)
            except httpx.TimeoutException:
                raise ServerFailedError(f"no answer within {self._timeout:g} seconds") from None
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            except httpx.HTTPStatusError as error:
                reason = f"status {error.response.status_code}"
                if not error.response.is_server_error:
                    raise ServerFailedError(reason) from None
            if pause is None:
                raise ServerFailedError(reason)
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _post(self, body: bytes) -> bytes:
        """The bytes of an answer. TimeoutException also where they drip in for longer than the timeout."""
        deadline = time.monotonic() + self._timeout
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise httpx.HTTPStatusError("", request=response.request, response=response)
            content = bytearray()
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > ANSWER_BYTES:
                    raise ServerFailedError(f"its answer is longer than {ANSWER_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("")
        return bytes(content)


def check(url: str, timeout: float) -> None:
    """Ask the server for one passage. ConfigError where it does not answer in the form above."""
    server = SearchServer(url, timeout)
    try:
        server.find("probe", 1)
    except ServerFailedError as error:
        raise ConfigError(f"search.url: {url} does not answer as a search server does: {error.reason}") from error
    except NothingFoundError:
        pass  # it answers, and has nothing for that word
    finally:
        server.close()


def _passages(answer: bytes) -> list[Passage]:
    """The passages for the first query. ValueError for what is no JSON, DataError for JSON of another form."""
    top = Value("the answer", (), json.loads(answer))
    lists = top["result"].elements()
    if len(lists) != 1:
        raise top["result"].error(f"{len(lists)} lists, expected 1, of the query's passages")
    found = []
    for item in lists[0].elements():
        title, text = title_and_text(item.get("document") or item)
        found.append(Passage(passage_id("server", title, text), title, text))
    return found
