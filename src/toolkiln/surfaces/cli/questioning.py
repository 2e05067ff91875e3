"""Questions of a tool that runs at this terminal: its forms, field by field.

Only forms, and only where somebody types. The end of input (Ctrl-D) declines.
"""

import asyncio
import sys
import termios
from typing import Any

from toolkiln.errors import Unanswered
from toolkiln.model import FormAnswer, FormQuestion, Question
from toolkiln.surfaces.cli.tables import one_line
from toolkiln.surfaces.cli.terminal import say

_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")


def is_somebody_there() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


async def ask(questions: tuple[Question, ...]) -> list[FormAnswer]:
    """Have the person at the terminal fill in forms.

    Raises:
        Unanswered: something else than a form is asked.
    """
    forms = [question for question in questions if isinstance(question, FormQuestion)]
    if len(forms) < len(questions):
        raise Unanswered("the caller cannot be asked: a terminal has forms only")
    return [await _filled(form) for form in forms]


async def _filled(form: FormQuestion) -> FormAnswer:
    say(f"the tool asks: {form.message}", err=True)
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # typed before is no answer
    fields = form.form_schema["properties"]
    content: dict[str, Any] = {}
    if not fields:  # then it asks for a yes
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
    told = f" ({'; '.join(about)})" if about else ""
    default = f" [{_shown(field['default'])}]" if "default" in field else ""
    title = field.get("title") or name
    return f"  {one_line(f'{title}{told}{default}')}: "


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "y" if default else "n"
    return ", ".join(default) if isinstance(default, list) else str(default)


def _choices(field: dict[str, Any]) -> dict[str, str]:
    """What can be chosen, and what it is called."""
    part = field.get("items", field)
    if titled := part.get("oneOf") or part.get("anyOf"):
        return {choice["const"]: choice["title"] for choice in titled}
    values = part.get("enum") or []
    return dict(zip(values, part.get("enumNames") or values, strict=False))


def _read(typed: str, field: dict[str, Any]) -> Any:
    """What somebody typed, as the form wants it.

    Raises:
        ValueError: it is something else.
    """
    kind, choices = field["type"], _choices(field)
    if not typed:
        raise ValueError("this has to be filled in; Ctrl-D declines")
    if kind == "boolean":
        if typed.lower() not in (*_YES, *_NO):
            raise ValueError("y or n")
        return typed.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(typed) if kind == "integer" else float(typed)
        except ValueError:
            raise ValueError(f"this is no {kind}") from None
    values = [part.strip() for part in typed.split(",")] if kind == "array" else [typed]
    for value in values:
        if choices and value not in choices:
            raise ValueError(f"{one_line(value)} is none of {', '.join(choices)}")
    return values if kind == "array" else typed


async def _line(prompt: str) -> str | None:
    """A line that somebody types; None at the end of input. Nothing else has to wait for it."""
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
