"""Synchronous methods: from many threads, beside an event loop, after a fork, while closing."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from toolkiln import Kiln, tool
from toolkiln.config import Settings
from toolkiln.errors import BackendError, InputError
from toolkiln.model.audit import AuditFilter

BOUND = 60.0
"""Seconds that anything may take before a test gives up."""
TOOLS = '''
import time

def add(left: int, right: int = 2) -> int:
    """Add two numbers."""
    return left + right

def wait_long() -> None:
    """Wait for an hour."""
    print("waiting", flush=True)
    time.sleep(3600)
'''
KILN: list[Kiln] = []
LANGUAGE: ContextVar[str] = ContextVar("LANGUAGE", default="none")


@tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool
def add_twice(left: int) -> int:
    """Add two, twice."""
    once: int = KILN[-1].call_sync("add", {"left": left}).value
    again: int = KILN[-1].call_sync("add", {"left": once}).value
    return again


@tool
async def close_mine() -> None:
    """Close the Kiln that runs this."""
    await asyncio.to_thread(KILN[-1].close_sync)


@tool
async def interrupt() -> None:
    """Raise what asyncio lets through."""
    raise KeyboardInterrupt


@tool
async def tell_language() -> str:
    """Tell the language of the caller."""
    await asyncio.sleep(0)
    return LANGUAGE.get()


@tool
async def tell_thread() -> int:
    """Tell the thread of the event loop."""
    await asyncio.sleep(0)
    return threading.get_ident()


def make(folder: Path, functions: list[Callable[..., Any]] | None = None) -> Kiln:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "numbers.py").write_text(TOOLS)
    given = functions or [double, tell_language, tell_thread]
    return Kiln(tools, functions=given, settings=Settings(state=folder / "state"), dev=True)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What a function gives in so many threads that begin at the same time."""
    start = threading.Barrier(count)

    def run(number: int) -> Any:
        start.wait(BOUND)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return [done.result(BOUND) for done in [pool.submit(run, n) for n in range(count)]]


@pytest.fixture(scope="class")
def kiln(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiln]:
    functions: list[Callable[..., Any]] = [double, add_twice, interrupt, tell_language, tell_thread]
    with make(tmp_path_factory.mktemp("threads"), functions) as kiln:
        KILN.append(kiln)
        yield kiln


class TestThreads:
    def test_fifty_threads_make_twenty_calls_each(self, kiln: Kiln) -> None:
        def work(thread: int) -> list[int]:
            numbers = range(thread * 20, thread * 20 + 20)
            return [kiln.call_sync("double", {"number": number}).value for number in numbers]

        found = in_threads(50, work)

        assert [value for values in found for value in values] == [n * 2 for n in range(1000)]

    def test_synchronous_methods_work_in_threads_that_share_one_loop(self, kiln: Kiln) -> None:
        sent = {"name": "add", "arguments": '{"left": 1, "right": 2}'}
        message = {"id": "c1", "type": "function", "function": sent}
        sessions = kiln.security.sessions

        def work(number: int) -> list[Any]:
            return [
                kiln.call_sync("tell_thread").value,
                kiln.call_sync("add", {"left": number}).value,
                kiln.call_sync("add_twice", {"left": number}).value,
                kiln.handle_sync(message, "openai")[0]["content"],
                len(kiln.tools("openai", names=["add"])),
                kiln.search("add numbers", 1).hits[0].key,
                kiln.services.wait(kiln.tasks.list()),
                sessions.find(sessions.create("ann").token).caller.user_id,
            ]

        found = in_threads(8, work)

        (loop,) = {values[0] for values in found}
        assert loop != threading.get_ident()
        assert found == [[loop, n + 2, n + 4, "3", 1, "add", [], "ann"] for n in range(8)]

    def test_context_variables_of_the_caller_reach_a_function(self, kiln: Kiln) -> None:
        context = copy_context()
        context.run(LANGUAGE.set, "fr")

        found = context.run(kiln.call_sync, "tell_language").value
        unset = kiln.call_sync("tell_language").value

        assert (found, unset) == ("fr", "none")

    def test_a_function_that_raises_an_interrupt_does_not_end_the_loop(self, kiln: Kiln) -> None:
        with pytest.raises(KeyboardInterrupt):
            kiln.call_sync("interrupt")

        assert kiln.call_sync("double", {"number": 1}).value == 2


