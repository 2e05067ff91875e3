"""Asking the person at the client whether a call may run: approvals by elicitation.

Who may answer is decided by `guarding`, not here. A client over stdio is the operator's own;
over HTTP callers answer only where a rule lets them approve their own calls. A call whose
client cannot be asked waits for another person. The form asks for no secret and has none:
arguments show references to secrets, never values.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import ToolkilnError
from toolkiln.model import Approval, Remember

_LONGEST = 2_000
"""Characters of arguments that a person is shown."""
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "remember": {
            "type": "boolean",
            "title": "Do not ask again",
            "description": "Let the same call with the same arguments run from now on.",
            "default": False,
        },
        "reason": {"type": "string", "title": "Reason", "description": "For the record."},
    },
}


class Asking:
    """What people are asked, and what becomes of their answers."""

    def __init__(self, kiln: Kiln, entrance: Entrance) -> None:
        self._kiln = kiln
        self._entrance = entrance

    async def question(self, approval_id: str, session: str) -> dict[str, Any] | None:
        """What to ask the client's person; None if it is not for them to answer."""
        approval = await asyncio.to_thread(self._kiln.guarding.approvals.get, approval_id)
        if approval is None:
            return None
        if not self._entrance.is_own_agent(session) and not await asyncio.to_thread(
            self._kiln.guarding.may_answer, approval, session
        ):
            return None
        return {"mode": "form", "message": _message(approval), "requestedSchema": _FORM}

    async def waiting(self, call_id: str, session: str) -> list[Approval]:
        """The pending requests of one of the caller's calls."""
        guarding = self._kiln.guarding
        caller = await guarding.guard.caller(session)
        return await asyncio.to_thread(guarding.approvals.of_call, caller, call_id)

    async def answer(self, approval_id: str, given: Mapping[str, Any], session: str) -> bool:
        """Record the person's decision; anything but a clear yes is no.

        Returns False if the approval is still pending: the person may not decide it.
        """
        guarding = self._kiln.guarding
        by = guarding.operator if self._entrance.is_own_agent(session) else session
        content = given.get("content")
        form = content if isinstance(content, Mapping) else {}
        reason = form.get("reason")
        reason = reason if isinstance(reason, str) else ""
        try:
            if given.get("action") == "accept":
                remember: Remember | None = "arguments" if form.get("remember") is True else None
                await asyncio.to_thread(
                    guarding.approve, approval_id, session=by, reason=reason, remember=remember
                )
            else:
                await asyncio.to_thread(guarding.reject, approval_id, session=by, reason=reason)
        except ToolkilnError:  # decided elsewhere, expired, or not theirs to decide
            approval = await asyncio.to_thread(guarding.approvals.get, approval_id)
            return approval is None or approval.state != "pending"
        return True


def _message(approval: Approval) -> str:
    arguments = json.dumps(approval.arguments, ensure_ascii=False, indent=2)
    if len(arguments) > _LONGEST:
        left = len(arguments) - _LONGEST
        arguments = f"{arguments[:_LONGEST]}\n… and {left:,} characters more"
    return f"May {approval.tool} run? {approval.why}\n\n{arguments}"
