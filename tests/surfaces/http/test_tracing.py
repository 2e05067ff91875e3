"""Traces, as a collector gets them from a server that has its address."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolkiln.config import Settings
from toolkiln.surfaces.tracing import is_traced

from ..conftest import BOUND, Shell
from .served import META, make_shell, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = TRACE[::-1]


class Collector(HTTPServer):
    """Keeps the bodies that it receives."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def all_spans(self) -> list[Any]:
        """Those of all traces."""
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def spans(self, trace: str = TRACE) -> dict[str, Any]:
        """Those of one trace, by their names."""
        return {span.name: span for span in self.all_spans() if span.trace_id.hex() == trace}


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector with the spans of a few calls, of a server and a process that have ended."""
    within = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        shell = make_shell(tmp_path_factory.mktemp("traced"), TOOLKILN_TELEMETRY=collector.url)
        with serving(shell) as served:
            served.call("announce", within, name="Ada")
            served.call("repeat", within, text=["no", "text"])
            served.ask("POST", "/v1/tools/made_up/call", {"arguments": {}})
            served.call_over_mcp("linger", within, name="mcp", seconds=0)
            assert served.end() == 0
        call_over_stdio(shell, "greet", name="Eve")
        collector.shutdown()
        thread.join(BOUND)
        yield collector


def call_over_stdio(shell: Shell, tool: str, **arguments: Any) -> None:
    """Call a tool of `toolkiln mcp`, and let it end."""
    meta = {**META, "traceparent": f"00-{OTHER}-{PARENT}-01"}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with shell.start("mcp", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        assert "result" in json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(BOUND) == 0


def attributes(span: Any) -> dict[str, str]:
    return {item.key: item.value.string_value for item in span.attributes}


def test_a_call_is_a_span_within_the_trace_of_its_request(collector: Collector) -> None:
    spans = collector.spans()
    span, inner = spans["execute_tool announce"], spans["execute_tool greet"]

    found = attributes(span)

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert inner.parent_span_id == span.span_id
    assert found.pop("gen_ai.tool.call.id")
    assert found == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "announce",
        "gen_ai.tool.type": "function",
        "toolkiln.outcome": "ok",
        "toolkiln.surface": "http",
    }


def test_a_call_over_mcp_has_its_parent_in_meta(collector: Collector) -> None:
    over_http = collector.spans()["execute_tool linger"]
    (over_stdio,) = collector.spans(OTHER).values()

    assert over_stdio.name == "execute_tool greet"
    for span in (over_http, over_stdio):
        assert span.parent_span_id.hex() == PARENT
        assert attributes(span)["toolkiln.surface"] == "mcp"


def test_spans_have_neither_arguments_nor_made_up_names(collector: Collector) -> None:
    sent = b"".join(collector.bodies)

    assert sent
    assert not [word for word in (b"Ada", b"Eve", b"made_up") if word in sent]


def test_nothing_is_traced_without_an_endpoint() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}

    assert not is_traced(Settings())
    assert is_traced(Settings(telemetry="http://127.0.0.1:4318"))
    assert is_traced(Settings(environ=endpoint))
    assert not is_traced(Settings(environ={**endpoint, "OTEL_SDK_DISABLED": "true"}))
