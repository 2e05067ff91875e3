"""What is measured of a server, for Prometheus: calls, the sandbox, requests, the process.

Labels have few values: names of tools that exist, never what a request says, and never who
made it. docs/serving.md lists every metric.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from toolkiln.app import Kiln, WorkerFigures
from toolkiln.model import Call, Result, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.metrics_core import Metric

_MOST_TOOLS = 1000
"""Tools that have series of their own; agents may write any number."""
_OTHER, _UNKNOWN = "(other)", "(unknown)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._calls = Counter(
            "toolkiln_tool_calls",
            "Calls that ended.",
            ("tool", "outcome", "surface"),
            registry=registry,
        )
        self._seconds = Histogram(
            "toolkiln_tool_call_duration_seconds",
            "How long calls took, from the request to the result.",
            ("tool",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "toolkiln_tool_calls_in_flight", "Calls that have not ended.", registry=registry
        )
        self._requests = Counter(
            "toolkiln_http_requests", "Requests that were answered.", ("method", "status"),
            registry=registry,
        )  # fmt: skip
        self._active = Gauge(
            "toolkiln_http_requests_in_flight", "Requests being answered.", registry=registry
        )
        ProcessCollector(registry=registry)
        self._tools: set[str] = set()
        self.calls_in_flight = 0
        # Looking up a series by its labels costs more than counting.
        self._count = cache(self._calls.labels)
        self._observe = cache(self._seconds.labels)
        self._count_request = cache(self._requests.labels)

    def watch(self, kiln: Kiln) -> "Callable[[], None]":
        """Count the calls of a Kiln; what is returned ends that."""
        self.registry.register(_Sandbox(kiln))
        return kiln.engine.gateway.listen(self._begin)

    def watch_worker(self, figures: "Callable[[], WorkerFigures]") -> None:
        """Show what a worker of a fleet measures."""
        self.registry.register(_Worker(figures))

    def watch_requests(self, active: "Callable[[], int]") -> None:
        """Show how many requests are being answered."""
        self._active.set_function(active)

    def count_request(self, method: str, status: int) -> None:
        """Count a request that was answered."""
        known = method if method in _METHODS else _OTHER
        self._count_request(known, str(status)).inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        self._in_flight.set(self.calls_in_flight)
        return generate_latest(self.registry)

    def _begin(self, call: Call) -> "Callable[[ToolSpec | None, Result | None], None]":
        started = time.perf_counter()
        self.calls_in_flight += 1

        def end(spec: ToolSpec | None, result: Result | None) -> None:
            self.calls_in_flight -= 1
            tool = self._label(spec)
            outcome = "cancelled" if result is None else result.status.value
            self._count(tool, outcome, call.surface).inc()
            self._observe(tool).observe(time.perf_counter() - started)

        return end

    def _label(self, spec: ToolSpec | None) -> str:
        if spec is None:
            return _UNKNOWN
        if spec.name in self._tools or len(self._tools) < _MOST_TOOLS:
            self._tools.add(spec.name)
            return spec.name
        return _OTHER


class _Worker(Collector):
    """The queue of a worker's pool, and what became of calls at this worker."""

    def __init__(self, figures: "Callable[[], WorkerFigures]") -> None:
        self._figures = figures

    def collect(self) -> "Iterator[Metric]":
        found = self._figures()
        pool, counts = (found.pool,), found.counts
        for name, text, number in (
            ("queue_calls", "Calls that wait in the queue.", found.waiting),
            ("queue_oldest_seconds", "How long the first of them has waited.", found.oldest),
        ):
            gauge = GaugeMetricFamily(f"toolkiln_fleet_{name}", text, labels=("pool",))
            gauge.add_metric(pool, number)
            yield gauge
        for name, text, count in (
            ("calls_started", "Calls that this worker began.", counts.started),
            ("calls_lost", "Calls that this worker ended as lost.", counts.lost),
            ("calls_requeued", "Calls that this worker handed on.", counts.requeued),
            ("calls_poison", "Calls that this worker gave up.", counts.poison),
            ("reconnects", "Connections to Redis that were made again.", counts.reconnects),
        ):
            counter = CounterMetricFamily(f"toolkiln_fleet_{name}", text, labels=("pool",))
            counter.add_metric(pool, count)
            yield counter


class _Sandbox(Collector):
    """How busy the sandbox is, asked for when somebody wants to know."""

    def __init__(self, kiln: Kiln) -> None:
        self._engine = kiln.engine  # that of the loop that serves; metrics come from any

    def collect(self) -> "Iterator[Metric]":
        calls = GaugeMetricFamily(
            "toolkiln_sandbox_calls", "Calls in the sandbox.", labels=("mode", "state")
        )
        processes = GaugeMetricFamily(
            "toolkiln_sandbox_warm_processes",
            "Processes that have imported their tool: busy, or spare.",
            labels=("mode", "state"),
        )
        for load in self._engine.sandboxes.loads:
            calls.add_metric((load.mode, "running"), load.running)
            calls.add_metric((load.mode, "waiting"), load.waiting)
            processes.add_metric((load.mode, "busy"), load.workers - load.spare)
            processes.add_metric((load.mode, "spare"), load.spare)
        yield calls
        yield processes