class TestRunningLoop:
    async def test_a_synchronous_method_says_what_to_await(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        await kiln.call("double", {"number": 1})
        uses: list[tuple[str, Callable[[], object]]] = [
            ("await kiln.call(…)", lambda: kiln.call_sync("add", {"left": 1})),
            ("await kiln.handle(…)", lambda: kiln.handle_sync({})),
            ("await kiln.list(…)", lambda: kiln.services.wait(kiln.tasks.list())),
            ("await kiln.close()", kiln.close_sync),
        ]

        for instead, use in uses:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                with pytest.raises(InputError) as caught:
                    use()
                gc.collect()

            assert f"`{instead}`" in caught.value.message
            assert warned == []
        await kiln.close()

    def test_closing_through_run_sync_says_what_to_call(self, tmp_path: Path) -> None:
        with make(tmp_path) as kiln, pytest.raises(InputError, match=r"kiln.close_sync\(\)"):
            kiln.services.wait(kiln.close())

    async def test_a_kiln_that_only_lists_closes_in_a_running_loop(self, tmp_path: Path) -> None:
        with make(tmp_path) as kiln:
            assert "add" in kiln.services.registry.specs


class TestBesideALoop:
    async def test_threads_call_while_the_loop_awaits_or_is_blocked(self, tmp_path: Path) -> None:
        async with make(tmp_path) as kiln:
            calls = [asyncio.to_thread(kiln.call_sync, "add", {"left": n}) for n in range(10)]
            awaited = [kiln.call("add", {"left": n}) for n in range(10)]
            found = await asyncio.gather(*calls, *awaited)
            blocked = in_threads(4, lambda n: kiln.call_sync("add", {"left": n}).value)

        assert [result.value for result in found] == [n + 2 for n in range(10)] * 2
        assert blocked == [2, 3, 4, 5]

    def test_loops_one_after_another_use_what_threads_called_before(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        before = kiln.call_sync("add", {"left": 1}).value

        async def application() -> Any:
            added = await kiln.call("add", {"left": 1})
            return added.value, (await kiln.call("tell_thread")).value

        found = [asyncio.run(application()) for _ in range(3)]
        after = kiln.call_sync("add", {"left": 2}).value
        kiln.close_sync()

        assert (before, after) == (3, 4)
        # Async functions run in the caller's own loop.
        assert found == [(3, threading.get_ident())] * 3
        assert children() == set()

    async def test_a_task_of_a_thread_is_cancelled_by_the_application(self, tmp_path: Path) -> None:
        async with make(tmp_path) as kiln:
            task = await asyncio.to_thread(kiln.call_sync, "wait_long", background=True)
            await kiln.tasks.cancel(task.id)
            ended = await kiln.tasks.wait(task.id, timeout=BOUND)

        assert ended.state == "done"
        assert ended.result is not None
        assert ended.result.status == "cancelled"


class TestClosing:
    def test_close_sync_ends_processes_and_threads_until_a_call(self, tmp_path: Path) -> None:
        before = set(threading.enumerate())
        kiln = make(tmp_path)

        for _ in range(2):
            assert kiln.call_sync("add", {"left": 1}).value == 3
            assert children()
            in_threads(4, lambda _: kiln.close_sync())

            assert children() == set()
            assert set(threading.enumerate()) <= before

    def test_calls_of_other_threads_end_with_a_clear_error(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        begun = threading.Semaphore(0)

        def wait_long(_: int) -> Any:
            try:
                return kiln.call_sync("wait_long", observe=lambda _: begun.release())
            except BackendError as error:
                return error.message

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(wait_long, number) for number in range(8)]
            for _ in calls:
                assert begun.acquire(timeout=BOUND)
            kiln.close_sync()
            found = {call.result(BOUND) for call in calls}

        assert found == {"the Kiln was closed before this call ended"}
        assert children() == set()

    def test_closing_again_and_again_while_threads_call_loses_nothing(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)

        def work(thread: int) -> set[Any]:
            found = set()
            for _ in range(10):
                try:
                    found.add(kiln.call_sync("double", {"number": 21}).value)
                except BackendError as error:
                    found.add(error.message)
                if thread == 0:
                    kiln.close_sync()
            return found

        found = set[Any]().union(*in_threads(10, work))
        kiln.close_sync()

        assert found <= {42, "the Kiln was closed before this call ended"}
        assert 42 in found

    async def test_closing_in_the_application_ends_calls_of_threads(self, tmp_path: Path) -> None:
        begun = threading.Event()
        async with make(tmp_path) as kiln:
            options: Any = {"observe": lambda _: begun.set()}
            call = asyncio.create_task(asyncio.to_thread(kiln.call_sync, "wait_long", **options))
            assert await asyncio.to_thread(begun.wait, BOUND)

        with pytest.raises(BackendError, match="closed"):
            await call
        assert children() == set()

    def test_a_thread_closes_what_a_loop_opened(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)

        async def application() -> Any:
            first = await kiln.call("add", {"left": 1})
            await asyncio.to_thread(kiln.close_sync)
            left = children()
            again = await kiln.call("add", {"left": 1})
            await kiln.close()
            return first.value, left, again.value

        assert asyncio.run(application()) == (3, set(), 3)

    def test_a_function_closes_its_own_kiln(self, tmp_path: Path) -> None:
        kiln = make(tmp_path, [close_mine, double])
        KILN.append(kiln)

        with pytest.raises(BackendError, match="closed"):
            kiln.call_sync("close_mine")

        assert kiln.call_sync("double", {"number": 1}).value == 2
        kiln.close_sync()


class TestInterrupting:
    SCRIPT = """
        import sys
        from pathlib import Path
        from toolkiln import Kiln
        from toolkiln.config import Settings

        kiln = Kiln("tools", settings=Settings(state=Path("state")), dev=True)
        try:
            kiln.call_sync("wait_long", observe=lambda event: print(event.text, end="", flush=True))
        except KeyboardInterrupt:
            print("again", kiln.call_sync("add", {"left": 1}).value, flush=True)
            raise
    """

    def test_control_c_cancels_the_call_and_the_kiln_goes_on(self, tmp_path: Path) -> None:
        make(tmp_path)
        process = subprocess.Popen(
            [sys.executable, "-c", dedent(self.SCRIPT)],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND)

        assert out == "again 3\n"
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert process.returncode == -signal.SIGINT
        assert outcomes(tmp_path) == [("wait_long", "cancelled"), ("add", "ok")]


def _in_child(kiln: Kiln, answers: Any) -> None:
    answers.put([kiln.call_sync("add", {"left": n}).value for n in range(3)])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
class TestForking:
    def test_a_kiln_works_in_a_forked_child_and_still_in_the_parent(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        before = kiln.call_sync("add", {"left": 10}).value
        own = children()
        context = multiprocessing.get_context("fork")
        answers = context.Queue()

        child = context.Process(target=_in_child, args=(kiln, answers))
        child.start()
        answer = answers.get(timeout=BOUND)
        child.join(BOUND)
        survivors = own & children()
        after = kiln.call_sync("add", {"left": 20}).value
        kiln.close_sync()

        assert (before, answer, after, child.exitcode) == (12, [2, 3, 4], 22, 0)
        assert survivors == own
        assert [outcome for _, outcome in outcomes(tmp_path)] == ["ok"] * 5

    def test_a_fork_in_the_middle_of_calls_does_not_hang(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        kiln.call_sync("add", {"left": 1})
        kiln.search("double a number", 1)
        is_over = threading.Event()

        def keep_calling(_: int) -> None:
            while not is_over.is_set():
                kiln.call_sync("double", {"number": 1})
                kiln.search("double a number", 1)

        context = multiprocessing.get_context("fork")
        with ThreadPoolExecutor(4) as pool:
            calling = [pool.submit(keep_calling, number) for number in range(4)]
            codes = []
            for _ in range(5):
                child = context.Process(target=_in_child, args=(kiln, context.SimpleQueue()))
                child.start()
                child.join(BOUND)
                codes.append(child.exitcode)
                child.kill()
            is_over.set()
            for one in calling:
                one.result(BOUND)
        kiln.close_sync()

        assert codes == [0] * 5

    def test_a_worker_that_forks_before_the_first_call_works(self, tmp_path: Path) -> None:
        kiln = make(tmp_path)
        assert kiln.tools("openai", names=["add"])  # as an application reads its tools at import

        pid = os.fork()
        if not pid:
            with kiln:
                value = kiln.call_sync("add", {"left": 1}).value
            os._exit(value)
        _, status = os.waitpid(pid, 0)

        assert os.waitstatus_to_exitcode(status) == 3


def outcomes(folder: Path) -> list[tuple[str, str]]:
    """How calls ended, as the audit has it, oldest first."""
    with make(folder) as kiln:
        entries = list(kiln.security.audit.export(AuditFilter(act="call")))
    ended = [entry.record for entry in entries if entry.record.outcome != "started"]
    return [(record.tool, record.outcome) for record in ended]


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs before a test, such as a server that tests of other modules share, is not its."""
    monkeypatch.setattr(sys.modules[__name__], "_OTHERS", children())


_OTHERS: set[int] = set()


def children() -> set[int]:
    """The processes that a test started below this one and that have not ended."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread or the process has just ended
            for child in map(int, (task / "children").read_text().split()):
                command = Path(f"/proc/{child}/cmdline").read_bytes()  # of a zombie: nothing
                if command and b"multiprocessing" not in command:
                    found.add(child)
    return found - _OTHERS


def test_a_thread_beside_an_import_of_asyncio_has_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    kiln = Kiln(functions=[])
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))  # as far as it has come

    kiln.close_sync()  # which asks whether a loop runs in this thread
