"""Ready-made queues that `bench.fleet` compares: a client and a worker of each.

Run as `python -m bench.queued QUEUE client|worker URL`, in an environment that has the queue and
need not have Toolkiln. The task adds one to a number. A client reads lines `CALLS IN_FLIGHT`,
makes the calls, checks each answer, and prints how many seconds they took and the median of one.

Every queue is set to be fast rather than as it comes: polling at a millisecond instead of
hundreds where that helps, 64 tasks at once, uvloop and hiredis where it can use them, no logs.
One worker process each.
"""

import asyncio
import json
import logging
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple

IN_FLIGHT = 64
_POLL = 0.001

Call = Callable[[int], Awaitable[Any]]
Turn = Callable[[int, int], list[float]]


class Queue(NamedTuple):
    """What to install, and the two sides."""

    packages: tuple[str, ...]
    client: Callable[[str], None]
    worker: Callable[[str], None]


def answer(turn: Turn) -> None:
    """Do what standard input asks for, turn by turn."""
    for line in sys.stdin:
        calls, in_flight = map(int, line.split())
        started = time.perf_counter()
        taken = turn(calls, in_flight)
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "median": statistics.median(taken)}), flush=True)


def answer_async(
    prepare: Callable[[], Awaitable[Call]], loop: asyncio.AbstractEventLoop | None = None
) -> None:
    """The same for a client that awaits its calls."""
    loop = loop or _loop()
    call = loop.run_until_complete(prepare())
    answer(lambda calls, in_flight: loop.run_until_complete(_turn(call, calls, in_flight)))


async def _turn(call: Call, calls: int, in_flight: int) -> list[float]:
    numbers, taken = iter(range(calls)), []

    async def one_after_another() -> None:
        for number in numbers:
            started = time.perf_counter()
            answered = await call(number)
            taken.append(time.perf_counter() - started)
            assert answered == number + 1, answered

    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    return taken


async def _is_answered(calling: Awaitable[Any]) -> bool:
    try:
        await calling
    except Exception:  # noqa: BLE001 - each has its own errors
        return False
    return True


def _answer_blocking(send: Callable[[int], Any], wait: Callable[[Any], Any]) -> None:
    """For a client without asyncio: the oldest call is waited for."""

    def turn(calls: int, in_flight: int) -> list[float]:
        under_way: deque[tuple[int, float, Any]] = deque()
        taken = []
        for number in range(calls + in_flight):
            if number >= in_flight and under_way:
                sent, started, handle = under_way.popleft()
                assert wait(handle) == sent + 1
                taken.append(time.perf_counter() - started)
            if number < calls:
                under_way.append((number, time.perf_counter(), send(number)))
        return taken

    answer(turn)


def _loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def _serve(start: Callable[[], Awaitable[Any]]) -> None:
    _loop().run_until_complete(start())


def _add_one(number: int) -> int:
    return number + 1


async def _add_one_async(number: int) -> int:
    return number + 1


# Celery: results come back by pub/sub; the client has no asyncio.


def _celery(url: str) -> tuple[Any, Any]:
    app = import_module("celery").Celery("bench", broker=url, backend=url)
    app.conf.update(
        worker_prefetch_multiplier=IN_FLIGHT,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        task_serializer="json",
    )
    return app, app.task(name="add_one")(_add_one)


def _celery_client(url: str) -> None:
    _, task = _celery(url)
    _answer_blocking(task.delay, lambda result: result.get(timeout=30))


def _celery_worker(url: str) -> None:
    app, _ = _celery(url)
    app.worker_main(
        ["worker", "--pool=solo", "--without-gossip", "--without-mingle", "-l", "fatal"]
    )


# arq: both sides poll.


def _arq(url: str) -> Any:
    return import_module("arq.connections").RedisSettings.from_dsn(url)


def _arq_client(url: str) -> None:
    async def prepare() -> Call:
        pool = await import_module("arq").create_pool(_arq(url))

        async def call(number: int) -> Any:
            job = await pool.enqueue_job("arq_task", number)
            return await job.result(poll_delay=_POLL, timeout=30)

        return call

    answer_async(prepare)


def _arq_worker(url: str) -> None:
    async def arq_task(_: Any, number: int) -> int:
        return number + 1

    async def start() -> None:
        worker = import_module("arq.worker").Worker(
            [import_module("arq").func(arq_task, name="arq_task")],
            redis_settings=_arq(url),
            poll_delay=_POLL,
            max_jobs=IN_FLIGHT,
            handle_signals=False,
        )
        await worker.main()

    _serve(start)


# SAQ: workers block on a list; the client polls for results.


def _saq_client(url: str) -> None:
    async def prepare() -> Call:
        queue = import_module("saq").Queue.from_url(url, max_concurrent_ops=IN_FLIGHT)
        await queue.connect()

        async def call(number: int) -> Any:
            return await queue.apply("saq_task", number=number, timeout=30, poll_interval=_POLL)

        # What a worker takes while it starts is now and then swept away as stuck.
        while not await _is_answered(call(0)):
            pass
        return call

    answer_async(prepare)


