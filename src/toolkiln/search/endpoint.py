"""The embedder behind an endpoint that speaks the embeddings part of the OpenAI API.

It asks one address, with one key, and believes nothing of the answer unchecked. It follows
no redirect, uses no proxy, keeps no connection and caches nothing; `vector_cache` does that.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Event, Lock, Timer
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from toolkiln.errors import InputError
from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.search.vectors import unit_rows

_MOST_TEXTS = 64
_MOST_CHARACTERS = 100_000
"""Texts, and characters in all, of one request."""
_LONGEST_TEXT = 8_000
"""Characters of a text that are sent: models take about 8,000 tokens, some fewer."""
_LARGEST_ANSWER = 32_000_000
_PAUSES = (0.2, 0.4)
"""Seconds before the second and the third attempt."""
_RESTING = 30.0
"""Seconds after a failure during which nothing is asked."""
_PASSING = {429, 500, 502, 503, 504}
"""Statuses that may be gone a moment later."""
_REFUSING = {400, 413, 422}
"""Statuses that say something of the texts, not of the endpoint."""
_HINTS = {
    401: "the key is wrong or missing",
    403: "the key does not allow this",
    404: "check the URL and the name of the model",
    429: "the endpoint is asked too often, or its quota is used up",
}


class Endpoint:
    """Embeds by asking an endpoint; safe to be used by several threads at once."""

    def __init__(
        self,
        url: str,
        model: str,
        dimensions: int,
        *,
        key: str | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask `model` at a URL such as `http://localhost:8080/v1`.

        Args:
            url: The base of the API; `/embeddings` is added unless it ends so.
            model: The name that the endpoint knows the model by.
            dimensions: How long its vectors are, known before it is asked.
            key: Sent as a bearer token, and shown nowhere.
            timeout: Seconds that one request may take as a whole.
            clock: Seconds, for the rest after a failure.

        Raises:
            InputError: The URL or the key cannot be used.
        """
        self._connect, self._path = _address(url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise InputError("the key of the embeddings endpoint has characters no key has")
            self._headers["Authorization"] = f"Bearer {key}"
        self._url, self._model, self._timeout, self._clock = url, model, timeout, clock
        self.dimensions = dimensions
        self._lock = Lock()
        self._resting_until = float("-inf")
        self._failure = ""

    @property
    def name(self) -> str:
        """The model and where it is."""
        return f"{self._model} at {self._url}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length one for each text; zeros for a blank one.

        Raises:
            EmbeddingFailed: The endpoint does not answer as it should, or did not a moment ago.
        """
        sent = [text.encode("utf-8", "replace").decode()[:_LONGEST_TEXT] for text in texts]
        filled = [index for index, text in enumerate(sent) if text.strip()]
        rows = np.zeros((len(sent), self.dimensions), np.float32)
        if filled:
            batches = _batches([sent[index] for index in filled])
            rows[filled] = np.concatenate([self._ask(batch) for batch in batches])
        return rows

    def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        with self._lock:
            if self._clock() < self._resting_until:
                raise EmbeddingFailed(f"{self._failure}, and rests a while")
        try:
            rows = _rows(self._post({"model": self._model, "input": texts}), len(texts))
            if rows.shape[1] != self.dimensions:
                raise _Odd(f"gave {rows.shape[1]} dimensions instead of {self.dimensions}")
            return rows
        except _Odd as odd:
            failure = f"the embeddings endpoint {self._url} {odd}"
            if odd.status not in _REFUSING:
                with self._lock:
                    self._failure, self._resting_until = failure, self._clock() + _RESTING
            raise EmbeddingFailed(failure, hint=_HINTS.get(odd.status)) from odd

    def _post(self, question: dict[str, Any]) -> bytes:
        """The body of the answer, asked for again if what went wrong may pass."""
        body = json.dumps(question).encode()
        for pause in _PAUSES:
            try:
                return self._post_once(body)
            except _Odd as odd:
                if not odd.passing:
                    raise
            time.sleep(pause)
        return self._post_once(body)

    def _post_once(self, body: bytes) -> bytes:
        connection = self._connect(self._timeout)
        late = Event()
        try:
            connection.connect()
            # A socket's timeout starts again with every byte: one bound for the whole.
            timer = Timer(self._timeout, _cut, (connection.sock, late))
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", self._path, body, self._headers)
                response = connection.getresponse()
                answer = response.read(_LARGEST_ANSWER + 1)
            finally:
                timer.cancel()
        except (OSError, HTTPException, UnicodeError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise _Odd(f"took longer than {self._timeout:g} s") from error
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise _Odd(f"cannot be reached ({reason})", passing=True) from error
        finally:
            connection.close()
        if late.is_set():
            raise _Odd(f"took longer than {self._timeout:g} s")
        if len(answer) > _LARGEST_ANSWER:
            raise _Odd("gave an answer without an end")
        if 300 <= response.status < 400:
            raise _Odd("leads elsewhere, where the key is not sent", response.status)
        if response.status != 200:
            passing = response.status in _PASSING
            raise _Odd(f"answered with status {response.status}", response.status, passing=passing)
        return answer


class _Odd(Exception):
    """An answer that cannot be used; the endpoint is the subject of the sentence."""

    def __init__(self, what: str, status: int = 0, *, passing: bool = False) -> None:
        super().__init__(what)
        self.status = status
        self.passing = passing


def _address(url: str) -> tuple[Callable[[float], HTTPConnection], str]:
    """How to connect, and the path to ask for."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"} or not url.isascii() or " " in url:
        raise InputError(
            "the URL of the embeddings endpoint cannot be used",
            hint="it looks like https://host/v1",
        )
    if parts.username or parts.password or parts.query:
        raise InputError(
            "the URL of the embeddings endpoint has more than a host and a path",
            hint="a key has a setting of its own",
        )
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    path = parts.path.rstrip("/")
    return (
        lambda timeout: kind(host, port, timeout=timeout),
        path if path.endswith("/embeddings") else f"{path}/embeddings",
    )


def _cut(connected: socket, late: Event) -> None:
    late.set()
    with suppress(OSError):  # it has ended by itself
        socket.shutdown(connected, SHUT_RDWR)


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        if len(batch) == _MOST_TEXTS or sum(map(len, batch)) + len(text) > _MOST_CHARACTERS:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _rows(answer: bytes, count: int) -> NDArray[np.float32]:
    """The vectors of an answer in the order of the texts."""
    try:
        data = json.loads(answer)["data"]
        vectors = {item["index"]: item["embedding"] for item in data}
        if len(data) != count or sorted(vectors) != list(range(count)):
            raise _Odd(f"gave other vectors than one for each of {count} texts")
        rows = np.array([vectors[index] for index in range(count)])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _Odd("gave something else than embeddings") from error
    if rows.ndim != 2 or not rows.shape[1] or rows.dtype.kind not in "fi":
        raise _Odd("gave vectors that are no lists of numbers")
    if not np.isfinite(rows).all():
        raise _Odd("gave vectors with numbers that are none")
    # Scaled before they are narrowed: what is huge in float64 has no square in float32.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return unit_rows((rows / np.where(largest > 0, largest, 1)).astype(np.float32))
