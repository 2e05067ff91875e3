"""Inline execution, for code that this process trusts: no sandbox, no process, little cost.

Async functions run on the loop, others in threads. A function that does not come back
cannot be stopped: its caller gets a timeout, its thread goes on. The same binding and
serialising as in the sandbox surround the call.
"""

import asyncio
import inspect
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from toolkiln.execution.asking import CANNOT_ASK
from toolkiln.execution.clock import Clock
from toolkiln.execution.executor import Admitted, Invocation, Outcome, told
from toolkiln.execution.outcomes import apply_frame, limit_hit, reply
from toolkiln.model import Event, Role, SentFile, log_level
from toolkiln.runtime.binding import Binder
from toolkiln.runtime.context import injections
from toolkiln.runtime.running import failure, streams
from toolkiln.runtime.serialise import plain
from toolkiln.runtime.settings import typed

T = TypeVar("T")
Frame = dict[str, Any]
Bind = Callable[[dict[str, Any], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
_MOST_THREADS = 1000
"""Far more than calls that can wait for each other: they nest a few deep."""


class InlineExecutor:
    """Runs functions of this process."""

    def __init__(self) -> None:
        self._bound: dict[int, tuple[Bind, bool, Admitted]] = {}
        # Not the loop's few threads: calls within calls would wait there for each other.
        self._threads = Threads(_MOST_THREADS, "toolkiln-inline")

    async def run(self, invocation: Invocation) -> Outcome:
        """Call the function that the tool is."""
        tool = invocation.tool
        function = tool.function
        assert function is not None
        bind, is_async = self._binding(tool)
        outcome = Outcome(sandbox="none")
        given: dict[str, Any] = {}
        clock: asyncio.Timeout | None = None
        value: Any = None
        error: BaseException | None = None
        try:
            if tool.spec.injected:
                given = _injections(invocation, outcome)
            positional, named = bind(invocation.arguments, given)
            work: Any
            if is_async:
                work, value = _begun(function(*positional, **named))
            else:
                attempt = partial(copy_context().run, _attempt, function, positional, named)
                work = asyncio.get_running_loop().run_in_executor(self._threads, attempt)
            if work is not None:
                clock = asyncio.timeout(invocation.bounds.timeout)
                async with clock:
                    if invocation.asker is not None:
                        work = _counted(work, invocation.clock, clock)
                    value = await work
            if not is_async:
                value, error = value
        except asyncio.CancelledError as raised:
            if _is_cancelled():
                raise
            error = raised
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the tool's: it becomes the answer
            error = raised
        if error is not None:
            if isinstance(error, TimeoutError) and clock is not None and clock.expired():
                outcome.status, outcome.error = limit_hit("timeout", invocation.bounds)
                return outcome
            frame = failure(error, inspect.unwrap(function).__code__.co_filename)
            apply_frame(outcome, frame, invocation)
            return outcome
        tool_result = streams(value)
        if tool.spec.role is Role.RESOURCE and type(value) in (bytes, bytearray):
            outcome.files.append(SentFile(name="content", data=bytes(value)))
            value = None
        told = plain(value if tool_result is None else tool_result)
        kind = "result" if tool_result is None else "tool_result"
        frame = {"op": kind, "value": told.value, "notes": told.notes}
        apply_frame(outcome, frame, invocation)
        return outcome

    def _binding(self, tool: Admitted) -> tuple[Bind, bool]:
        """How arguments reach the function, and whether it is a coroutine's."""
        known = self._bound.get(id(tool))
        if known is not None:
            return known[:2]
        function = tool.function
        assert function is not None
        is_async = inspect.iscoroutinefunction(function)
        if tool.spec.whole_arguments is not None:
            return _as_one, is_async  # made for one call, and not to be kept
        bind = Binder(function, injected=tool.spec.injected).bind
        self._bound[id(tool)] = bind, is_async, tool
        return bind, is_async

    async def close(self) -> None:
        """Let go of the threads; a function that does not come back keeps its own."""
        self._threads.shutdown(wait=False)


class Threads(ThreadPoolExecutor):
    """A pool that also works while Python exits.

    Threads of a program go on after its main thread has ended, and so do their calls, but the
    pools of `concurrent.futures` take no more work then.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """As the pool, or in a new thread, or at once if no thread can be started either."""
        with suppress(RuntimeError):
            return super().submit(fn, *args, **kwargs)
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
                done.set_exception(error)

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError:
            run()
        return done


def _as_one(arguments: dict[str, Any], _: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (arguments,), {}


async def _counted(work: Awaitable[Any], clock: Clock | None, timeout: asyncio.Timeout) -> Any:
    """Wait for something by a clock that may rest, in place of the usual one."""
    assert clock is not None
    timeout.reschedule(None)
    loop = asyncio.get_running_loop()
    clock.start(lambda: timeout.reschedule(loop.time()))
    try:
        return await work
    finally:
        clock.stop()


def _begun(work: Any) -> tuple[Awaitable[Any] | None, Any]:
    """What is left to be awaited, and the value if that is nothing.

    Many functions never have to wait, and a clock for them costs more than they do.
    """
    if type(work) is not CoroutineType:
        return work, None
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return None, done.value
    return _resumed(work, awaited), None


@coroutine
def _resumed(work: Any, awaited: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that has begun to wait."""
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - the loop's, for the coroutine
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            awaited = step()
        except StopIteration as done:
            return done.value


def _attempt(
    function: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """Call a function in a thread; what it raises is data, because a future takes not all."""
    try:
        return function(*positional, **named), None
    except BaseException as error:  # noqa: BLE001 - the tool's: it becomes the answer
        return None, error


def _is_cancelled() -> bool:
    """Whether somebody cancelled this call, or its tool merely raised as if."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _injections(invocation: Invocation, outcome: Outcome) -> dict[str, Any]:
    """What the signature asks for, connected to this outcome instead of a socket."""
    loop = asyncio.get_running_loop()

    def send(frame: Frame) -> None:
        if _is_on(loop):
            _take(frame, invocation, outcome)  # later could be after the result
        else:
            loop.call_soon_threadsafe(_take, frame, invocation, outcome)

    def ask(frame: Frame) -> Frame:
        return _asked(frame, invocation, loop)

    caller = deepcopy(told(invocation)) | {"workdir": "."}
    caller["settings"] = typed(invocation.tool.function, caller["settings"])
    return injections(invocation.tool.spec.injected, caller, send, ask)


def _take(frame: Frame, invocation: Invocation, outcome: Outcome) -> None:
    match frame["op"]:
        case "progress":
            event = Event(
                kind="progress", text=frame["message"], done=frame["done"], total=frame["total"]
            )
            invocation.observe(event)
        case "log":
            level = log_level(frame["level"])
            invocation.observe(Event(kind="log", text=frame["message"], level=level))
        case "message":
            outcome.messages.append(frame["value"])
        case "inject":
            outcome.injected_tools += frame["names"]
        case "file":
            data = b64decode(frame["data"])
            outcome.files.append(SentFile(name=frame["name"], data=data))


def _asked(frame: Frame, invocation: Invocation, loop: asyncio.AbstractEventLoop) -> Frame:
    """The reply to a frame that wants one: another call, or a question."""
    if _is_on(loop):
        how = f"await asyncio.to_thread(ctx.{frame['op']}, …)"
        return {"error": f"on the event loop, write `{how}`"}
    work = _question if frame["op"] == "ask" else _nested
    return asyncio.run_coroutine_threadsafe(work(frame, invocation), loop).result()


async def _nested(frame: Frame, invocation: Invocation) -> Frame:
    if invocation.nested is None:
        return {"error": "calling other tools is not possible here"}
    return reply(frame["tool"], await invocation.nested(frame["tool"], frame["arguments"]))


async def _question(frame: Frame, invocation: Invocation) -> Frame:
    asker = invocation.asker
    return CANNOT_ASK if asker is None else await asker.reply(frame["questions"])


def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
