"""Text for the model: rendering a value, and truncating it to the limits of the tool.

A text that is too long keeps its head and its tail, with a marker between them that says how
much is missing; the gateway stores `ModelText.full` for paging.
"""

import unicodedata
from typing import Any, NamedTuple

from toolkiln.execution.executor import ExecutionOutcome
from toolkiln.execution.outcomes import error_text
from toolkiln.model.spec import OUTPUT_CHARACTERS, Role, ToolSpec
from toolkiln.runtime.wire import encode

_MAX_CHARACTERS = 10_000_000
"""Limit of prompts and resources, which no model calls; larger than any value."""
_LINE_REACH = 200
"""Characters to give up at most for a cut between two lines."""
_CHARACTER_REACH = 64
"""Code points to search for the edge of a character; no real one is longer."""
_FLAG_REACH = 10_000
"""Code points to search before a cut to tell flags apart."""
_JOINER = "\u200d"
_REGIONALS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Two of them in a row are a flag."""
_MARKS = ("Mn", "Me", "Mc")


class TruncatedText(NamedTuple):
    """A text within its limit, and how many characters of the original it shows."""

    text: str
    shown: int
    total: int


class ModelText(NamedTuple):
    """Text for the model; `full` is the whole text if something was left out."""

    text: str
    full: str | None
    shown: int
    total: int


def render(value: Any) -> str:
    """Return a value as text: strings unchanged, None as nothing, all else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value)


def model_text(outcome: ExecutionOutcome, spec: ToolSpec) -> ModelText:
    """Return the text of an outcome for the model, truncated to the limits of the tool."""
    if outcome.error is None and not outcome.is_tool_result:
        full, whole = render(outcome.value), limit_of(spec, spec.output_kind)
        if (total := len(full)) <= whole:  # most results
            return ModelText(full, None, total, total)
        text, shown, total = truncate(full, whole)
    else:
        parts, whole = _parts(outcome, spec)
        full = "\n".join(text for text, _ in parts)
        text, shown, total = _truncate_parts(parts, whole)
    return ModelText(text, None if shown == total else full, shown, total)


def truncate(text: str, limit: int) -> TruncatedText:
    """Keep the head and the tail of a text, with a marker between them.

    The result is never longer than the limit; if that leaves no room for a marker, it is the
    head alone.
    """
    total = len(text)
    if total <= limit:
        return TruncatedText(text, total, total)
    # The marker for fewer characters is never longer than the one for all.
    room = limit - len(_marker(total))
    if room < len(_marker(total)):
        head = text[: _edge(text, limit, -1)]
        return TruncatedText(head, len(head), total)
    end = _head_end(text, room - room // 3)
    start = _tail_start(text, total - room // 3)
    missing = start - end
    return TruncatedText(f"{text[:end]}{_marker(missing)}{text[start:]}", total - missing, total)


def limit_of(spec: ToolSpec, kind: str | None) -> int:
    """Return how many characters the model reads of an output of this kind."""
    if spec.role is not Role.TOOL:
        return _MAX_CHARACTERS
    return spec.output_characters(kind)


def _parts(outcome: ExecutionOutcome, spec: ToolSpec) -> tuple[list[tuple[str, int]], int]:
    """Return the texts of an outcome, each with its limit, and the limit of the whole."""
    error = outcome.error
    message = error_text(error) if error else ""
    if not outcome.is_tool_result and isinstance(outcome.value, dict):
        # Other fields, such as lines and fixes, are for the model too.
        more = {k: v for k, v in outcome.value.items() if k not in ("success", "error")}
        message += f"\n{render(more)}" if more else ""
    if not outcome.is_tool_result:
        return [(message, OUTPUT_CHARACTERS["error"])], OUTPUT_CHARACTERS["error"]
    stdout, stderr = outcome.value["stdout"], outcome.value["stderr"]
    if error and error.message == stdout:
        stdout = ""
    message = message or (f"stderr: {stderr}" if stderr else "")
    parts = [
        (stdout, limit_of(spec, spec.stdout_kind)),
        (message, limit_of(spec, spec.stderr_kind)),
    ]
    shown = [(text, limit) for text, limit in parts if text]
    # The errors of a tool that reports a status may be longer than a status.
    return shown, max(limit_of(spec, spec.output_kind), *(limit for _, limit in parts))


def _truncate_parts(parts: list[tuple[str, int]], whole: int) -> TruncatedText:
    """Truncate each text from its original, so the counts of all markers are right."""
    if len(parts) < 2:
        text, limit = parts[0] if parts else ("", whole)
        return truncate(text, min(limit, whole))
    (first, first_limit), (second, second_limit) = parts
    room = whole - 1  # a line break between them
    first_size, second_size = min(len(first), first_limit), min(len(second), second_limit)
    # Each text gets half of the room, and what the other does not need.
    second_size = min(second_size, max(room // 2, room - first_size))
    upper, lower = (
        truncate(first, min(first_size, room - second_size)),
        truncate(second, second_size),
    )
    text = f"{upper.text}\n{lower.text}"
    return TruncatedText(text, upper.shown + 1 + lower.shown, upper.total + 1 + lower.total)


def _marker(missing: int) -> str:
    return f"\n[… {missing:,} characters left out …]\n"


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", max(end - _reach(end), 0), end + 1)
    return _edge(text, end if line < 0 else line, -1)


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start - 1, start + _reach(len(text) - start))
    return _edge(text, start, 1) if line < 0 else line + 1


def _reach(length: int) -> int:
    return min(_LINE_REACH, length // 8)


def _edge(text: str, position: int, step: int) -> int:
    """Return the nearest position in one direction that splits no visible character."""
    for edge in range(position, position + step * _CHARACTER_REACH, step):
        if not 0 < edge < len(text):
            break
        if not _splits_character(text, edge):
            return edge
    return position


def _splits_character(text: str, position: int) -> bool:
    before, after = text[position - 1], text[position]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in _MARKS  # accents, variation selectors
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= after <= "\U000e007f"  # tags of regional flags
        or "\u1160" <= after <= "\u11ff"  # vowels and finals of Hangul
        or (after in _REGIONALS and _regionals_before(text, position) % 2 == 1)
    )


def _regionals_before(text: str, position: int) -> int:
    near = text[max(position - _FLAG_REACH, 0) : position]
    return len(near) - len(near.rstrip(_REGIONALS))