def _saq_worker(url: str) -> None:
    async def saq_task(_: Any, *, number: int) -> int:
        return number + 1

    async def start() -> None:
        saq = import_module("saq")
        queue = saq.Queue.from_url(url, max_concurrent_ops=IN_FLIGHT)
        await queue.connect()
        functions = [("saq_task", saq_task)]
        await saq.Worker(queue, functions=functions, concurrency=IN_FLIGHT).start()

    _serve(start)


# taskiq: its broker of streams; the client polls for results.


def _taskiq(url: str) -> tuple[Any, Any]:
    package = import_module("taskiq_redis")
    results = package.RedisAsyncResultBackend(url, keep_results=False)
    broker = package.RedisStreamBroker(url).with_result_backend(results)
    return broker, broker.register_task(_add_one_async, task_name="add_one")


def _taskiq_client(url: str) -> None:
    async def prepare() -> Call:
        broker, task = _taskiq(url)
        await broker.startup()

        async def call(number: int) -> Any:
            handle = await task.kiq(number)
            result = await handle.wait_result(check_interval=_POLL, timeout=30)
            return result.return_value

        return call

    answer_async(prepare)


def _taskiq_worker(url: str) -> None:
    async def start() -> None:
        broker, _ = _taskiq(url)
        run = import_module("taskiq.api").run_receiver_task
        await run(broker, max_async_tasks=IN_FLIGHT, run_startup=True)

    _serve(start)


# dramatiq: threads; results are lists that the client blocks on. Without its other middleware and
# with long waits between polls it is twice as fast as with polling at a millisecond; a single call
# takes longer for it. Of 1, 2, 4 and 8 threads, 4 were as good as any.


def _dramatiq(url: str) -> tuple[Any, Any]:
    dramatiq: Any = import_module("dramatiq")
    broker = import_module("dramatiq.brokers.redis").RedisBroker(url=url, middleware=[])
    backend = import_module("dramatiq.results.backends").RedisBackend(url=url)
    broker.add_middleware(import_module("dramatiq.results").Results(backend=backend))
    dramatiq.set_broker(broker)
    return broker, dramatiq.actor(store_results=True)(_add_one)


def _dramatiq_client(url: str) -> None:
    _, task = _dramatiq(url)
    _answer_blocking(task.send, lambda message: message.get_result(block=True, timeout=30_000))


def _dramatiq_worker(url: str) -> None:
    # Read when the package is imported.
    os.environ["dramatiq_queue_prefetch"] = str(IN_FLIGHT)  # noqa: SIM112 - its own name
    broker, _ = _dramatiq(url)
    import_module("dramatiq").Worker(broker, worker_timeout=100, worker_threads=4).start()
    threading.Event().wait()


# FastStream: a stream there, pub/sub back.


def _faststream_client(url: str) -> None:
    async def prepare() -> Call:
        broker = import_module("faststream.redis").RedisBroker(
            url, logger=None, max_connections=4 * IN_FLIGHT
        )
        await broker.start()

        async def call(number: int, seconds: float = 30) -> Any:
            answered = await broker.request(number, stream="calls", timeout=seconds)
            return await answered.decode()

        # What is asked before the worker's group is there is never answered.
        while not await _is_answered(call(0, seconds=1)):
            pass

        return call

    answer_async(prepare)


def _faststream_worker(url: str) -> None:
    async def start() -> None:
        package = import_module("faststream.redis")
        broker = package.RedisBroker(url, logger=None)
        stream = package.StreamSub("calls", group="workers", consumer="one", max_records=IN_FLIGHT)
        broker.subscriber(stream=stream)(_add_one_async)
        await broker.start()
        await asyncio.Event().wait()

    _serve(start)


QUEUES = {
    "Celery": Queue(("celery[redis]", "hiredis"), _celery_client, _celery_worker),
    "arq": Queue(("arq", "uvloop"), _arq_client, _arq_worker),
    "SAQ": Queue(
        ("saq[redis]", "typing-extensions", "hiredis", "uvloop"), _saq_client, _saq_worker
    ),
    "taskiq-redis": Queue(("taskiq-redis", "hiredis", "uvloop"), _taskiq_client, _taskiq_worker),
    "dramatiq": Queue(("dramatiq[redis]", "hiredis"), _dramatiq_client, _dramatiq_worker),
    "FastStream": Queue(
        ("faststream[redis]", "hiredis", "uvloop"), _faststream_client, _faststream_worker
    ),
}


if __name__ == "__main__":
    logging.disable()
    name, side, where = sys.argv[1:]
    queue = QUEUES[name]
    (queue.client if side == "client" else queue.worker)(where)
