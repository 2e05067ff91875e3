"""Traces, as a collector gets them from a server that was told of it."""

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
from .served import make_shell, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OTHER = TRACE[::-1]


class Collector(HTTPServer):
    """Keeps what it is sent."""

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
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector that was told of a few calls, by a server that has ended."""
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
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": f"00-{OTHER}-{PARENT}-01",
    }
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


def test_a_call_is_a_span_within_the_trace_that_the_request_names(told: Collector) -> None:
    span = told.spans()["execute_tool announce"]

    found = attributes(span)

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert found.pop("gen_ai.tool.call.id")
    assert found == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "announce",
        "gen_ai.tool.type": "function",
        "toolkiln.outcome": "ok",
        "toolkiln.surface": "http",
    }


def test_a_call_within_a_call_is_a_span_within_its_span(told: Collector) -> None:
    inner, outer = told.spans()["execute_tool greet"], told.spans()["execute_tool announce"]

    assert inner.parent_span_id == outer.span_id


def test_a_call_over_mcp_has_its_parent_in_meta(told: Collector) -> None:
    span = told.spans()["execute_tool linger"]

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(span)["toolkiln.surface"] == "mcp"


def test_a_call_over_stdio_is_told_as_well(told: Collector) -> None:
    (span,) = told.spans(OTHER).values()

    assert (span.name, span.parent_span_id.hex()) == ("execute_tool greet", PARENT)
    assert attributes(span)["toolkiln.surface"] == "mcp"


def test_a_call_that_did_not_end_well_says_of_which_kind_that_is(told: Collector) -> None:
    span = told.spans()["execute_tool repeat"]

    assert attributes(span)["error.type"] == "invalid_arguments"
    assert attributes(span)["toolkiln.outcome"] == "invalid"


def test_neither_arguments_nor_names_that_somebody_made_up_are_told(told: Collector) -> None:
    assert told.bodies
    assert not [
        body for body in told.bodies if any(word in body for word in (b"Ada", b"Eve", b"made_up"))
    ]


def test_a_call_of_an_unknown_tool_is_a_span_without_the_name(told: Collector) -> None:
    (span,) = [span for span in told.all_spans() if span.name == "execute_tool"]

    assert attributes(span)["error.type"] == "unknown_tool"
    assert "gen_ai.tool.name" not in attributes(span)


def test_nothing_is_traced_unless_somebody_says_where_to() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}

    assert not is_traced(Settings())
    assert is_traced(Settings(telemetry="http://127.0.0.1:4318"))
    assert is_traced(Settings(environ=endpoint))
    assert not is_traced(Settings(environ={**endpoint, "OTEL_SDK_DISABLED": "true"}))
