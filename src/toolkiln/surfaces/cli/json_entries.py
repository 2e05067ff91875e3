"""An entry in a JSON file: read, or put in while every other byte stays as it is.

Comments and trailing commas are blanked out for parsing, so that what is left is JSON with
the same positions. What a file means before and after is compared: an edit that would change
anything else is refused.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolkiln.surfaces.cli.entries import put_under, under

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.S)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=[ \t\r\n]*[}}\]])")
_BLANKS = " \t\r\n"
_BLANK = re.compile(r"[ \t\r\n]*")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


class _Span(NamedTuple):
    start: int
    end: int


@dataclass(frozen=True)
class JsonFormat:
    """JSON, as strict as its client reads it."""

    comments: bool = False

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """The object under the keys; None if there is none.

        Raises:
            ValueError: the text cannot be understood.
        """
        return under(self._read(text), keys)

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Collection[str]
    ) -> str:
        """The text with an entry; one that is there loses what is stale and keeps the rest.

        Raises:
            ValueError: the text cannot be understood.
        """
        old = self.entry(text, keys)
        whole = {k: v for k, v in (old or {}).items() if k not in stale} | dict(entry)
        expected = self._read(text)
        put_under(expected, keys, whole)
        changed = text if text.strip(_BLANKS) else "{}\n"
        if old is None or not old.keys().isdisjoint(stale):
            changed = self._with(changed, keys, whole)
        else:
            for key, value in entry.items():
                if key not in old or old[key] != value:
                    changed = self._with(changed, [*keys, key], value)
        if self._read(changed) != expected:
            raise ValueError("it cannot be changed without changing something else")
        return changed

    def _with(self, text: str, keys: Sequence[str], value: Any) -> str:
        """The text with a value under the keys, in place of the one that is there."""
        bare = self._bare(text)
        parent = _Span(_after_blank(bare, 0), len(bare.rstrip(_BLANKS)))
        depth = 0
        while (child := _members(bare, parent).get(keys[depth])) and depth < len(keys) - 1:
            parent, depth = child, depth + 1
        for key in reversed(keys[depth + 1 :]):
            value = {key: value}
        if child:
            shown = _shown(text, value, _indent(text, child.start))
            return text[: child.start] + shown + text[child.end :]
        return self._inserted(text, parent, keys[depth], value)

    def _read(self, text: str) -> Any:
        return _DECODER.decode(self._bare(text)) if text.strip(_BLANKS) else {}

    def _bare(self, text: str) -> str:
        return _blanked(_LAST_COMMA, self._uncommented(text)) if self.comments else text

    def _uncommented(self, text: str) -> str:
        return _blanked(_COMMENT, text) if self.comments else text

    def _inserted(self, text: str, parent: _Span, key: str, value: Any) -> str:
        """The text with one more member at the end of an object."""
        members = _members(self._bare(text), parent)
        close = parent.end - 1
        if not members:
            # A comment in an object that is empty otherwise stays at its top.
            head = text[:close].rstrip(_BLANKS)
            outer = _indent(text, parent.start)
            inner = outer + _unit(text)
            eol = _eol(text)
            shown = _shown(text, value, inner)
            return f"{head}{eol}{inner}{json.dumps(key)}: {shown}{eol}{outer}{text[close:]}"
        last = max(members.values(), key=lambda span: span.end).end
        first = min(members.values(), key=lambda span: span.start).start
        inner = _indent(text, first)
        in_lines = "\n" in text[parent.start : close]
        separator = _eol(text) + inner if in_lines else " "
        shown = _shown(text, value, inner) if in_lines else json.dumps(value, ensure_ascii=False)
        comma = "" if "," in self._uncommented(text)[last:close] else ","
        kept = text[last:close].rstrip(_BLANKS)
        blank = text[last + len(kept) : close]
        member = f"{separator}{json.dumps(key)}: {shown}"
        return f"{text[:last]}{comma}{kept}{member}{blank}{text[close:]}"


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    """The text with spaces for what is found, but strings and the ends of lines as they are."""
    return pattern.sub(
        lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\r\n]", " ", found[0]), text
    )


def _after_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start


def _members(bare: str, span: _Span) -> dict[str, _Span]:
    """Where the values of an object of valid JSON are."""
    found: dict[str, _Span] = {}
    at = _after_blank(bare, span.start + 1)
    while bare[at] != "}":
        key, at = _DECODER.raw_decode(bare, at)
        start = _after_blank(bare, _after_blank(bare, at) + 1)
        _, end = _DECODER.raw_decode(bare, start)
        found[key] = _Span(start, end)
        at = _after_blank(bare, end)
        if bare[at] == ",":
            at = _after_blank(bare, at + 1)
    return found


def _shown(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_eol(text) + indent).join(lines)


def _indent(text: str, at: int) -> str:
    """The blanks that the line of a position starts with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.M)
    return found[1] if found else "  "


def _eol(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
