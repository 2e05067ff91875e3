"""Stand-in for Stargazer's `tool_context`: the class of the context that calls get.

`runtime.context` connects it with the caller.
"""

from __future__ import annotations

from toolkiln.define import Context, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FROM_REQUEST: dict[str, Any] = {
    "user_name": "", "message_id": "", "room_id": "", "room_name": "", "room_context": "",
    "channel_name": "", "guild_name": "", "reply_to": "", "disclosed_skill_ids": (),
    "observability_id": "",
}  # fmt: skip
"""Attributes that read `request`, with their defaults. Not every name: a tool that decides by
`ctx.is_admin` must not get the caller's word for it."""

_INSTEAD = {
    "adapter": "send with ctx.send_message and ctx.send_file, and ask with ctx.ask",
    "config": "declare a settings class with @tool(settings=…), and read ctx.settings",
    "redis": 'keep files with @tool(workspace="write"), or reach a service with network=[…]',
    "tool_registry": "call other tools with ctx.call(name, …)",
}
_SHARED = ("_manager", "_cache", "_client", "_registry", "_service", "_store", "openrouter")
_CALL_INLINE = "pass a function of your program to Kiln(functions=[…]), and use ctx.call(name, …)"


def instead_of(name: str) -> str:
    """Return what to use for an attribute that a call does not have; empty for any other name."""
    if name.startswith("_"):
        return ""
    return _INSTEAD.get(name, _CALL_INLINE if name.endswith(_SHARED) else "")


class NotInSandbox(ToolError, AttributeError):
    """Raised for what a call has no access to; `getattr` with a default returns the default."""


class ToolContext(Context):
    """A `Context` with the names that Stargazer's tools use."""

    @property
    def sent_rich_messages(self) -> list[Any]:
        """The messages that were sent; append one to send it."""
        return self.sent_messages

    @sent_rich_messages.setter
    def sent_rich_messages(self, messages: list[Any]) -> None:
        self.sent_messages = messages

    def __getattr__(self, name: str) -> Any:
        if name in _FROM_REQUEST:
            return self.__dict__.get("request", {}).get(name, _FROM_REQUEST[name])
        if instead := instead_of(name):
            raise NotInSandbox(f"ctx.{name} is not available in the sandbox: {instead}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
