"""Which answers to a request for approval make sense, and what a late one is told.

No database here: wherever requests are kept, the same holds.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from toolkiln.errors import InputError, NotFound, TooLate
from toolkiln.model import Approval, Remember, Verdict

REMEMBER_SECONDS: Mapping[Remember, float] = {"session": 86_400.0, "arguments": 30 * 86_400.0}
"""How long an answer is remembered."""
USE_SECONDS = 86_400.0
"""How long what was approved can be used, and any request is kept after its end."""
ID_OR_PREFIX = re.compile(r"[0-9a-f]{6,12}")
"""By what a request can be found."""


def check_verdict(verdict: Verdict) -> None:
    """See that an answer does not contradict itself.

    Raises:
        InputError: it does.
    """
    if verdict.remember is None and verdict.arguments is None:
        return
    if not verdict.approve:
        hint = "leave out the arguments, and what to remember"
        raise InputError("a rejection has no arguments and is not remembered", hint=hint)
    if verdict.remember == "arguments" and verdict.arguments is not None:
        hint = "approve the call as it is, or remember it for the session"
        raise InputError("an approval of other arguments is not remembered for them", hint=hint)


def no_approval(approval_id: str) -> NotFound:
    """That there is none of this id."""
    hint = "see `toolkiln approvals list`"
    return NotFound(f"there is no approval {approval_id[:100]!r}", hint=hint)


def several_approvals(prefix: str, ids: list[str]) -> InputError:
    """That this is the beginning of several ids."""
    return InputError(
        f"several approvals begin with {prefix}", hint=f"choose one of {', '.join(ids)} …"
    )


def not_remembered(remember: Remember) -> InputError:
    """That there is nothing by which an answer could be remembered."""
    return InputError(f"an approval of this call is not remembered for its {remember}")


def too_late(approval: Approval) -> TooLate:
    """That a request was answered before, or waits no longer."""
    if approval.decided is None:
        ended = {"withdrawn": "was withdrawn: nobody waits for it any more"}
        said = ended.get(approval.state, "has expired")
    else:
        verb = "rejected" if approval.state == "rejected" else "approved"
        at = datetime.fromtimestamp(approval.decided, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        said = f"was {verb} by {approval.decided_by[:100]!r} at {at}"
    return TooLate(f"{approval.id} {said}", hint="an answer counts once, and in time")
