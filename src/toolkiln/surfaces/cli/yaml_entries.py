"""An entry in a YAML file, by lines: no parser of YAML, and none is needed for this much.

Understood are block mappings with one key to a line, as editors and Goose itself write them.
Whatever else is in the way (flow mappings, several documents, anchors, tabs) is an error, and
the file stays as it is. What lies deeper than an entry's own keys is never looked at.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkiln.surfaces.cli.toml_entries import quoted

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_KEY = re.compile(
    r"""(?:"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<plain>[^\s\-?:,\[\]{}#&*!|>'"%@`][^:#]*))"""
    r"[ \t]*:(?:[ \t]+(?P<value>.*))?"
)
_BLANKS = " \t\r\n"
_NOTHING = re.compile(r"[ \t\r\n]*(?:#.*)?", re.S)
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)\Z)[a-z_][a-z0-9_-]*", re.I)
"""A key that needs no quotes."""
_NUMBER = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True)
class _Item:
    key: str
    value: str
    """What stands behind the colon."""
    at: int
    """The line of the key."""
    end: int
    """The line after its last one."""


class YamlFormat:
    """YAML, as far as it is a mapping in lines."""

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """The mapping under the keys; None if there is none. Deeper values are not understood.

        Raises:
            ValueError: the text cannot be understood.
        """
        lines = _LINE.findall(text)
        depth, item = _deepest(lines, keys)
        if item is None or depth < len(keys):
            return None
        return {field.key: _value(lines, field) for field in _inside(lines, item)}

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Collection[str]
    ) -> str:
        """The text with an entry; one that is there loses what is stale and keeps the rest.

        Raises:
            ValueError: the text cannot be understood.
        """
        old = self.entry(text, keys) or {}
        whole = {k: v for k, v in old.items() if k not in stale} | dict(entry)
        if whole == old:
            return text
        ours = {k: v for k, v in entry.items() if k not in old or old[k] != v}
        changed = _changed(text, keys, ours, {*stale, *ours})
        if self.entry(changed, keys) != whole:
            raise ValueError("it cannot be changed without changing something else")
        return changed


def _changed(text: str, keys: Sequence[str], ours: Mapping[str, Any], gone: Collection[str]) -> str:
    """The text without what is gone from a mapping, and with what is ours at its start."""
    lines = _LINE.findall(text)
    eol = "\r\n" if "\r\n" in text else "\n"
    depth, item = _deepest(lines, keys)
    children = _inside(lines, item) if item else []
    dropped: set[int] = set()
    if depth == len(keys):
        for field in children:
            if field.key in gone:
                dropped.update(range(field.at, _last_said(lines, field) + 1))
    indent = _depth_of(lines[children[0].at]) if children else _indent_below(lines, item)
    added: list[str] = []
    for key in keys[depth:]:
        added.append(f"{' ' * indent}{key if _PLAIN.fullmatch(key) else quoted(key)}:{eol}")
        indent += 2
    added += [f"{' ' * indent}{key}: {quoted(value)}{eol}" for key, value in ours.items()]
    if item and item.value.startswith("{}"):
        lines[item.at] = lines[item.at].replace("{}", "", 1).rstrip(_BLANKS) + eol
    place = item.at + 1 if item else len(lines)
    if place and not lines[place - 1].endswith("\n"):
        lines[place - 1] += eol
    before = [line for at, line in enumerate(lines[:place]) if at not in dropped]
    after = [line for at, line in enumerate(lines[place:], place) if at not in dropped]
    return "".join([*before, *added, *after])


def _deepest(lines: list[str], keys: Sequence[str]) -> tuple[int, _Item | None]:
    """How many of the keys are there one below the other, and the last of those."""
    item: _Item | None = None
    for depth, key in enumerate(keys):
        within = _inside(lines, item) if item else _items(lines, 0, len(lines), 0)
        found = [child for child in within if child.key == key]
        if len(found) > 1:
            raise ValueError(f"{key!r} is there twice")
        if not found:
            return depth, item
        item = found[0]
    return len(keys), item


def _inside(lines: list[str], item: _Item) -> list[_Item]:
    """The items of a mapping that is the value of another item."""
    if not _NOTHING.fullmatch(item.value.removeprefix("{}")):
        raise ValueError(f"line {item.at + 1}: {item.key!r} is no mapping in lines")
    depths = (_depth_of(lines[at]) for at in range(item.at + 1, item.end) if _is_said(lines[at]))
    depth = next(depths, None)
    if depth is None:
        return []
    if depth <= _depth_of(lines[item.at]) or item.value.startswith("{}"):
        raise ValueError(f"line {item.at + 1}: {item.key!r} is no mapping in lines")
    return _items(lines, item.at + 1, item.end, depth)


def _items(lines: list[str], start: int, end: int, depth: int) -> list[_Item]:
    """The items of a mapping; lines that are deeper belong to the item before them."""
    starts: list[tuple[int, str, str]] = []
    for at in range(start, end):
        line = lines[at]
        if not _is_said(line) or (starts and _depth_of(line) > depth):
            continue
        if depth == 0 and not starts and line.rstrip(_BLANKS) == "---":
            continue
        text = line.strip(_BLANKS)
        if _depth_of(line) == depth and starts and (text == "-" or text.startswith("- ")):
            if _NOTHING.fullmatch(starts[-1][2]):
                continue  # an item of a list that is as deep as its key
        found = _KEY.fullmatch(text)
        if not found or _depth_of(line) != depth:
            raise ValueError(f"line {at + 1} is not understood")
        key = found["double"] or found["single"] or (found["plain"] or "").strip()
        starts.append((at, key, found["value"] or ""))
    ends = [*(at for at, _, _ in starts), end][1:]
    return [_Item(key, value, at, end) for (at, key, value), end in zip(starts, ends, strict=True)]


def _last_said(lines: list[str], item: _Item) -> int:
    """The last line of an item; what follows is about the next one."""
    return max(at for at in range(item.at, item.end) if _is_said(lines[at]))


def _indent_below(lines: list[str], item: _Item | None) -> int:
    return _depth_of(lines[item.at]) + 2 if item else 0


def _is_said(line: str) -> bool:
    return not _NOTHING.fullmatch(line)


def _depth_of(line: str) -> int:
    blank = line[: len(line) - len(line.lstrip(_BLANKS))]
    if "\t" in blank:
        raise ValueError("it is indented with tabs")
    return len(blank)


def _value(lines: list[str], item: _Item) -> Any:
    """A scalar, or a list or mapping of scalars; None for anything else."""
    if not _NOTHING.fullmatch(item.value):
        return _scalar(item.value)
    listed = [line.strip(_BLANKS) for line in lines[item.at + 1 : item.end] if _is_said(line)]
    if listed and all(line.startswith("- ") for line in listed):
        return [_scalar(line[2:].strip(_BLANKS)) for line in listed]
    try:
        return {inner.key: _scalar(inner.value) for inner in _inside(lines, item)} or None
    except ValueError:
        return None


def _scalar(text: str) -> Any:
    if text[:1] in ('"', "[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return None
    if text[:1] == "'":
        return text[1:-1].replace("''", "'") if len(text) > 1 and text.endswith("'") else None
    plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if plain in ("true", "false"):
        return plain == "true"
    if _NUMBER.fullmatch(plain):
        return int(plain)
    return None if plain[:1] in tuple("&*!|>{%@`") else plain
