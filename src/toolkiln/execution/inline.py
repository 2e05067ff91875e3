"""Inline executor: runs functions of this process, without a sandbox.

Async functions run on the event loop, others in threads. A thread cannot be stopped: on timeout
the caller gets the error, and the thread continues. Arguments are bound and values serialised
as in the sandbox.
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
from time import thread_time
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from toolkiln.execution.executor import ExecutionOutcome, Invocation, call_context
from toolkiln.execution.outcomes import apply_frame, limit_error
from toolkiln.execution.questions import CallTimer
from toolkiln.model.call import Event, log_level
from toolkiln.model.spec import Role
from toolkiln.model.tool import ResolvedTool
from toolkiln.runtime.binder import Binder
from toolkiln.runtime.call import failure, result_frame
from toolkiln.runtime.context import add_state, injections
from toolkiln.runtime.loader import typed_settings
from toolkiln.runtime.wire import encode

T = TypeVar("T")
Frame = dict[str, Any]
Bind = Callable[[dict[str, Any], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
_MAX_THREADS = 1000
"""Far more than nested calls that can wait for each other."""


class InlineExecutor:
    """Runs functions of this process."""

    def __init__(self) -> None:
        self._bound: dict[int, tuple[Bind, bool, ResolvedTool]] = {}
        # Not the few threads of the loop: nested calls would block each other.
        self._threads = Threads(_MAX_THREADS, "toolkiln-inline")

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        """Call the function."""
        try:
            return await self._run(invocation)
        finally:
            invocation.is_over = True

    async def _run(self, invocation: Invocation) -> ExecutionOutcome:
        tool = invocation.tool
        function = tool.function
        assert function is not None
        bind, is_async = self._binding(tool)
        outcome = ExecutionOutcome(sandbox="none")
        injected: dict[str, Any] = {}
        timeout: asyncio.Timeout | None = None
        value: Any = None
        error: BaseException | None = None
        try:
            if tool.spec.injected:
                injected = _injections(invocation, outcome)
            positional, named = bind(invocation.arguments, injected)
            work: Any
            if is_async:
                work, value = _start(function(*positional, **named), outcome)
            else:
                attempt = partial(
                    copy_context().run, _attempt, function, positional, named, outcome
                )
                work = asyncio.get_running_loop().run_in_executor(self._threads, attempt)
            if work is not None:
                timeout = asyncio.timeout(invocation.bounds.timeout)
                async with timeout:
                    if invocation.questions is not None:
                        work = _run_with_timer(work, invocation.timer, timeout)
                    value = await work
            if not is_async:
                value, error = value
        except asyncio.CancelledError as raised:
            if _is_cancelled():
                raise
            error = raised
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the tool's; it becomes the result
            error = raised
        if error is not None:
            if isinstance(error, TimeoutError) and timeout is not None and timeout.expired():
                outcome.status, outcome.error = limit_error("timeout", invocation.bounds)
                return outcome
            frame = failure(error, inspect.unwrap(function).__code__.co_filename)
            apply_frame(outcome, frame, invocation)
            return outcome
        if tool.spec.role is Role.RESOURCE and type(value) in (bytes, bytearray):
            outcome.add_file("content", bytes(value), invocation.emit)
            value = None
        frame = result_frame(value)
        add_state(frame, invocation.caller.agent_state, injected)
        apply_frame(outcome, frame, invocation)
        return outcome

    def _binding(self, tool: ResolvedTool) -> tuple[Bind, bool]:
        """Return the function that binds arguments, and whether the tool is async."""
        cached = self._bound.get(id(tool))
        if cached is not None:
            return cached[:2]
        function = tool.function
        assert function is not None
        is_async = inspect.iscoroutinefunction(function)
        if tool.spec.whole_arguments is not None:
            return _bind_whole, is_async  # an approval function, created for one call: not cached
        bind = Binder(function, injected=tool.spec.injected).bind
        self._bound[id(tool)] = bind, is_async, tool
        return bind, is_async

    async def close(self) -> None:
        """Shut the threads down; one that is blocked remains."""
        self._threads.shutdown(wait=False)


class Threads(ThreadPoolExecutor):
    """Thread pool that also works while Python exits.

    Threads of a program, and their calls, continue after the main thread has ended, but the
    pools of `concurrent.futures` accept no more work then.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Submit to the pool; if it is closed use a new thread, or else this one."""
        with suppress(RuntimeError):
            return super().submit(fn, *args, **kwargs)
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised by the future
                done.set_exception(error)

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError:
            run()
        return done


def _bind_whole(
    arguments: dict[str, Any], _: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (arguments,), {}


async def _run_with_timer(
    work: Awaitable[Any], timer: CallTimer | None, timeout: asyncio.Timeout
) -> Any:
    """Await with a timer that can be paused, in place of the timeout."""
    assert timer is not None
    timeout.reschedule(None)
    loop = asyncio.get_running_loop()
    timer.start(lambda: timeout.reschedule(loop.time()))
    try:
        return await work
    finally:
        timer.stop()


def _start(work: Any, outcome: ExecutionOutcome) -> tuple[Awaitable[Any] | None, Any]:
    """Run a coroutine to its first wait; return the rest, or None and its value.

    Many functions never wait, and a timeout for them costs more than they do.
    """
    if type(work) is not CoroutineType:
        return work, None
    try:
        with _Processor(outcome):
            awaited = work.send(None)
    except StopIteration as done:
        return None, done.value
    return _resumed(work, awaited, outcome), None


@coroutine
def _resumed(work: Any, awaited: Any, outcome: ExecutionOutcome) -> Generator[Any, Any, Any]:
    """Continue a coroutine that waits."""
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - the loop's, for the coroutine
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            with _Processor(outcome):
                awaited = step()
        except StopIteration as done:
            return done.value


class _Processor:
    """Adds the processor time of this thread to an outcome."""

    __slots__ = "_outcome", "_start"

    def __init__(self, outcome: ExecutionOutcome) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        self._start = thread_time()

    def __exit__(self, *_: object) -> None:
        self._outcome.cpu = (self._outcome.cpu or 0.0) + thread_time() - self._start


def _attempt(
    function: Callable[..., Any],
    positional: tuple[Any, ...],
    named: dict[str, Any],
    outcome: ExecutionOutcome,
) -> tuple[Any, BaseException | None]:
    """Call a function; return its exception, because futures do not accept all of them."""
    try:
        with _Processor(outcome):
            return function(*positional, **named), None
    except BaseException as error:  # noqa: BLE001 - the tool's; it becomes the result
        return None, error


def _is_cancelled() -> bool:
    """Return whether this call was cancelled; a tool may raise CancelledError by itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _injections(invocation: Invocation, outcome: ExecutionOutcome) -> dict[str, Any]:
    """Return the injected parameters, connected to this outcome instead of a socket."""
    loop = asyncio.get_running_loop()

    def send(frame: Frame) -> None:
        if _is_on(loop):
            _apply(frame, invocation, outcome)  # later could be after the result
        else:
            loop.call_soon_threadsafe(_apply, frame, invocation, outcome)

    def request(frame: Frame) -> Frame:
        return _reply(frame, invocation, loop)

    caller = deepcopy(call_context(invocation)) | {"workdir": "."}
    caller["settings"] = typed_settings(invocation.tool.function, caller["settings"])
    return injections(invocation.tool.spec.injected, caller, send, request)


def _apply(frame: Frame, invocation: Invocation, outcome: ExecutionOutcome) -> None:
    if invocation.is_over:  # a thread of the tool goes on
        return
    match frame["op"]:
        case "progress":
            event = Event(
                kind="progress", text=frame["message"], done=frame["done"], total=frame["total"]
            )
            invocation.emit(event)
        case "log":
            level = log_level(frame["level"])
            invocation.emit(Event(kind="log", text=frame["message"], level=level))
        case "message":
            size = len(encode(frame["value"]))
            outcome.add_message(frame["value"], size, invocation.emit)
        case "inject":
            for name in frame["names"]:
                outcome.add_tool(name, invocation.emit)
        case "file":
            outcome.add_file(frame["name"], b64decode(frame["data"]), invocation.emit)


def _reply(frame: Frame, invocation: Invocation, loop: asyncio.AbstractEventLoop) -> Frame:
    """Return the reply to a nested call or a question."""
    if _is_on(loop):
        return {
            "error": f"on the event loop, write `await asyncio.to_thread(ctx.{frame['op']}, …)`"
        }
    if frame["op"] == "ask":
        work = invocation.reply_to_questions(frame["questions"])
    else:
        work = invocation.reply_to_call(frame["tool"], frame["arguments"])
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
