"""What operators see of a worker: metrics of its queue and calls, and traces across processes."""

import asyncio
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from surfaces.http.test_tracing import Collector
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.model.call import Status

from .servers import Server
from .workers import BOUND, Running, asking, code_of, tools_folder, until, worker

TOOLS = '''
from toolkiln import Context, tool

@tool
def nap(seconds: float, ctx: Context) -> str:
    """Sleep, which must not happen twice."""
    import time
    ctx.report_progress(0, None, "begun")
    time.sleep(seconds)
    return "slept"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return tools_folder(tmp_path, nap=TOOLS)


def measured(running: Running, start: int) -> dict[str, float]:
    """The fleet's metrics, by name, of the process that was the nth to start."""
    url = running.await_line("health ", start).split()[1].replace("readyz", "metrics")
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    found = re.findall(r'^toolkiln_fleet_(\w+)\{pool="default"\} (\S+)$', text, re.M)
    return {name: float(number) for name, number in found}


def once_waiting(running: Running, start: int, count: int) -> dict[str, float]:
    """As `measured`, once so many calls wait."""

    def look() -> dict[str, float] | None:
        found = measured(running, start)
        return found if found["queue_calls"] == count else None

    return until(look)


async def test_metrics_of_a_worker_show_its_queue_and_what_became_of_calls(
    server: Server, tools: Path
) -> None:
    options = ("--slots", "1", "--health-port", "0")
    with worker(server.url, tools, *options, lease=30) as running:
        async with asking(server) as asker:
            lost = await asker.start("nap", {"seconds": 60}, events=True)
            await asker.events_of(lost)
            waits = [await asker.start("nap", {"seconds": 0}) for _ in range(2)]
            busy = await asyncio.to_thread(once_waiting, running, 1, 2)

            os.kill(running.child(), signal.SIGKILL)

            assert code_of(await asker.end_of(lost)) == "lost"
            for call in waits:
                assert (await asker.end_of(call)).status is Status.OK
            await asyncio.to_thread(running.await_line, "ready", 2)
            after = await asyncio.to_thread(once_waiting, running, 2, 0)

    assert busy["calls_started_total"] == 1
    assert busy["queue_oldest_seconds"] > 0
    assert after["calls_started_total"] == 2
    assert after["calls_lost_total"] == 1
    assert after["queue_oldest_seconds"] == 0
    others = ("calls_requeued_total", "calls_poison_total", "reconnects_total")
    assert [after[name] for name in others] == [0, 0, 0]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join(BOUND)


async def test_one_trace_spans_caller_queue_and_worker(
    server: Server, tools: Path, tmp_path: Path, collector: Collector
) -> None:
    caller = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("caller")
    with worker(server.url, tools, TOOLKILN_TELEMETRY=collector.url) as running:
        settings = Settings(state=tmp_path / "caller")
        async with Kiln.connect(server.url, settings=settings) as kiln:
            with trace.use_span(caller):
                result = await kiln.call("nap", {"seconds": 0})
        await asyncio.to_thread(running.stop)
    context = caller.get_span_context()
    spans = collector.spans(f"{context.trace_id:032x}")
    queue, tool = spans["queue default"], spans["execute_tool nap"]

    assert result.status is Status.OK
    assert queue.parent_span_id.hex() == f"{context.span_id:016x}"
    assert tool.parent_span_id == queue.span_id
    assert queue.start_time_unix_nano <= queue.end_time_unix_nano <= tool.start_time_unix_nano
