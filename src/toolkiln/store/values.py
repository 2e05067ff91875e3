"""What the store answers, and what it is given to keep. Values only."""

from enum import StrEnum

from toolkiln.model import Action, Reading, Result, Sources, Value

KEEP_SECONDS = 3600.0
"""How long results, outputs and the memory of lost calls are kept."""
OUTPUT_CHARACTERS = 50_000_000
"""Characters of all outputs that are kept for one caller; the oldest outputs go first."""


class Claimed(Value):
    """The call is yours to run; show this to renew, finish or release it."""

    key: str
    token: str
    """Random, new with every claim: whoever lost a call cannot finish it for its successor."""
    attempt: int
    """More than 1: an earlier owner died on the way, and the tool may have run in part."""


class Done(Value):
    """The call has ended: this is its result."""

    result: Result


class Busy(Value):
    """Someone else is running the call."""

    owner: str
    remaining: float
    """Seconds until the lease ends, unless it is renewed."""


class Conflict(Value):
    """The id belongs to a call with other arguments, another tool or another version."""


Claim = Claimed | Done | Busy | Conflict


class Lease(StrEnum):
    """What a renewal found."""

    HELD = "held"
    CANCEL = "cancel"  # still yours, but someone asked for the call to be stopped
    LOST = "lost"  # ended, released, or taken over by another


class OutputPage(Value):
    """Part of a kept text; all counts are characters."""

    text: str
    offset: int
    total: int
    next_offset: int | None
    """Where the next page starts; None after the last one."""


class Content(Value):
    """A tool's file to be kept, and what was read from it."""

    file: str
    """Its path relative to the tools folder, with forward slashes."""
    reading: Reading
    sources: Sources
    note: str = ""
    """What the history says of this file, besides the note of the arrival."""


class Arrival(Value):
    """How, through whom and when versions come into a catalog."""

    action: Action
    by: str
    at: str
    """UTC, ISO 8601, ending in Z."""
    note: str = ""


class AuditFilter(Value):
    """Which records of the audit are wanted; what is None fits any."""

    user: str | None = None
    tool: str | None = None
    """A name or a glob."""
    outcome: str | None = None
    act: str | None = None
    session: str | None = None
    call_id: str | None = None
    parent: str | None = None
    since: float | None = None
    until: float | None = None
    """The first moment that is too late."""
    before: int | None = None
    """The first number in the chain that is too high."""


class Verification(Value):
    """What a walk along the whole chain of the audit found."""

    ok: bool
    count: int
    first: int
    """The first row that is there; 0: none."""
    last: int
    head: str
    """The hash of the last row: note `last:head` elsewhere to find older copies put back."""
    problems: tuple[str, ...] = ()
    """One sentence each, of the first that were found."""
