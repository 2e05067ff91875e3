"""The ends of a call that no tool gave: a table from code to Result.

Codes travel, sentences do not: whoever is told builds the Result here.
"""

from toolkiln.model import CallError, Result, Status

_ENDS: dict[str, tuple[Status, str, str | None, bool]] = {
    "timeout": (Status.TIMEOUT, "the call's time ran out", None, True),
    "cancelled": (Status.CANCELLED, "the call was cancelled", None, False),
    "lost": (
        Status.UNAVAILABLE,
        "the call was lost: its worker or Redis failed, and it may have run",
        "look at what it was to change before you try again",
        False,
    ),
    "poison": (
        Status.UNAVAILABLE,
        "the call was given up: workers that began it did not survive it, or it cannot be read",
        "an operator finds it with `toolkiln fleet dead-letters list`",
        False,
    ),
    "overloaded": (
        Status.UNAVAILABLE,
        "too many calls wait for the workers",
        "try again later, or start more workers",
        True,
    ),
    "stale": (
        Status.UNAVAILABLE,
        "no worker has this version of the tool",
        "list the tools again, and call the version that is there",
        True,
    ),
    "no_worker": (
        Status.UNAVAILABLE,
        "no worker took the call in time; it did not run",
        "start a worker of its pool, or try again later",
        True,
    ),
    "no_replica": (
        Status.UNAVAILABLE,
        "no replica of Redis had the call in time; it did not run",
        "see that a replica is connected, or turn `fleet_durable` off",
        True,
    ),
    "unverified": (
        Status.UNAVAILABLE,
        "the reply to the call is not signed by a trusted worker; the call may have run",
        "list the public keys of all workers in `worker_keys`; "
        "look at what the call was to change before you try again",
        False,
    ),
    "forged": (
        Status.DENIED,
        "the call does not come from whom it says",
        "callers and workers need the same fleet key",
        False,
    ),
}

CODES = frozenset(_ENDS)
"""Every reason for an end without a tool's answer."""


def ended(code: str, *, call_id: str, tool: str, retry_after: float | None = None) -> Result:
    """The Result that a code stands for; an unknown one is a loss."""
    code = code if code in _ENDS else "lost"
    status, message, hint, retryable = _ENDS[code]
    error = CallError(
        code=code, message=message, hint=hint, retryable=retryable, retry_after=retry_after
    )
    return Result(call_id=call_id, tool=tool, status=status, text=message, error=error)
