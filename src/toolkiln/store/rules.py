"""Rules of stores that do not depend on their database, for SQL and Redis alike.

Valid approval verdicts, and retries while Redis is unreachable, for example during a failover.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from toolkiln.errors import InputError, NotFound, TooLate, Unreachable
from toolkiln.model.policy import Approval, ApprovalVerdict, Remember

REMEMBER_SECONDS: Mapping[Remember, float] = {"session": 86_400.0, "arguments": 30 * 86_400.0}
"""How long a verdict is remembered."""
USE_SECONDS = 86_400.0
"""How long an approved call can be made, and how long a request is kept after it ends."""
ID_OR_PREFIX = re.compile(r"[0-9a-f]{6,12}")
"""A request id, or at least its first six characters."""


def check_verdict(verdict: ApprovalVerdict) -> None:
    """Reject a verdict that contradicts itself."""
    if verdict.remember is None and verdict.arguments is None:
        return
    if not verdict.approve:
        hint = "leave out `arguments` and `remember`"
        raise InputError("a rejection cannot have arguments or be remembered", hint=hint)
    if verdict.remember == "arguments" and verdict.arguments is not None:
        hint = "approve the call unchanged, or remember it for the session"
        raise InputError("edited arguments cannot be remembered by arguments", hint=hint)


def no_approval(approval_id: str) -> NotFound:
    """Return the error for an unknown approval id."""
    hint = "see `toolkiln approvals list`"
    return NotFound(f"there is no approval {approval_id[:100]!r}", hint=hint)


def several_approvals(prefix: str, ids: list[str]) -> InputError:
    """Return the error for an id prefix that matches several approvals."""
    return InputError(
        f"several approvals begin with {prefix}", hint=f"choose one of {', '.join(ids)} …"
    )


def not_remembered(remember: Remember) -> InputError:
    """Return the error for a call whose approval cannot be remembered this way."""
    return InputError(f"an approval of this call cannot be remembered by its {remember}")


def too_late(approval: Approval) -> TooLate:
    """Return the error for an approval that is already decided, withdrawn or expired."""
    if approval.decided is None:
        is_withdrawn = approval.state == "withdrawn"
        reason = "was withdrawn: its caller stopped waiting" if is_withdrawn else "has expired"
    else:
        verb = "rejected" if approval.state == "rejected" else "approved"
        at = datetime.fromtimestamp(approval.decided, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        reason = f"was {verb} by {approval.decided_by[:100]!r} at {at}"
    return TooLate(f"{approval.id} {reason}", hint="only the first verdict counts")


T = TypeVar("T")
REDIS_WAIT_SECONDS = 60.0
"""How long a call without its own time limit waits for Redis."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


async def retry_while_unreachable(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Run `work` and retry it for this many seconds while Redis is unreachable.

    Use it only for work that is safe to repeat: the server may have run a command although
    the connection failed.

    Raises:
        Unreachable: Redis did not come back in time.
    """
    until, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            return await work()
        except Unreachable:
            if time.monotonic() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
