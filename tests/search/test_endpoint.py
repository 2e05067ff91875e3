"""The embedder for an endpoint, against a real server that answers well or badly."""

import json
import math
import socket
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.search.openai_embedder import OpenAIEmbedder

KEY = "sk-very-secret"
BOUND = 20.0


def vector(text: str) -> list[float]:
    """A vector with the length of its text."""
    return [float(len(text)), 1.0, 0.0]


def embeddings(question: dict[str, Any]) -> dict[str, Any]:
    """A proper answer."""
    texts = question["input"]
    return {"data": [{"index": i, "embedding": vector(t)} for i, t in enumerate(texts)]}


class Server(ThreadingHTTPServer):
    """Answers with `reply`, and records the requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Callable[[Handler, dict[str, Any]], None] = proper
        self.questions: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ended = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Some tests are about clients that disconnect early."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.questions.append(question)
        self.server.requests.append((self.path, dict(self.headers)))
        self.server.reply(self, question)

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        self.send(200, b"{}")

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def proper(handler: Handler, question: dict[str, Any]) -> None:
    handler.send(200, json.dumps(embeddings(question)).encode())


def answering(body: object, status: int = 200, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler, question: handler.send(status, raw, **headers)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.ended.set()
        running.shutdown()
        thread.join(BOUND)


def embedder(server: Server, **changes: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder(server.url, "small", 3, **{"key": KEY, **changes})


@pytest.fixture
def endpoint(server: Server) -> OpenAIEmbedder:
    return embedder(server)


def lengths(rows: np.ndarray) -> list[int]:
    """The lengths of the texts that these rows were made from."""
    return [round(row[0] / row[1]) for row in rows.tolist()]


def test_rows_are_unit_vectors_in_the_order_of_the_texts(endpoint: OpenAIEmbedder) -> None:
    rows = endpoint.embed(["four", "a"])

    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)
    assert lengths(rows) == [4, 1]


def test_a_request_has_the_model_the_key_and_the_path_of_the_api(
    server: Server, endpoint: OpenAIEmbedder
) -> None:
    endpoint.embed(["text"])
    OpenAIEmbedder(f"{server.url}/embeddings", "small", 3).embed(["text"])

    assert server.questions == [{"model": "small", "input": ["text"]}] * 2
    assert [path for path, _ in server.requests] == ["/v1/embeddings"] * 2
    keys = [headers.get("Authorization") for _, headers in server.requests]
    assert keys == [f"Bearer {KEY}", None]


def test_many_texts_are_sent_in_several_requests(server: Server, endpoint: OpenAIEmbedder) -> None:
    texts = ["x" * (n % 50 + 1) for n in range(150)]

    rows = endpoint.embed(texts)

    assert [len(q["input"]) for q in server.questions] == [64, 64, 22]
    assert lengths(rows) == [len(text) for text in texts]


def test_long_texts_are_truncated_and_spread_over_requests(
    server: Server, endpoint: OpenAIEmbedder
) -> None:
    endpoint.embed(["x" * 1_000_000] * 20)

    sizes = [sum(map(len, q["input"])) for q in server.questions]
    assert max(sizes) <= 100_000
    assert sum(len(q["input"]) for q in server.questions) == 20


def test_blank_texts_are_zeros_and_not_sent(server: Server, endpoint: OpenAIEmbedder) -> None:
    no_rows = endpoint.embed([])
    rows = endpoint.embed(["", "a\ud800\U0001f642", " \n"])

    assert no_rows.shape == (0, endpoint.dimensions)
    assert [row.any() for row in rows] == [False, True, False]
    assert [question["input"] for question in server.questions] == [["a?\U0001f642"]]


def test_vectors_in_another_order_are_reordered(server: Server, endpoint: OpenAIEmbedder) -> None:
    def backwards(handler: Handler, question: dict[str, Any]) -> None:
        data = embeddings(question)["data"][::-1]
        handler.send(200, json.dumps({"data": data}).encode())

    server.reply = backwards

    assert lengths(endpoint.embed(["a", "four", "xx"])) == [1, 4, 2]


def test_huge_numbers_keep_their_direction(server: Server, endpoint: OpenAIEmbedder) -> None:
    server.reply = answering({"data": [{"index": 0, "embedding": [3e300, 4e300, 0]}]})

    rows = endpoint.embed(["text"])

    assert rows[0].tolist() == pytest.approx([0.6, 0.8, 0])


def test_threads_get_their_own_answers(endpoint: OpenAIEmbedder) -> None:
    with ThreadPoolExecutor(8) as pool:
        rows = pool.map(lambda n: endpoint.embed(["x" * n])[0], range(1, 40))

    assert lengths(np.stack(list(rows))) == list(range(1, 40))


def one(embedding: object) -> dict[str, Any]:
    return {"data": [{"index": 0, "embedding": embedding}]}


NO_VECTORS: list[object] = [
    *(b"", b"<html>", b"[" * 100_000, [], "text", {}),
    *({"data": data} for data in (None, [], [1], [{"index": 0}], [{"embedding": [1.0]}])),
    {"data": [{"index": 1, "embedding": [1.0]}]},
    {"data": [{"index": [], "embedding": [1.0]}]},
    *map(one, ([], 1.0, "AACAPw==", ["1.0"], [True], [None], [[1.0]], [10**400], [math.nan])),
    b'{"data": [{"index": 0, "embedding": [1e999]}]}',
    *({"data": [{"index": n, "embedding": [1.0]} for n in (0, other)]} for other in (0, 1)),
]


@each_row(
    "body, reason",
    [*((body, "return") for body in NO_VECTORS), (one([1.0, 2.0]), "2 dimensions instead of 3")],
)
def test_a_response_without_a_vector_is_a_failure(
    server: Server, body: object, reason: str
) -> None:
    server.reply = answering(body)

    with pytest.raises(EmbeddingFailed, match=reason):
        embedder(server).embed(["text"])


def test_vectors_of_different_lengths_are_a_failure(server: Server) -> None:
    data = [{"index": n, "embedding": [1.0] * (n + 1)} for n in (0, 1)]
    server.reply = answering({"data": data})

    with pytest.raises(EmbeddingFailed):
        embedder(server).embed(["a", "b"])


@each_row(
    "status, requests",
    [*((status, 1) for status in (400, 401, 403, 404, 413, 204)), (429, 3)],
)
def test_only_a_temporary_status_is_retried(server: Server, status: int, requests: int) -> None:
    server.requests.clear()
    server.reply = answering(b"", status)

    with pytest.raises(EmbeddingFailed, match=str(status)):
        embedder(server).embed(["text"])

    assert len(server.requests) == requests


def test_a_retry_that_succeeds_gives_vectors(server: Server, endpoint: OpenAIEmbedder) -> None:
    def second_time(handler: Handler, question: dict[str, Any]) -> None:
        server.reply = proper
        handler.send(503, b"")

    server.reply = second_time

    assert endpoint.embed(["text"]).any()
    assert len(server.requests) == 2


@each_row("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server: Server, status: int) -> None:
    server.requests.clear()
    with Server() as other:
        server.reply = answering(b"", status, Location=f"{other.url}/embeddings")

        with pytest.raises(EmbeddingFailed, match="redirect"):
            embedder(server).embed(["text"])

    assert (len(server.requests), len(other.requests)) == (1, 0)


def test_a_port_without_a_listener_is_a_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

        with pytest.raises(EmbeddingFailed, match="cannot be reached"):
            OpenAIEmbedder(url, "small", 3).embed(["text"])


@each_row("host", ["no.such.host.invalid", "a..b", "x" * 70])
def test_a_host_that_does_not_exist_is_a_failure(host: str) -> None:
    with pytest.raises(EmbeddingFailed, match="cannot be reached"):
        OpenAIEmbedder(f"http://{host}/v1", "small", 3).embed(["text"])


def hang_up(handler: Handler, question: dict[str, Any]) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def keep_silent(handler: Handler, question: dict[str, Any]) -> None:
    handler.server.ended.wait(BOUND)


def drip(start: bytes) -> Any:
    def reply(handler: Handler, question: dict[str, Any]) -> None:
        handler.wfile.write(start)
        while not handler.server.ended.wait(0.05):
            handler.wfile.write(b"H")

    return reply


def flood(handler: Handler, question: dict[str, Any]) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not handler.server.ended.is_set():
        handler.wfile.write(b"[" * 1_000_000)


@pytest.mark.parametrize(
    ("reply", "timeout", "reason", "requests"),
    [
        (hang_up, BOUND, "cannot be reached", 3),
        (answering(b'{"data":', 200, **{"Content-Length": "500"}), 1, "did not return", 1),
        (keep_silent, 0.2, r"longer than 0\.2 s", 1),
        (drip(b""), 0.5, r"longer than 0\.5 s", 1),
        (drip(b"HTTP/1.1 200 OK\r\n\r\n"), 0.5, r"longer than 0\.5 s", 1),
        (flood, BOUND, "too large", 1),
    ],
    ids=["hang up", "incomplete", "silent", "slow status", "slow body", "endless body"],
)
def test_an_incomplete_slow_or_endless_response_is_a_failure(
    server: Server, reply: Any, timeout: float, reason: str, requests: int
) -> None:
    server.reply = reply

    with pytest.raises(EmbeddingFailed, match=reason):
        embedder(server, timeout=timeout).embed(["text"])

    assert len(server.requests) == requests


def test_a_failure_stops_requests_for_thirty_seconds(server: Server) -> None:
    now = 0.0
    endpoint = embedder(server, clock=lambda: now)
    server.reply = answering(b"", 401)
    with pytest.raises(EmbeddingFailed):
        endpoint.embed(["text"])
    server.reply = proper

    now = 29.0
    with pytest.raises(EmbeddingFailed, match="401"):
        endpoint.embed(["text"])
    requests = len(server.requests)
    now = 31.0

    assert endpoint.embed(["text"]).any()
    assert requests == 1


def test_a_rejected_text_does_not_stop_others(server: Server, endpoint: OpenAIEmbedder) -> None:
    server.reply = answering(b"", 400)
    with pytest.raises(EmbeddingFailed):
        endpoint.embed(["odd"])
    server.reply = proper

    assert endpoint.embed(["text"]).any()


@each_row(
    "url, key",
    [
        *((url, None) for url in ("", "localhost:8080", "ftp://host/v1", "file:///etc/passwd")),
        *((url, None) for url in ("http://", "http://[::1", "http://host:port/")),
        *((url, None) for url in ("http://host:99999/", "http://user:secret@host/v1")),
        *((url, None) for url in ("http://host/v1?key=secret", "http://h\u00f6st/v1")),
        ("http://host/v1 HTTP/1.1\r\nX: y", None),
        *(("http://host/v1", key) for key in ("sk-secret\n", "sk secret", "secret\u2026")),
        ("http://host/v1", "secret\x00"),
    ],
)
def test_an_invalid_url_or_key_is_refused_without_showing_it(url: str, key: str | None) -> None:
    with pytest.raises(InputError) as caught:
        OpenAIEmbedder(url, "small", 3, key=key)

    message = "".join(traceback.format_exception(caught.value)[-1:])
    assert "secret" not in f"{message} {caught.value} {caught.value.hint}"


@each_row("status", [200, 302, 400, 401, 503])
def test_the_key_is_in_no_error_even_if_the_server_repeats_it(server: Server, status: int) -> None:
    endpoint = embedder(server)
    echo = {"error": {"message": f"wrong key: {KEY}"}}
    server.reply = answering(echo, status, Location=f"http://{KEY}/")

    with pytest.raises(EmbeddingFailed) as caught:
        endpoint.embed(["text"])

    shown = "".join(traceback.format_exception(caught.value)) + str(caught.value.hint)
    assert KEY not in shown + repr(endpoint) + endpoint.name


def test_names_differ_for_models_and_urls() -> None:
    urls, models = ("http://a", "http://b"), ("m", "n")

    names = {OpenAIEmbedder(url, model, 3).name for url in urls for model in models}

    assert len(names) == 4
