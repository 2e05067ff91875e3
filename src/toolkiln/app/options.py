"""What can be said about a call beside the tool and its arguments."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypedDict

from toolkiln.app.own import SessionToken
from toolkiln.model import Event, QuestionKind

if TYPE_CHECKING:
    from toolkiln.execution import Ask, Asking


class CallOptions(TypedDict, total=False):
    """The options of `Kiln.call`."""

    call_id: str | None
    """Makes the call run once: repeating it gives the first Result."""
    session: SessionToken
    """The token of a session, on whose holder's behalf it runs; by default this process's
    own. None is nobody, and denied."""
    digest: str | None
    """The version that must run; another one is refused."""
    timeout: float | None
    """Seconds to wait at most; the tool's own limit holds too."""
    called: str
    """The name that the caller used. Given it, a tool that the rules deny to the caller is
    answered as an unknown one, as all surfaces answer; a program learns why by default."""
    surface: str
    """What it came through, for the audit; by default what the Kiln was opened for."""
    prompt: str | None
    """What the tool is to answer; search learns from it, if the operator agreed."""
    lasting: bool
    """Whether a call with a `call_id` goes on if the task that awaits it is cancelled."""
    wait_seconds: float | None
    """With `background="auto"`: seconds after which a running call becomes a Task; by default
    ten. With `math.inf` only a call that waits for a person or asks its caller does."""
    observe: Callable[[Event], None]
    """Gets progress, log lines, output and requests for approval while the call runs."""
    ask: "Ask"
    """Answers what the tool asks its caller; without it tools cannot ask. Raises Unanswered."""
    asks: Collection[QuestionKind]
    """What `ask` answers; by default every kind of question."""


def asking_of(options: CallOptions) -> "Asking | None":
    """How the caller is asked; None: not at all."""
    if "ask" not in options:
        return None
    from toolkiln.execution import Asking

    ask = options["ask"]
    return Asking(ask, options["asks"]) if "asks" in options else Asking(ask)
