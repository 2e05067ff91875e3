"""Where calls with ids of their callers' are kept: the store, or Redis. What it has to do.

`memory` says when. All methods block, and raise StoreError when the place fails.
"""

from typing import TYPE_CHECKING, Protocol

from toolkiln.model import Call, Caller, Result, Task

if TYPE_CHECKING:
    from toolkiln.store import Claim, Claimed, Lease, OutputPage


class CallBook(Protocol):
    """Claims, results, tasks and kept outputs, each its caller's own."""

    def claim(
        self, call: Call, *, caller: Caller, fingerprint: str, owner: str, lease_seconds: float
    ) -> "Claim":
        """Ask to run a call: of all who ask for one id at once, one may."""
        ...

    def renew(self, claim: "Claimed", lease_seconds: float) -> "Lease":
        """Hold a claim for longer; whether to go on, to stop, or that it is lost."""
        ...

    def finish(self, claim: "Claimed", result: Result) -> bool:
        """Record how a call ended; False if the claim was lost."""
        ...

    def release(self, claim: "Claimed", result: Result) -> bool:
        """The same, and give the id free again; False if the claim was lost."""
        ...

    def set_progress(self, claim: "Claimed", text: str) -> bool:
        """Note the last thing that a tool reported."""
        ...

    def request_cancel(self, caller: Caller, call_id: str) -> bool:
        """Have a running call stopped; False if it is not running."""
        ...

    def task(self, caller: Caller, call_id: str) -> Task | None:
        """What became of a call."""
        ...

    def tasks(self, caller: Caller, limit: int = 50) -> list[Task]:
        """A caller's calls, newest first, without their results."""
        ...

    def keep_output(self, caller: Caller, text: str) -> str:
        """Keep a text for paging, under a handle."""
        ...

    def read_output(self, caller: Caller, handle: str, offset: int, limit: int) -> "OutputPage":
        """A page of a kept text."""
        ...

    def close(self) -> None:
        """Let go of the place."""
        ...
