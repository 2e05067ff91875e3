"""Settings files of MCP clients in JSON, TOML and YAML: read, add and update one entry.

Everything else in a file stays byte for byte, comments included.
"""

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Entry = dict[str, Any]


def under(found: Any, keys: Sequence[str]) -> Entry | None:
    """Return the mapping at a path of keys; None if there is none.

    Raises:
        ValueError: another kind of value is in the way.
    """
    for key in keys:
        if not isinstance(found, dict):
            raise ValueError(f"the parent of {key!r} is not a mapping")
        if key not in found:
            return None
        found = found[key]
    if not isinstance(found, dict):
        raise ValueError(f"{keys[-1]!r} is not a mapping")
    return found


def put_under(found: Entry, keys: Sequence[str], entry: Entry) -> None:
    """Put an entry at a path of keys."""
    for key in keys[:-1]:
        found = found.setdefault(key, {})
    found[keys[-1]] = entry


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
    """JSON, as strict as the client reads it."""

    comments: bool = False

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """Return the object at the keys; None if there is none.

        Raises:
            ValueError: the text cannot be understood.
        """
        return under(self._read(text), keys)

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Collection[str]
    ) -> str:
        """Return the text with an entry; an existing one loses stale keys and keeps the others.

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
        """Return the text with another value at the keys."""
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
        """Return the text with one more member at the end of an object."""
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
    """Return the text with matches blanked out, except in strings; line ends stay."""
    return pattern.sub(
        lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\r\n]", " ", found[0]), text
    )


def _after_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start


def _members(bare: str, span: _Span) -> dict[str, _Span]:
    """Return the positions of the values of a JSON object."""
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
    """Return the indentation of the line at a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.M)
    return found[1] if found else "  "


def _eol(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON allows in a text, and others do not."""


class TomlFormat:
    """TOML; comments and order are kept."""

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """Return the table at the keys; None if there is none.

        Raises:
            ValueError: the text cannot be understood.
        """
        return under(_read(text), keys)

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Collection[str]
    ) -> str:
        """Return the text with an entry; an existing one loses stale keys and keeps the others.

        Raises:
            ValueError: the text cannot be understood.
        """
        old = self.entry(text, keys) or {}
        whole = {k: v for k, v in old.items() if k not in stale} | dict(entry)
        if whole == old:
            return text
        ours = {k: v for k, v in entry.items() if k not in old or old[k] != v}
        changed = _changed(text, list(keys), ours, {*stale, *ours})
        expected = _read(text)
        put_under(expected, keys, whole)
        try:
            matches = _read(changed) == expected
        except ValueError:
            matches = False
        if not matches:  # it is written as `{…}` or by dotted keys, for example
            raise ValueError(f"[{'.'.join(keys)}] can be no table of its own in it")
        return changed


def _changed(text: str, keys: list[str], ours: Mapping[str, Any], gone: Collection[str]) -> str:
    """Return a table's text without removed keys, and with the new ones at its end."""
    eol = "\r\n" if "\r\n" in text else "\n"
    added = [f"{key} = {_inline(value)}{eol}" for key, value in ours.items()]
    kept: list[str] = []
    place: int | None = None
    table: list[str] = []
    for part in _statements(text):
        is_header = _is_header(part)
        if is_header:
            table = _opens(part)
        names = [] if is_header else list(tomllib.loads(part))
        if [*table, *names][: len(keys) + 1] in [[*keys, name] for name in gone]:
            continue
        kept.append(part)
        if table == keys and (is_header or names):
            place = len(kept)
    if place is None:
        end = "" if not text or text.endswith("\n") else eol
        space = eol if text.strip() else ""
        return f"{''.join(kept)}{end}{space}[{'.'.join(keys)}]{eol}{''.join(added)}"
    if added and not kept[place - 1].endswith("\n"):
        kept[place - 1] += eol
    return "".join([*kept[:place], *added, *kept[place:]])


def _inline(value: Any) -> str:
    """Return a value in TOML; a mapping becomes an inline table."""
    if not isinstance(value, Mapping):
        return quoted(value)
    return f"{{ {', '.join(f'{quoted(key)} = {_inline(one)}' for key, one in value.items())} }}"


def quoted(value: Any) -> str:
    """Return a JSON value on one line in a form that TOML and YAML read as the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _read(text: str) -> dict[str, Any]:
    # As text, not-a-number equals itself.
    return tomllib.loads(text, parse_float=str)


def _statements(text: str) -> list[str]:
    """Split valid TOML into headers, values, comments and empty lines."""
    parts: list[str] = []
    part = ""
    for line in _LINE.findall(text):
        part += line
        try:
            tomllib.loads(part)
        except ValueError:
            continue  # the value goes on in the next line
        parts.append(part)
        part = ""
    return parts


def _is_header(part: str) -> bool:
    return part.lstrip().startswith("[")


def _opens(part: str) -> list[str]:
    """Return the keys of the table that a header opens; empty if it is not such a header."""
    if not _is_header(part):
        return []
    keys: list[str] = []
    table = tomllib.loads(part)
    while isinstance(table, dict) and table:
        ((key, table),) = table.items()
        keys.append(key)
    return keys if isinstance(table, dict) else []


_KEY = re.compile(
    r"""(?:"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<plain>[^\s\-?:,\[\]{}#&*!|>'"%@`][^:#]*))"""
    r"[ \t]*:(?:[ \t]+(?P<value>.*))?"
)

_NOTHING = re.compile(r"[ \t\r\n]*(?:#.*)?", re.S)
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)\Z)[a-z_][a-z0-9_-]*", re.I)
"""A key that needs no quotes."""
_NUMBER = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True)
class _Item:
    key: str
    value: str
    """The text after the colon."""
    at: int
    """The line of the key."""
    end: int
    """The line after its last one."""


class YamlFormat:
    """YAML in block style."""

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """Return the mapping at the keys; None if there is none. Deeper values are not parsed.

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
        """Return the text with an entry; an existing one loses stale keys and keeps the others.

        Raises:
            ValueError: the text cannot be understood.
        """
        old = self.entry(text, keys) or {}
        whole = {k: v for k, v in old.items() if k not in stale} | dict(entry)
        if whole == old:
            return text
        ours = {k: v for k, v in entry.items() if k not in old or old[k] != v}
        changed = _yaml_entries_changed(text, keys, ours, {*stale, *ours})
        if self.entry(changed, keys) != whole:
            raise ValueError("it cannot be changed without changing something else")
        return changed


def _yaml_entries_changed(
    text: str, keys: Sequence[str], ours: Mapping[str, Any], gone: Collection[str]
) -> str:
    """Return a mapping's text without removed keys, and with the new ones at its start."""
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
    """Return how many of the keys exist, nested, and the last of them."""
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
    """Return the items of the mapping that is the value of an item."""
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
    """Return the items of a mapping; deeper lines belong to the item before them."""
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
    """Return the last line of an item, without comments about the next one."""
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
    """Parse a scalar, or a list or mapping of scalars; None for anything else."""
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
