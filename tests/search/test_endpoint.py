"""The embedder behind an endpoint, against a real server that answers well or badly."""

import json
import socket
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from toolkiln.errors import InputError
from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.search.openai_embedder import OpenAIEmbedder

KEY = "sk-very-secret"
BOUND = 20.0


def vector(text: str) -> list[float]:
    """A vector that tells which text it belongs to."""
    return [float(len(text)), 1.0, 0.0]


def embeddings(question: dict[str, Any]) -> dict[str, Any]:
    """A proper answer."""
    texts = question["input"]
    return {"data": [{"index": i, "embedding": vector(t)} for i, t in enumerate(texts)]}


class Server(ThreadingHTTPServer):
    """Answers with `reply`, and keeps what it was asked."""

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
        """A client that leaves early is what some tests are about."""


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
        """Tests are quiet."""


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


@pytest.fixture
def endpoint(server: Server) -> OpenAIEmbedder:
    return OpenAIEmbedder(server.url, "small", 3, key=KEY)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestAsking:
    def test_rows_have_length_one_and_the_order_of_the_texts(
        self, endpoint: OpenAIEmbedder
    ) -> None:
        rows = endpoint.embed(["four", "a"])

        assert rows.dtype == np.float32
        assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)
        assert (rows[:, 0] / rows[:, 1]).tolist() == pytest.approx([4, 1])

    def test_the_model_the_key_and_the_path_are_as_the_api_has_them(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        endpoint.embed(["text"])

        path, headers = server.requests[0]
        assert server.questions == [{"model": "small", "input": ["text"]}]
        assert path == "/v1/embeddings"
        assert headers["Authorization"] == f"Bearer {KEY}"

    def test_without_a_key_none_is_sent(self, server: Server) -> None:
        OpenAIEmbedder(f"{server.url}/embeddings", "small", 3).embed(["text"])

        path, headers = server.requests[0]
        assert path == "/v1/embeddings"
        assert "Authorization" not in headers

    def test_many_texts_go_in_several_requests(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        texts = ["x" * (n % 50 + 1) for n in range(150)]

        rows = endpoint.embed(texts)

        assert [len(q["input"]) for q in server.questions] == [64, 64, 22]
        assert (rows[:, 0] / rows[:, 1]).round().tolist() == [len(text) for text in texts]

    def test_long_texts_are_cut_and_spread_over_requests(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        endpoint.embed(["x" * 1_000_000] * 20)

        sizes = [sum(map(len, q["input"])) for q in server.questions]
        assert max(sizes) <= 100_000
        assert sum(len(q["input"]) for q in server.questions) == 20

    def test_blank_texts_are_zeros_and_not_sent(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        rows = endpoint.embed(["", "text", " \n"])

        assert [row.any() for row in rows] == [False, True, False]
        assert server.questions[0]["input"] == ["text"]

    def test_half_a_character_is_sent_as_a_question_mark(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        endpoint.embed(["a\ud800\U0001f642"])

        assert server.questions[0]["input"] == ["a?\U0001f642"]

    def test_no_texts_are_no_rows_and_no_request(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        rows = endpoint.embed([])

        assert rows.shape == (0, endpoint.dimensions)
        assert server.questions == []

    def test_answers_in_another_order_are_put_right(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        def backwards(handler: Handler, question: dict[str, Any]) -> None:
            data = embeddings(question)["data"][::-1]
            handler.send(200, json.dumps({"data": data}).encode())

        server.reply = backwards

        rows = endpoint.embed(["a", "four", "xx"])

        assert (rows[:, 0] / rows[:, 1]).tolist() == pytest.approx([1, 4, 2])

    def test_huge_numbers_keep_their_direction(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = answering({"data": [{"index": 0, "embedding": [3e300, 4e300, 0]}]})

        rows = endpoint.embed(["text"])

        assert rows[0].tolist() == pytest.approx([0.6, 0.8, 0])

    def test_threads_get_their_own_answers(self, endpoint: OpenAIEmbedder) -> None:
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda n: endpoint.embed(["x" * n])[0], range(1, 40)))

        assert [round(row[0] / row[1]) for row in rows] == list(range(1, 40))


class TestOddAnswers:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>",
            b"[" * 100_000,
            [],
            "text",
            {},
            {"data": None},
            {"data": []},
            {"data": [1]},
            {"data": [{"index": 0}]},
            {"data": [{"embedding": [1.0]}]},
            {"data": [{"index": 1, "embedding": [1.0]}]},
            {"data": [{"index": [], "embedding": [1.0]}]},
            {"data": [{"index": 0, "embedding": []}]},
            {"data": [{"index": 0, "embedding": 1.0}]},
            {"data": [{"index": 0, "embedding": "AACAPw=="}]},
            {"data": [{"index": 0, "embedding": ["1.0"]}]},
            {"data": [{"index": 0, "embedding": [True]}]},
            {"data": [{"index": 0, "embedding": [None]}]},
            {"data": [{"index": 0, "embedding": [[1.0]]}]},
            {"data": [{"index": 0, "embedding": [10**400]}]},
            {"data": [{"index": 0, "embedding": [float("nan")]}]},
            b'{"data": [{"index": 0, "embedding": [1e999]}]}',
            {"data": [{"index": n, "embedding": [1.0]} for n in (0, 1)]},
            {"data": [{"index": n, "embedding": [1.0]} for n in (0, 0)]},
        ],
        ids=map(str, range(25)),
    )
    def test_an_answer_that_holds_no_vectors_is_a_failure(
        self, server: Server, endpoint: OpenAIEmbedder, body: object
    ) -> None:
        server.reply = answering(body)

        with pytest.raises(EmbeddingFailed, match="return"):
            endpoint.embed(["text"])

    def test_vectors_of_different_lengths_are_a_failure(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = answering(
            {"data": [{"index": n, "embedding": [1.0] * (n + 1)} for n in (0, 1)]}
        )

        with pytest.raises(EmbeddingFailed):
            endpoint.embed(["a", "b"])

    def test_other_dimensions_are_a_failure(self, server: Server, endpoint: OpenAIEmbedder) -> None:
        server.reply = answering({"data": [{"index": 0, "embedding": [1.0, 2.0]}]})

        with pytest.raises(EmbeddingFailed, match="2 dimensions instead of 3"):
            endpoint.embed(["text"])

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 204])
    def test_a_lasting_status_is_a_failure_at_once(
        self, server: Server, endpoint: OpenAIEmbedder, status: int
    ) -> None:
        server.reply = answering(b"", status)

        with pytest.raises(EmbeddingFailed, match=str(status)):
            endpoint.embed(["text"])

        assert len(server.requests) == 1

    def test_a_passing_status_is_tried_again(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        def second_time(handler: Handler, question: dict[str, Any]) -> None:
            server.reply = proper
            handler.send(503, b"")

        server.reply = second_time

        rows = endpoint.embed(["text"])

        assert rows.any()
        assert len(server.requests) == 2

    def test_a_status_that_does_not_pass_is_tried_three_times(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = answering(b"", 429)

        with pytest.raises(EmbeddingFailed, match="429"):
            endpoint.embed(["text"])

        assert len(server.requests) == 3

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_not_followed(
        self, server: Server, endpoint: OpenAIEmbedder, status: int
    ) -> None:
        with Server() as other:
            server.reply = answering(b"", status, Location=f"{other.url}/embeddings")

            with pytest.raises(EmbeddingFailed, match="redirect"):
                endpoint.embed(["text"])

        assert (len(server.requests), len(other.requests)) == (1, 0)

    def test_a_port_that_nobody_listens_on_is_a_failure(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"

            with pytest.raises(EmbeddingFailed, match="cannot be reached"):
                OpenAIEmbedder(url, "small", 3).embed(["text"])

    @pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "x" * 70])
    def test_a_host_that_does_not_exist_is_a_failure(self, host: str) -> None:
        with pytest.raises(EmbeddingFailed, match="cannot be reached"):
            OpenAIEmbedder(f"http://{host}/v1", "small", 3).embed(["text"])

    def test_a_server_that_hangs_up_is_a_failure(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = lambda handler, question: handler.connection.shutdown(socket.SHUT_RDWR)

        with pytest.raises(EmbeddingFailed, match="cannot be reached"):
            endpoint.embed(["text"])

    def test_a_body_that_ends_too_early_is_a_failure(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = answering(b'{"data":', 200, **{"Content-Length": "500"})

        with pytest.raises(EmbeddingFailed):
            endpoint.embed(["text"])

    def test_silence_is_a_failure_when_the_time_is_over(self, server: Server) -> None:
        def silent(handler: Handler, question: dict[str, Any]) -> None:
            server.ended.wait(BOUND)

        server.reply = silent

        with pytest.raises(EmbeddingFailed, match=r"longer than 0\.2 s"):
            OpenAIEmbedder(server.url, "small", 3, timeout=0.2).embed(["text"])

        assert len(server.requests) == 1

    @pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
    def test_a_byte_now_and_then_does_not_prolong_the_time(
        self, server: Server, start: bytes
    ) -> None:
        def drip(handler: Handler, question: dict[str, Any]) -> None:
            handler.wfile.write(start)
            while not server.ended.wait(0.05):
                handler.wfile.write(b"H")

        server.reply = drip

        with pytest.raises(EmbeddingFailed, match=r"longer than 0\.5 s"):
            OpenAIEmbedder(server.url, "small", 3, timeout=0.5).embed(["text"])

    def test_a_body_without_an_end_is_a_failure(self, server: Server) -> None:
        def flood(handler: Handler, question: dict[str, Any]) -> None:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not server.ended.is_set():
                handler.wfile.write(b"[" * 1_000_000)

        server.reply = flood

        with pytest.raises(EmbeddingFailed, match="too large"):
            OpenAIEmbedder(server.url, "small", 3, timeout=BOUND).embed(["text"])


class TestResting:
    def test_after_a_failure_nothing_is_asked_until_the_rest_is_over(self, server: Server) -> None:
        clock = Clock()
        endpoint = OpenAIEmbedder(server.url, "small", 3, clock=clock)
        server.reply = answering(b"", 401)
        with pytest.raises(EmbeddingFailed):
            endpoint.embed(["text"])
        server.reply = proper

        clock.now = 29
        with pytest.raises(EmbeddingFailed, match="401"):
            endpoint.embed(["text"])
        asked = len(server.requests)
        clock.now = 31
        rows = endpoint.embed(["text"])

        assert asked == 1
        assert rows.any()

    def test_a_text_that_is_refused_does_not_stop_others(
        self, server: Server, endpoint: OpenAIEmbedder
    ) -> None:
        server.reply = answering(b"", 400)
        with pytest.raises(EmbeddingFailed):
            endpoint.embed(["odd"])
        server.reply = proper

        rows = endpoint.embed(["text"])

        assert rows.any()


class TestSettings:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:8080",
            "ftp://host/v1",
            "file:///etc/passwd",
            "http://",
            "http://[::1",
            "http://host:port/",
            "http://host:99999/",
            "http://user:secret@host/v1",
            "http://host/v1?key=secret",
            "http://host/v1 HTTP/1.1\r\nX: y",
            "http://h\u00f6st/v1",
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused_without_showing_it(self, url: str) -> None:
        with pytest.raises(InputError) as caught:
            OpenAIEmbedder(url, "small", 3)

        assert "secret" not in f"{caught.value} {caught.value.hint}"

    @pytest.mark.parametrize("key", ["sk-secret\n", "sk secret", "secret\u2026", "secret\x00"])
    def test_a_key_that_is_none_is_refused_without_showing_it(self, key: str) -> None:
        with pytest.raises(InputError) as caught:
            OpenAIEmbedder("http://host/v1", "small", 3, key=key)

        assert "secret" not in "".join(traceback.format_exception(caught.value)[-1:])

    @pytest.mark.parametrize("status", [200, 302, 400, 401, 503])
    def test_the_key_is_in_no_error_even_if_the_server_repeats_it(
        self, server: Server, endpoint: OpenAIEmbedder, status: int
    ) -> None:
        echo = {"error": {"message": f"wrong key: {KEY}"}}
        server.reply = answering(echo, status, Location=f"http://{KEY}/")

        with pytest.raises(EmbeddingFailed) as caught:
            endpoint.embed(["text"])

        told = "".join(traceback.format_exception(caught.value)) + str(caught.value.hint)
        assert KEY not in told + repr(endpoint) + endpoint.name

    def test_the_name_tells_models_and_places_apart(self) -> None:
        names = {
            OpenAIEmbedder(url, model, 3).name
            for url in ("http://a", "http://b")
            for model in ("m", "n")
        }

        assert len(names) == 4
