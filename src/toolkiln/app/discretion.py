"""What callers are told of tools that they may not know of: that there are none.

The gateway says plainly why a call was refused, to the audit and to the program that made
it. Whoever calls from outside hears the same of a tool that rules hide from them as of one
that does not exist, down to the hint: servers and the gateway's answers to tools that call
others ask here. Programs that hold a Kiln decide themselves what they hand on.
"""

from toolkiln.app.offer import Offer
from toolkiln.errors import InputError, UnknownTool
from toolkiln.execution import Guard
from toolkiln.model import Caller, Privilege, Result, Status

_NOT_SERVED = ("not_admitted", "disabled")
_TELLING = {
    Status.DENIED: ("not_allowed",),
    Status.INVALID: (*_NOT_SERVED, "bad_input"),  # the last: another version was asked for
}
"""Codes of calls that did not run, from which one learns that there is a tool."""


def is_telling(result: Result) -> bool:
    """Whether a result says of a tool that there is one, though it did not run."""
    return result.error is not None and result.error.code in _TELLING.get(result.status, ())


class Discretion:
    """Keeps tools from those who may not know of them."""

    def __init__(self, offer: Offer, guard: Guard) -> None:
        self._offer = offer
        self._guard = guard

    def is_seen(self, name: str, caller: Caller) -> bool:
        """Whether a tool is served that somebody may know of."""
        try:
            return self._guard.may_see(caller, self._offer.spec(name))
        except InputError:
            return False

    def told(self, result: Result, caller: Caller, called: str | None = None) -> Result:
        """A result as the caller may know it; `called` is the name they used, if another."""
        if result.error is None or not is_telling(result) or self._may_know(result, caller):
            return result
        name = called or result.tool
        known = self._offer.names(lambda spec: self._guard.may_see(caller, spec))
        unknown = UnknownTool(name, known)
        error = result.error.model_copy(
            update={"code": unknown.code, "message": unknown.message, "hint": unknown.hint}
        )
        text = f"error: {unknown.message}" + (f"\nhint: {unknown.hint}" if unknown.hint else "")
        told = {"tool": name, "digest": None, "status": Status.INVALID, "text": text}
        return result.model_copy(update={**told, "error": error})

    def _may_know(self, result: Result, caller: Caller) -> bool:
        if result.error is not None and result.error.code in _NOT_SERVED:
            return Privilege.ADMIN in caller.privileges
        return self.is_seen(result.tool, caller)
