"""Prompts at the terminal: approvals of the call that a command makes, and forms of its tool.

The command asks at the terminal if the caller may approve their own call: the person who runs
the command may unless a rule forbids it. Otherwise `toolkiln approvals` answers from elsewhere.
"""

import asyncio
import sys
import termios
from typing import Any, Self

from toolkiln.errors import ToolkilnError, Unanswered
from toolkiln.kiln import Kiln
from toolkiln.model.policy import Approval
from toolkiln.model.question import FormAnswer, FormQuestion, Question
from toolkiln.security.sessions import SessionToken
from toolkiln.surfaces.cli.terminal import exact_json, one_line, say, when


class ApprovalPrompt:
    """Shows that a call waits for approval, and asks if the caller may approve it."""

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

    def show(self, approval_id: str) -> None:
        """Show a pending approval; called from the event loop."""
        approval = self._kiln.security.approvals.get(approval_id)
        if approval is None:
            return
        why, until = one_line(approval.why), when(approval.expires)
        say(f"waiting for a person until {until}: {why}", err=True)
        may_answer = self._kiln.security.may_answer(approval, self._session)
        if may_answer and sys.stdin is not None and sys.stdin.isatty():
            say(exact_json(approval.arguments), err=True)
            termios.tcflush(sys.stdin, termios.TCIFLUSH)  # earlier input is no answer
            question = f"run {one_line(approval.tool)} with these arguments?"
            say(f"{question} [y/N] ", err=True, newline=False)
            self._listen(approval)
        else:
            who = "answer it" if may_answer else "another person can answer it"
            say(f"{who} with `toolkiln approvals approve {approval.id}`", err=True)

    def _listen(self, approval: Approval) -> None:
        """Wait for a line; meanwhile the call may be approved elsewhere."""
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
        security = self._kiln.security
        decide = security.approve if is_yes else security.reject
        try:
            decide(approval_id, session=self._session)
        except ToolkilnError as error:  # decided elsewhere, or too late
            say(f"note: {error.message}", err=True)


_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")


def has_terminal() -> bool:
    """Return whether a person can answer on stdin."""
    return sys.stdin is not None and sys.stdin.isatty()


async def ask(questions: tuple[Question, ...]) -> list[FormAnswer]:
    """Let the person at the terminal fill in forms.

    Raises:
        Unanswered: a question is no form.
    """
    forms = [question for question in questions if isinstance(question, FormQuestion)]
    if len(forms) < len(questions):
        raise Unanswered("the caller cannot be asked: a terminal supports forms only")
    return [await _filled(form) for form in forms]


async def _filled(form: FormQuestion) -> FormAnswer:
    say(f"the tool asks: {form.message}", err=True)
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # earlier input is no answer
    fields = form.form_schema["properties"]
    content: dict[str, Any] = {}
    if not fields:  # a yes-no question
        typed = await _line("  [y/N] ")
        return FormAnswer(action="accept" if (typed or "").lower() in _YES else "decline")
    for name, field in fields.items():
        while True:
            typed = await _line(_prompt(name, field))
            if typed is None:
                say("declined", err=True)
                return FormAnswer(action="decline")
            if not typed and (name not in form.required or "default" in field):
                break
            try:
                content[name] = _read(typed, field)
                break
            except ValueError as error:
                say(f"  {error}", err=True)
    return FormAnswer(action="accept", content=content)


def _prompt(name: str, field: dict[str, Any]) -> str:
    about = [field["description"]] if field.get("description") else []
    choices = _choices(field)
    if choices:
        shown = [v if v == title else f"{v} ({title})" for v, title in choices.items()]
        several = "some of " if field["type"] == "array" else ""
        about.append(several + ", ".join(shown))
    elif field["type"] == "boolean":
        about.append("y or n")
    details = f" ({'; '.join(about)})" if about else ""
    default = f" [{_shown(field['default'])}]" if "default" in field else ""
    title = field.get("title") or name
    return f"  {one_line(f'{title}{details}{default}')}: "


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "y" if default else "n"
    return ", ".join(default) if isinstance(default, list) else str(default)


def _choices(field: dict[str, Any]) -> dict[str, str]:
    """Return the titles of choices by value."""
    part = field.get("items", field)
    if titled := part.get("oneOf") or part.get("anyOf"):
        return {choice["const"]: choice["title"] for choice in titled}
    values = part.get("enum") or []
    return dict(zip(values, part.get("enumNames") or values, strict=False))


def _read(typed: str, field: dict[str, Any]) -> Any:
    """Return typed text as a value of the field; raises ValueError if it does not fit."""
    kind, choices = field["type"], _choices(field)
    if not typed:
        raise ValueError("this field is required; Ctrl-D declines")
    if kind == "boolean":
        if typed.lower() not in (*_YES, *_NO):
            raise ValueError("y or n")
        return typed.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(typed) if kind == "integer" else float(typed)
        except ValueError:
            raise ValueError(f"not a valid {kind}") from None
    values = [part.strip() for part in typed.split(",")] if kind == "array" else [typed]
    for value in values:
        if choices and value not in choices:
            raise ValueError(f"{one_line(value)} is not one of {', '.join(choices)}")
    return values if kind == "array" else typed


async def _line(prompt: str) -> str | None:
    """Read a line without blocking the event loop; None at the end of input."""
    say(prompt, err=True, newline=False)
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError:
        return ""
    return line.strip() if line else None
