"""Traces for OpenTelemetry: one span for each call, by its conventions for generative AI.

A span says which tool ran, how it ended and what it is part of: never arguments, results,
messages of errors or who made the call. Nothing is imported and nothing costs anything
unless a collector is configured. What is called over MCP finds its parent in `_meta` by
the SDK's own doing, what is called over HTTP in the header `traceparent`, and what a worker
runs for a fleet in the envelope of the call.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from toolkiln.app import Kiln
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.model import Call, Result, Status, ToolSpec

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PARENT = ("traceparent", "tracestate")


def is_traced(settings: Settings) -> bool:
    """Whether there is a collector to tell."""
    if settings.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return bool(settings.telemetry or any(settings.environ.get(name) for name in _ENDPOINTS))


def exporter(settings: Settings) -> "SpanExporter":
    """What sends spans to the collector that is configured.

    Raises:
        InputError: the packages for it are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise InputError(
            "traces are asked for, but the packages for them are not installed",
            hint="install `toolkiln[telemetry]`, or unset `telemetry` and OTEL_EXPORTER_OTLP_*",
        ) from None
    if settings.telemetry:
        return OTLPSpanExporter(endpoint=f"{settings.telemetry.rstrip('/')}/v1/traces")
    return OTLPSpanExporter()  # which reads the variables itself


class Tracing:
    """The spans of one process that serves."""

    def __init__(self, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # A collector that is away is told of once, when spans are lost, not at every attempt.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "toolkiln"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("toolkiln")

    @asynccontextmanager
    async def watching(self, kiln: Kiln) -> AsyncIterator[None]:
        """Make spans of a Kiln's calls meanwhile; at the end what is left is sent.

        A collector that does not answer is not waited for long.
        """
        forget = kiln.engine.gateway.listen(self._begin)
        try:
            yield
        finally:
            forget()
            await asyncio.to_thread(self._provider.shutdown)

    @contextmanager
    def within(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Make what happens meanwhile part of the trace that headers name, if they do."""
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {name: headers[name] for name in _PARENT if name in headers}
        token = context.attach(TraceContextTextMapPropagator().extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    @contextmanager
    def queued(self, traceparent: str, pool: str, waited: float) -> Iterator[None]:
        """Add a span for the seconds that a call waited in a queue; the call is its child."""
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

    def _begin(self, call: Call) -> Callable[[ToolSpec | None, Result | None], None]:
        from opentelemetry import context, trace

        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "toolkiln.surface": call.surface,
        }
        span = self._tracer.start_span("execute_tool", attributes=attributes)
        token = context.attach(trace.set_span_in_context(span))  # calls within it are its children

        def end(spec: ToolSpec | None, result: Result | None) -> None:
            if spec is not None:  # else the name is anything that a caller made up
                span.update_name(f"execute_tool {spec.name}")
                span.set_attribute("gen_ai.tool.name", spec.name)
            status = Status.CANCELLED if result is None else result.status
            span.set_attribute("toolkiln.outcome", status.value)
            if status is not Status.OK:
                error = result.error if result is not None else None
                span.set_attribute("error.type", error.code if error else status.value)
                span.set_status(trace.StatusCode.ERROR)
            span.end()
            context.detach(token)

        return end
