"""Embedder for an OpenAI-compatible embeddings endpoint.

It sends one key to one address and validates every response. It follows no redirects, uses
no proxy, keeps no connections and caches nothing; `CachedEmbedder` caches.
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
from toolkiln.search.bundled_embedder import unit_rows
from toolkiln.search.embedder import EmbeddingFailed

_MAX_BATCH_TEXTS = 64
_MAX_BATCH_CHARACTERS = 100_000
_MAX_TEXT = 8_000
"""Characters; longer texts are truncated. Models accept about 8,000 tokens, some fewer."""
_MAX_RESPONSE = 32_000_000
_RETRY_DELAYS = (0.2, 0.4)
_COOLDOWN = 30.0
"""Seconds without requests after a failure."""
_RETRIED_STATUSES = {429, 500, 502, 503, 504}
_TEXT_STATUSES = {400, 413, 422}
"""Statuses caused by the texts, not by the endpoint."""
_HINTS = {
    401: "check the key: it is wrong or missing",
    403: "check the permissions of the key",
    404: "check the URL and the name of the model",
    429: "wait, or check the rate limit and quota of the endpoint",
}


class OpenAIEmbedder:
    """Embeds texts with a remote endpoint; thread-safe."""

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
        """Use `model` at a URL such as `http://localhost:8080/v1`.

        Args:
            url: Base URL of the API; `/embeddings` is appended if missing.
            model: Name of the model at the endpoint.
            dimensions: Expected length of its vectors.
            key: Sent as a bearer token; never printed.
            timeout: Seconds for one whole request.
            clock: Time source of the cooldown after a failure.
        """
        self._connect, self._path = _address(url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise InputError("the key of the embeddings endpoint has invalid characters")
            self._headers["Authorization"] = f"Bearer {key}"
        self._url, self._model, self._timeout, self._clock = url, model, timeout, clock
        self.dimensions = dimensions
        self.name = f"{model} at {url}"
        self._lock = Lock()
        self._cooldown_until = float("-inf")
        self._failure = ""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector for each text; zeros for a blank one.

        Raises:
            EmbeddingFailed: The request failed, or a recent one did.
        """
        texts = [text.encode("utf-8", "replace").decode()[:_MAX_TEXT] for text in texts]
        not_blank = [index for index, text in enumerate(texts) if text.strip()]
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        if not_blank:
            batches = _batches([texts[index] for index in not_blank])
            rows[not_blank] = np.concatenate([self._embed_batch(batch) for batch in batches])
        return rows

    def _embed_batch(self, texts: list[str]) -> NDArray[np.float32]:
        with self._lock:
            if self._clock() < self._cooldown_until:
                raise EmbeddingFailed(f"{self._failure}; not retried for {_COOLDOWN:g} s")
        try:
            rows = _rows(self._post({"model": self._model, "input": texts}), len(texts))
            if rows.shape[1] != self.dimensions:
                raise _RequestFailed(
                    f"returned {rows.shape[1]} dimensions instead of {self.dimensions}"
                )
            return rows
        except _RequestFailed as error:
            failure = f"the embeddings endpoint {self._url} {error}"
            if error.status not in _TEXT_STATUSES:
                with self._lock:
                    self._failure, self._cooldown_until = failure, self._clock() + _COOLDOWN
            raise EmbeddingFailed(failure, hint=_HINTS.get(error.status)) from error

    def _post(self, request: dict[str, Any]) -> bytes:
        body = json.dumps(request).encode()
        for delay in _RETRY_DELAYS:
            try:
                return self._post_once(body)
            except _RequestFailed as error:
                if not error.is_temporary:
                    raise
            time.sleep(delay)
        return self._post_once(body)

    def _post_once(self, body: bytes) -> bytes:
        connection = self._connect(self._timeout)
        timed_out = Event()
        try:
            connection.connect()
            # A socket's timeout restarts with every byte; this one covers the whole request.
            timer = Timer(self._timeout, _shut_down, (connection.sock, timed_out))
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", self._path, body, self._headers)
                response = connection.getresponse()
                response_body = response.read(_MAX_RESPONSE + 1)
            finally:
                timer.cancel()
        except (OSError, HTTPException, UnicodeError) as error:
            if timed_out.is_set() or isinstance(error, TimeoutError):
                raise _RequestFailed(f"took longer than {self._timeout:g} s") from error
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise _RequestFailed(f"cannot be reached ({reason})", is_temporary=True) from error
        finally:
            connection.close()
        if timed_out.is_set():
            raise _RequestFailed(f"took longer than {self._timeout:g} s")
        if len(response_body) > _MAX_RESPONSE:
            raise _RequestFailed("sent a response that is too large")
        if 300 <= response.status < 400:
            raise _RequestFailed("sent a redirect, which is not followed", response.status)
        if response.status != 200:
            is_temporary = response.status in _RETRIED_STATUSES
            reason = f"responded with status {response.status}"
            raise _RequestFailed(reason, response.status, is_temporary=is_temporary)
        return response_body


class _RequestFailed(Exception):
    """A failed request; the message continues "the embeddings endpoint …"."""

    def __init__(self, reason: str, status: int = 0, *, is_temporary: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.is_temporary = is_temporary


def _address(url: str) -> tuple[Callable[[float], HTTPConnection], str]:
    """Return a function that creates connections, and the path of requests."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"} or not url.isascii() or " " in url:
        raise InputError(
            "the URL of the embeddings endpoint is invalid",
            hint="use a URL like https://host/v1",
        )
    if parts.username or parts.password or parts.query:
        raise InputError(
            "the URL of the embeddings endpoint may only have a host and a path",
            hint="set the key in its own setting",
        )
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    path = parts.path.rstrip("/")
    return (
        lambda timeout: kind(host, port, timeout=timeout),
        path if path.endswith("/embeddings") else f"{path}/embeddings",
    )


def _shut_down(connected: socket, timed_out: Event) -> None:
    timed_out.set()
    with suppress(OSError):  # already closed
        socket.shutdown(connected, SHUT_RDWR)


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        if (
            len(batch) == _MAX_BATCH_TEXTS
            or sum(map(len, batch)) + len(text) > _MAX_BATCH_CHARACTERS
        ):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _rows(response_body: bytes, count: int) -> NDArray[np.float32]:
    """Parse the vectors of a response, in the order of the texts."""
    try:
        data = json.loads(response_body)["data"]
        vectors = {item["index"]: item["embedding"] for item in data}
        if len(data) != count or sorted(vectors) != list(range(count)):
            raise _RequestFailed(f"did not return one vector for each of {count} texts")
        rows = np.array([vectors[index] for index in range(count)])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _RequestFailed("did not return embeddings") from error
    if rows.ndim != 2 or not rows.shape[1] or rows.dtype.kind not in "fi":
        raise _RequestFailed("returned vectors that are not lists of numbers")
    if not np.isfinite(rows).all():
        raise _RequestFailed("returned vectors with infinite numbers or NaN")
    # Scale before converting: squares of huge float64 numbers overflow float32.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return unit_rows((rows / np.where(largest > 0, largest, 1)).astype(np.float32))
