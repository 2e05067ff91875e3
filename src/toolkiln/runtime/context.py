"""The `Context` of a running call: what a tool sends out becomes frames.

The same class serves the sandbox, where `send` writes to the call's socket, and inline
calls, where it reaches the gateway directly. `define.Context` is what authors see.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkiln.define import INFO, Context, NotAnswered, Question, ToolError
from toolkiln.runtime.questions import answered, described, kind_of
from toolkiln.runtime.running import LARGEST_FILE
from toolkiln.runtime.serialise import plain

Frame = dict[str, Any]


class CallContext(Context):
    """A context that is connected to the caller."""

    def __init__(
        self,
        caller: Mapping[str, Any],
        send: Callable[[Frame], None],
        ask: Callable[[Frame], Frame],
    ) -> None:
        super().__init__(
            user_id=caller.get("user_id"),
            platform=caller.get("platform"),
            guild_id=caller.get("guild_id"),
            channel_id=caller.get("channel_id"),
            agent_id=caller.get("agent_id"),
            agent_state=caller.get("agent_state") or {},
            secrets=caller.get("secrets") or {},
            settings=caller.get("settings") or {},
            workdir=Path(caller.get("workdir") or Path.cwd()),
        )
        self._send = send
        self._ask = ask
        self._asks = caller.get("asks") or ()

    def report_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the call is."""
        frame = {"done": _number(done), "total": _number(total), "message": _text(message)}
        self._send({"op": "progress", **frame})

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the caller's log."""
        self._send({"op": "log", "level": int(level), "message": _text(message)})

    def send_file(self, path: str | Path) -> None:
        """Hand a file of the work folder to the caller."""
        file = self.workdir / path
        if file.stat().st_size > LARGEST_FILE:
            raise ToolError(f"{file.name} is larger than {LARGEST_FILE >> 20} MB")
        data = b64encode(file.read_bytes()).decode()
        self._send({"op": "file", "name": _text(file.name), "data": data})

    def send_message(self, message: Any) -> None:
        """Hand a rich message to the caller."""
        self._send({"op": "message", "value": plain(message).value})

    def inject_tools(self, *names: str) -> None:
        """Offer further tools to the agent for the rest of its conversation."""
        self._send({"op": "inject", "names": [_text(name) for name in names]})

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call another tool on the caller's behalf, and give what it returned.

        Raises:
            ToolError: the other call did not end well.
        """
        reply = self._ask({"op": "call", "tool": _text(tool), "arguments": plain(arguments).value})
        if "error" in reply:
            raise ToolError(reply["error"], retryable=bool(reply.get("retryable")))
        return reply.get("value")

    def can_ask(self, kind: type[Question[Any]], /) -> bool:
        """Whether the caller can be asked such a question."""
        return kind_of(kind) in self._asks

    # The overloads are those of `Context`.
    def ask(self, *questions: Question[Any]) -> Any:
        """Ask the caller, and wait for the answers.

        Raises:
            NotAnswered: the caller cannot be asked that, or gave no answer that fits.
        """
        if not questions:
            return ()
        reply = self._ask({"op": "ask", "questions": [described(one) for one in questions]})
        if "error" in reply:
            raise NotAnswered(reply["error"])
        given = tuple(map(answered, questions, reply["answers"]))
        return given[0] if len(given) == 1 else given


def injections(
    wanted: Mapping[str, str],
    caller: Mapping[str, Any],
    send: Callable[[Frame], None],
    ask: Callable[[Frame], Frame],
) -> dict[str, Any]:
    """What a call's signature asks the runtime for, by what it gets."""
    given: dict[str, Any] = {}
    for what in wanted.values():
        if what == "context":
            given[what] = CallContext(caller, send, ask)
        elif what in ("agent_state", "agent_id"):
            given[what] = caller.get(what)
        elif what == "__user__":
            given[what] = {"id": caller.get("user_id"), "name": caller.get("user_id")}
        elif what == "__event_emitter__":
            given[what] = _emitter(send)
        else:
            given[what] = None
    return given


def _emitter(send: Callable[[Frame], None]) -> Callable[[Any], Any]:
    """Open WebUI's way to send something out."""

    async def emit(event: Any) -> None:
        send({"op": "message", "value": plain(event).value})

    return emit


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0 else None


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()
