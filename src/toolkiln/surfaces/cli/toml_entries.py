"""An entry in a TOML file: read, or put in while every other line stays as it is.

The standard library reads TOML and does not write it. An entry is a table of its own, put at
the end; of one that is there, only the statements that say how the server starts are replaced.
"""

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from toolkiln.surfaces.cli.entries import put_under, under

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON allows in a text, and others do not."""


class TomlFormat:
    """TOML, of which comments and order are kept."""

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """The table under the keys; None if there is none.

        Raises:
            ValueError: the text cannot be understood.
        """
        return under(_read(text), keys)

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
    """The text without what is gone from a table, and with what is ours at its end."""
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
    """A value in TOML; a mapping becomes an inline table."""
    if not isinstance(value, Mapping):
        return quoted(value)
    return f"{{ {', '.join(f'{quoted(key)} = {_inline(one)}' for key, one in value.items())} }}"


def quoted(value: Any) -> str:
    """A value of JSON in a form that TOML and YAML read as the same, without line breaks."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _read(text: str) -> dict[str, Any]:
    # As text, not-a-number equals itself.
    return tomllib.loads(text, parse_float=str)


def _statements(text: str) -> list[str]:
    """Valid TOML in its smallest parts that are valid: headers, values, comments, empty lines."""
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
    """The keys of the table that a header opens; none if it is no such header."""
    if not _is_header(part):
        return []
    keys: list[str] = []
    table = tomllib.loads(part)
    while isinstance(table, dict) and table:
        ((key, table),) = table.items()
        keys.append(key)
    return keys if isinstance(table, dict) else []
