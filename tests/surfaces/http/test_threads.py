"""Threads of a server, shared among callers."""

import threading
from concurrent.futures import Future, wait

from toolkiln.surfaces.http.middleware import CALLER
from toolkiln.surfaces.http.server import CallerThreads

BOUND = 30.0


def submit(
    threads: CallerThreads, who: str, ready: threading.Event, done: list[str]
) -> Future[None]:
    """Work of a caller that waits for something, then notes whose it was."""

    def work() -> None:
        assert ready.wait(BOUND)
        done.append(who)

    token = CALLER.set(who)
    try:
        return threads.submit(work)
    finally:
        CALLER.reset(token)


def test_no_caller_gets_the_last_threads() -> None:
    ready, never = threading.Event(), threading.Event()
    ready.set()
    with CallerThreads(4, max_per_caller=3) as threads:
        blocked = [submit(threads, "ann", never, []) for _ in range(10)]

        done: list[str] = []
        submit(threads, "bob", ready, done).result(BOUND)
        submit(threads, "bob", ready, done).result(BOUND)
        unfinished = sum(not one.done() for one in blocked)
        never.set()

    assert done == ["bob", "bob"]
    assert unfinished == 10
    assert all(one.done() for one in blocked)


def test_callers_that_wait_take_turns() -> None:
    ready = threading.Event()
    done: list[str] = []
    with CallerThreads(1, max_per_caller=1) as threads:
        asked = ["ann"] * 4 + ["bob"] * 2 + ["eve"]
        works = [submit(threads, who, ready, done) for who in asked]
        ready.set()
        for work in works:
            work.result(BOUND)

    assert done == ["ann", "ann", "bob", "eve", "ann", "bob", "ann"]


def test_errors_reach_the_one_who_waits_and_the_thread_goes_on() -> None:
    def fail() -> None:
        raise ValueError("no")

    with CallerThreads(1, max_per_caller=1) as threads:
        failed = threads.submit(fail)

        assert isinstance(failed.exception(BOUND), ValueError)
        assert threads.submit(lambda: 5).result(BOUND) == 5


def test_work_that_waits_when_the_threads_are_shut_down_is_cancelled() -> None:
    ready = threading.Event()
    threads = CallerThreads(1, max_per_caller=1)
    first, second = (submit(threads, "ann", ready, []) for _ in range(2))

    threads.shutdown(wait=False)
    ready.set()

    wait([first, second], BOUND)

    assert not first.cancelled()
    assert second.cancelled()
