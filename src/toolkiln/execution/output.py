"""What the model reads of an outcome, and how much of it.

Pure functions. A text that is too long keeps its head and its tail, and says between
them how much is missing. Keeping the rest and paging through it is not done here:
`Limited.full` is what the gateway puts into the store.
"""

import unicodedata
from typing import Any, NamedTuple

from toolkiln.execution.executor import Outcome
from toolkiln.model import Limits, Role, ToolSpec
from toolkiln.runtime.wire import encode

_KINDS = {
    "knowledge": 60_000,
    "file": 60_000,
    "file_view": 60_000,
    "execution_result": 8_000,
    "error": 8_000,
    "status": 2_000,
}
_DEFAULT: int = Limits.model_fields["return_char_limit"].default
_WHOLE = 10_000_000
"""For prompts and resources, which no model calls; more than a value can have."""
_TO_A_LINE = 200
"""Characters that are given up at most for cutting between two lines."""
_TO_A_CHARACTER = 64
"""Code points that are looked at for the edge of a character; none that is real is longer."""
_FLAGS = 10_000
"""Code points before a cut in which flags are told apart."""
_JOINER = "\u200d"
_REGIONALS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Two of them in a row are a flag."""
_MARKS = ("Mn", "Me", "Mc")


class Cut(NamedTuple):
    """A text that fits, and how many characters of the original it shows."""

    text: str
    shown: int
    total: int


class Limited(NamedTuple):
    """What the model reads; `full` is what it would have read, if anything was left out."""

    text: str
    full: str | None
    shown: int
    total: int


def render(value: Any) -> str:
    """A value as text: text as it is, nothing for None, JSON for everything else."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value)


def limit_of(spec: ToolSpec) -> int:
    """How many characters of a tool's result a model gets to read."""
    return _limit(spec, spec.output_kind)


def limited(outcome: Outcome, spec: ToolSpec) -> Limited:
    """What the model reads of an outcome."""
    if outcome.error is None and not outcome.is_tool_result:
        full, whole = render(outcome.value), _limit(spec, spec.output_kind)
        if (total := len(full)) <= whole:  # most results, in the time that they deserve
            return Limited(full, None, total, total)
        text, shown, total = cut(full, whole)
    else:
        parts, whole = _parts(outcome, spec)
        full = "\n".join(text for text, _ in parts)
        text, shown, total = _cut_parts(parts, whole)
    return Limited(text, None if shown == total else full, shown, total)


def cut(text: str, limit: int) -> Cut:
    """Keep the head and the tail of a text, and say between them what is missing.

    What comes out is never longer than the limit; where that is too small for saying
    anything, it is the head alone.
    """
    total = len(text)
    if total <= limit:
        return Cut(text, total, total)
    # The marker for fewer characters is never longer than the one for all.
    room = limit - len(_marker(total))
    if room < len(_marker(total)):
        head = text[: _edge(text, limit, -1)]
        return Cut(head, len(head), total)
    end = _head_end(text, room - room // 3)
    start = _tail_start(text, total - room // 3)
    missing = start - end
    return Cut(f"{text[:end]}{_marker(missing)}{text[start:]}", total - missing, total)


def _limit(spec: ToolSpec, kind: str | None) -> int:
    if spec.role is not Role.TOOL:
        return _WHOLE
    # What an author wrote down is more particular than the kind.
    own = spec.limits.return_char_limit
    return own if own != _DEFAULT or kind is None else _KINDS.get(kind, own)


def _parts(outcome: Outcome, spec: ToolSpec) -> tuple[list[tuple[str, int]], int]:
    """The texts of an outcome, each with its own limit, and the limit of the whole."""
    error = outcome.error
    complaint = f"error: {error.message}" if error else ""
    if error and error.hint:
        complaint += f"\nhint: {error.hint}"
    if not outcome.is_tool_result and isinstance(outcome.value, dict):
        # What a tool says beside the sentence, such as lines and fixes, is for the model too.
        more = {k: v for k, v in outcome.value.items() if k not in ("success", "error")}
        complaint += f"\n{render(more)}" if more else ""
    if not outcome.is_tool_result:
        return [(complaint, _KINDS["error"])], _KINDS["error"]
    stdout, stderr = outcome.value["stdout"], outcome.value["stderr"]
    if error and error.message == stdout:
        stdout = ""
    complaint = complaint or (f"stderr: {stderr}" if stderr else "")
    parts = [
        (stdout, _limit(spec, spec.stdout_kind)),
        (complaint, _limit(spec, spec.stderr_kind)),
    ]
    return [(text, limit) for text, limit in parts if text], limit_of(spec)


def _cut_parts(parts: list[tuple[str, int]], whole: int) -> Cut:
    """Cut each text once, from its original, so that every count in a marker is right."""
    if len(parts) < 2:
        text, limit = parts[0] if parts else ("", whole)
        return cut(text, min(limit, whole))
    (first, first_limit), (second, second_limit) = parts
    room = whole - 1  # a line break between them
    first_size, second_size = min(len(first), first_limit), min(len(second), second_limit)
    # Neither pushes the other out: what one does not need of its half goes to the other.
    second_size = min(second_size, max(room // 2, room - first_size))
    upper, lower = cut(first, min(first_size, room - second_size)), cut(second, second_size)
    text = f"{upper.text}\n{lower.text}"
    return Cut(text, upper.shown + 1 + lower.shown, upper.total + 1 + lower.total)


def _marker(missing: int) -> str:
    return f"\n[… {missing:,} characters left out …]\n"


def _head_end(text: str, end: int) -> int:
    line = text.rfind("\n", max(end - _reach(end), 0), end + 1)
    return _edge(text, end if line < 0 else line, -1)


def _tail_start(text: str, start: int) -> int:
    line = text.find("\n", start - 1, start + _reach(len(text) - start))
    return _edge(text, start, 1) if line < 0 else line + 1


def _reach(kept: int) -> int:
    return min(_TO_A_LINE, kept // 8)


def _edge(text: str, position: int, step: int) -> int:
    """The nearest place in one direction that does not tear a character that people see."""
    for place in range(position, position + step * _TO_A_CHARACTER, step):
        if not 0 < place < len(text):
            break
        if not _is_torn(text, place):
            return place
    return position


def _is_torn(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in _MARKS  # accents, variation selectors
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the colours of skin
        or "\U000e0020" <= after <= "\U000e007f"  # the tags of regional flags
        or "\u1160" <= after <= "\u11ff"  # vowels and finals of Hangul
        or (after in _REGIONALS and _regionals_before(text, place) % 2 == 1)
    )


def _regionals_before(text: str, place: int) -> int:
    near = text[max(place - _FLAGS, 0) : place]
    return len(near) - len(near.rstrip(_REGIONALS))
