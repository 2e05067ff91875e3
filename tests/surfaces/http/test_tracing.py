"""Traces, as a collector gets them from a server that was told of it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolkiln.config import Settings
from toolkiln.surfaces.tracing import is_traced

from ..conftest import BOUND
from .served import make_shell, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(HTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> dict[str, Any]:
        """By their names."""
        return {
            span.name: span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join(BOUND)


def attributes(span: Any) -> dict[str, str]:
    return {item.key: item.value.string_value for item in span.attributes}


@pytest.mark.parametrize("name", ["TOOLKILN_TELEMETRY", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_calls_are_spans_within_the_trace_that_the_request_names(
    collector: Collector, tmp_path: Path, name: str
) -> None:
    shell = make_shell(tmp_path, **{name: collector.url})
    within = {"traceparent": f"00-{TRACE}-{PARENT}-01"}

    with serving(shell) as served:
        result = served.call("announce", within, name="Ada")
        served.call("greet", within, name=["not", "a", "text"])
        served.ask("POST", "/v1/tools/made_up/call", {"arguments": {}})
        code = served.end()

    spans = collector.spans()
    outer, inner = spans["execute_tool announce"], spans["execute_tool greet"]
    assert code == 0
    assert (outer.trace_id.hex(), outer.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(outer) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": result["call_id"],
        "gen_ai.tool.name": "announce",
        "gen_ai.tool.type": "function",
        "toolkiln.outcome": "ok",
        "toolkiln.surface": "http",
    }
    assert inner.trace_id.hex() == TRACE
    assert attributes(inner)["error.type"] == "invalid_arguments"
    assert not [body for body in collector.bodies if b"Ada" in body or b"made_up" in body]


def test_a_call_over_mcp_has_its_parent_in_meta(collector: Collector, tmp_path: Path) -> None:
    with serving(make_shell(tmp_path, TOOLKILN_TELEMETRY=collector.url)) as served:
        served.call_over_mcp("greet", {"traceparent": f"00-{TRACE}-{PARENT}-01"}, name="Ada")
        served.end()

    span = collector.spans()["execute_tool greet"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(span)["toolkiln.surface"] == "mcp"


def test_a_call_within_a_call_is_a_span_within_its_span(
    collector: Collector, tmp_path: Path
) -> None:
    with serving(make_shell(tmp_path, TOOLKILN_TELEMETRY=collector.url)) as served:
        served.call("announce", name="Ada")
        served.end()

    spans = collector.spans()
    assert spans["execute_tool greet"].parent_span_id == spans["execute_tool announce"].span_id


def test_nothing_is_traced_unless_somebody_says_where_to() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}

    assert not is_traced(Settings())
    assert is_traced(Settings(telemetry="http://127.0.0.1:4318"))
    assert is_traced(Settings(environ=endpoint))
    assert not is_traced(Settings(environ={**endpoint, "OTEL_SDK_DISABLED": "true"}))
