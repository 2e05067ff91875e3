"""The way to calls that run elsewhere: where one begins, this process's gateway ends.

What takes such a call has a gateway of its own, which checks, decides and records all that
this one would. Here only listeners are told. `app.forwarding` has the way to a fleet.
"""

from collections.abc import Callable
from typing import Protocol

from toolkiln.execution.asking import Asking
from toolkiln.model import Call, Caller, Event, Result, ToolSpec


class Elsewhere(Protocol):
    """Takes calls off the gateway's hands."""

    def spec(self, call: Call) -> ToolSpec | None:
        """The tool of a call that runs elsewhere; None: it is for this process to answer."""
        ...

    async def call(
        self,
        call: Call,
        spec: ToolSpec,
        observe: Callable[[Event], None],
        asking: Asking | None,
    ) -> Result | None:
        """The end of such a call; None: it cannot be sent, and this process says why."""
        ...

    async def adopt(self, call: Call, caller: Caller) -> bool:
        """Have a call remembered that is under way; False if it runs in this process.

        Raises ToolkilnError if that is not possible.
        """
        ...

    async def ready(self) -> None:
        """Raises ToolkilnError if calls would not be taken."""
        ...

    def detach(self) -> None:
        """Let calls that are remembered continue after `close`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
