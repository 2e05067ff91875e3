"""A call of this terminal that waits for a person: told, and asked about right here.

The command asks at the terminal if the caller may approve their own call: the person who runs
the command may unless a rule forbids it. Otherwise `toolkiln approvals` answers from elsewhere.
"""

import asyncio
import sys
import termios
from typing import Self

from toolkiln.app import Kiln, SessionToken
from toolkiln.errors import ToolkilnError
from toolkiln.model import Approval
from toolkiln.surfaces.cli.tables import exact_json, one_line, when
from toolkiln.surfaces.cli.terminal import say


class Pending:
    """What is told and asked while a call waits."""

    def __init__(self, kiln: Kiln, session: SessionToken) -> None:
        self._kiln = kiln
        self._session = session
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:  # which runs in another thread
            loop.call_soon_threadsafe(loop.remove_reader, sys.stdin.fileno())

    def tell(self, approval_id: str) -> None:
        """Say that a call waits, and ask if that makes sense; called from the event loop."""
        approval = self._kiln.guarding.approvals.get(approval_id)
        if approval is None:
            return
        why, until = one_line(approval.why), when(approval.expires)
        say(f"waiting for a person until {until}: {why}", err=True)
        may_answer = self._kiln.guarding.may_answer(approval, self._session)
        if may_answer and sys.stdin is not None and sys.stdin.isatty():
            say(exact_json(approval.arguments), err=True)
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # typed before is no answer
            question = f"run {one_line(approval.tool)} with these arguments?"
            say(f"{question} [y/N] ", err=True, newline=False)
            self._listen(approval)
        else:
            who = "answer it" if may_answer else "another person can answer it"
            say(f"{who} with `toolkiln approvals approve {approval.id}`", err=True)

    def _listen(self, approval: Approval) -> None:
        """Wait for a line without keeping the call from being answered elsewhere."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sys.stdin.fileno(), self._answered, approval)

    def _answered(self, approval: Approval) -> None:
        loop, self._loop = self._loop, None
        if loop is None:  # the call has ended meanwhile
            return
        loop.remove_reader(sys.stdin.fileno())
        try:
            is_yes = sys.stdin.readline().strip().lower() in ("y", "yes")
        except UnicodeDecodeError:
            is_yes = False
        loop.run_in_executor(None, self._decide, approval.id, is_yes)

    def _decide(self, approval_id: str, is_yes: bool) -> None:
        guarding = self._kiln.guarding
        decide = guarding.approve if is_yes else guarding.reject
        try:
            decide(approval_id, session=self._session)
        except ToolkilnError as error:  # answered elsewhere, or too late: the call tells
            say(f"note: {error.message}", err=True)
