"""OpenTelemetry tracing: one span per call, following the conventions for generative AI.

A span has the tool, the outcome and the parent span, never arguments, results, error messages
or the caller. OpenTelemetry is imported only if a collector is configured. The parent comes
from `_meta` over MCP (through the SDK), from the header `traceparent` over HTTP, and from the
envelope of the call in a fleet.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.execution.call_events import CallObserver, RunningCall
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Status

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PARENT_HEADERS = ("traceparent", "tracestate")


def is_traced(settings: Settings) -> bool:
    """Return whether a collector is configured."""
    if settings.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return bool(settings.telemetry or any(settings.environ.get(name) for name in _ENDPOINTS))


def exporter(settings: Settings) -> "SpanExporter":
    """Return the exporter for the configured collector.

    Raises:
        InputError: the OpenTelemetry packages are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise InputError(
            "tracing is configured, but its packages are not installed",
            hint="install `toolkiln[telemetry]`, or unset `telemetry` and OTEL_EXPORTER_OTLP_*",
        ) from None
    if settings.telemetry:
        return OTLPSpanExporter(endpoint=f"{settings.telemetry.rstrip('/')}/v1/traces")
    return OTLPSpanExporter()  # reads the environment variables itself


class Tracing(CallObserver):
    """The tracing of one server process."""

    def __init__(self, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # Log an unreachable collector when spans are lost, not at every attempt.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "toolkiln"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("toolkiln")
        self._spans: dict[RunningCall, tuple[Span, Token[Context]]] = {}

    @asynccontextmanager
    async def running(self, kiln: Kiln) -> AsyncIterator[None]:
        """Trace a Kiln's calls while the block runs, then send the remaining spans."""
        unsubscribe = kiln.engine.events.subscribe(self, passive=True)
        try:
            yield
        finally:
            unsubscribe()
            await asyncio.to_thread(self._provider.shutdown)

    @contextmanager
    def continue_trace(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Make the trace named by headers the current one while the block runs."""
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {name: headers[name] for name in _PARENT_HEADERS if name in headers}
        token = context.attach(TraceContextTextMapPropagator().extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    @contextmanager
    def queued(self, traceparent: str, pool: str, waited: float) -> Iterator[None]:
        """Add a span for the time that a call was queued; the call becomes its child."""
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        caller = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        now = time.time_ns()
        span = self._tracer.start_span(
            f"queue {pool}",
            caller,
            trace.SpanKind.CONSUMER,
            {"messaging.system": "redis", "messaging.destination.name": pool},
            start_time=now - round(waited * 1e9),
        )
        span.end(now)
        token = context.attach(trace.set_span_in_context(span, caller))
        try:
            yield
        finally:
            context.detach(token)

    def started(self, call: RunningCall, /) -> None:
        """Start the span of a call."""
        from opentelemetry import context, trace

        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": call.call.id,
            "gen_ai.tool.type": "function",
            "toolkiln.surface": call.call.surface,
        }
        span = self._tracer.start_span("execute_tool", attributes=attributes)
        token = context.attach(trace.set_span_in_context(span))  # nested calls are its children
        self._spans[call] = span, token

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """End the span of a call."""
        from opentelemetry import context, trace

        span, token = self._spans.pop(call)
        if call.spec is not None:  # otherwise the caller made up the name
            span.update_name(f"execute_tool {call.spec.name}")
            span.set_attribute("gen_ai.tool.name", call.spec.name)
        status = Status.CANCELLED if result is None else result.status
        span.set_attribute("toolkiln.outcome", status.value)
        if status is not Status.OK:
            error = result.error if result is not None else None
            span.set_attribute("error.type", error.code if error else status.value)
            span.set_status(trace.StatusCode.ERROR)
        span.end()
        context.detach(token)
