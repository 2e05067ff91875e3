"""Prometheus metrics of a server: calls, sandboxes, requests, the process.

Labels have few values: names of existing tools, never values from requests, never callers.
docs/serving.md lists every metric.
"""

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

from toolkiln.errors import ToolkilnError
from toolkiln.execution.call_events import CallObserver, RunningCall
from toolkiln.fleet.delivery import WorkerMetrics
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result
from toolkiln.model.spec import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.metrics_core import Metric

_MAX_TOOL_LABELS = 1000
"""Limits the number of series: agents may write any number of tools."""
_OTHER, _UNKNOWN = "(other)", "(unknown)"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics(CallObserver):
    """The metrics of one server, in their own registry."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._calls = Counter(
            "toolkiln_tool_calls",
            "Finished calls.",
            ("tool", "outcome", "surface"),
            registry=registry,
        )
        self._seconds = Histogram(
            "toolkiln_tool_call_duration_seconds",
            "Duration of calls, from request to result.",
            ("tool",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "toolkiln_tool_calls_in_flight", "Calls in progress.", registry=registry
        )
        self._requests = Counter(
            "toolkiln_http_requests", "Requests with a response.", ("method", "status"),
            registry=registry,
        )  # fmt: skip
        self._active = Gauge(
            "toolkiln_http_requests_in_flight", "Requests in progress.", registry=registry
        )
        self._served = Gauge("toolkiln_tools", "Served tools.", registry=registry)
        ProcessCollector(registry=registry)
        self._tools: set[str] = set()
        self.calls_in_flight = 0
        # Looking up a series by its labels costs more than incrementing it.
        self._count = cache(self._calls.labels)
        self._observe = cache(self._seconds.labels)
        self._count_request = cache(self._requests.labels)

    def watch(self, kiln: Kiln) -> "Callable[[], None]":
        """Count the tools and calls of a Kiln; returns a function that unsubscribes."""
        self._served.set_function(lambda: _count_tools(kiln))
        self.registry.register(_SandboxCollector(kiln))
        return kiln.engine.events.subscribe(self, passive=True)

    def watch_worker(self, worker_metrics: "Callable[[], WorkerMetrics]") -> None:
        """Add the metrics of a fleet worker."""
        self.registry.register(_WorkerCollector(worker_metrics))

    def watch_requests(self, active: "Callable[[], int]") -> None:
        """Add the number of requests in progress."""
        self._active.set_function(active)

    def count_request(self, method: str, status: int) -> None:
        """Count a response."""
        label = method if method in _METHODS else _OTHER
        self._count_request(label, str(status)).inc()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        self._in_flight.set(self.calls_in_flight)
        return generate_latest(self.registry)

    def started(self, _: RunningCall, /) -> None:
        """Count a call in progress."""
        self.calls_in_flight += 1

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """Count a finished call."""
        self.calls_in_flight -= 1
        tool = self._label(call.spec)
        outcome = "cancelled" if result is None else result.status.value
        self._count(tool, outcome, call.call.surface).inc()
        self._observe(tool).observe(call.duration)

    def _label(self, spec: ToolSpec | None) -> str:
        if spec is None:
            return _UNKNOWN
        if spec.name in self._tools or len(self._tools) < _MAX_TOOL_LABELS:
            self._tools.add(spec.name)
            return spec.name
        return _OTHER


def _count_tools(kiln: Kiln) -> int:
    try:
        return len(kiln.services.registry.tools)
    except ToolkilnError:  # nothing is served; `/readyz` says why
        return 0


class _WorkerCollector(Collector):
    def __init__(self, worker_metrics: "Callable[[], WorkerMetrics]") -> None:
        self._worker_metrics = worker_metrics

    def collect(self) -> "Iterator[Metric]":
        metrics = self._worker_metrics()
        pool, counts = (metrics.pool,), metrics.counts
        for name, text, number in (
            ("queue_calls", "Queued calls.", metrics.waiting),
            ("queue_oldest_seconds", "Age of the oldest queued call.", metrics.oldest),
        ):
            gauge = GaugeMetricFamily(f"toolkiln_fleet_{name}", text, labels=("pool",))
            gauge.add_metric(pool, number)
            yield gauge
        for name, text, count in (
            ("calls_started", "Calls that this worker started.", counts.started),
            ("calls_lost", "Calls that this worker ended as lost.", counts.lost),
            ("calls_requeued", "Calls that this worker requeued.", counts.requeued),
            ("calls_poison", "Calls that this worker moved to the dead letters.", counts.poison),
            ("reconnects", "Reconnections to Redis.", counts.reconnects),
        ):
            counter = CounterMetricFamily(f"toolkiln_fleet_{name}", text, labels=("pool",))
            counter.add_metric(pool, count)
            yield counter


class _SandboxCollector(Collector):
    def __init__(self, kiln: Kiln) -> None:
        self._engine = kiln.engine  # of the server's event loop; metrics are read in any thread

    def collect(self) -> "Iterator[Metric]":
        calls = GaugeMetricFamily(
            "toolkiln_sandbox_calls", "Calls in sandboxes.", labels=("mode", "state")
        )
        processes = GaugeMetricFamily(
            "toolkiln_sandbox_warm_processes",
            "Processes with an imported tool, busy or spare.",
            labels=("mode", "state"),
        )
        for load in self._engine.sandboxes.loads:
            calls.add_metric((load.mode, "running"), load.running)
            calls.add_metric((load.mode, "waiting"), load.waiting)
            processes.add_metric((load.mode, "busy"), load.workers - load.spare)
            processes.add_metric((load.mode, "spare"), load.spare)
        yield calls
        yield processes
