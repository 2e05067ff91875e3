"""An entry in a TOML file: read, or put in while every other line stays as it is.

The standard library reads TOML and does not write it. An entry is a table of its own, put at
the end; of one that is there, only the statements that say how the server starts are replaced.
"""

import copy
import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class TomlFormat:
    """TOML, of which comments and order are kept."""

    def entry(self, text: str, keys: Sequence[str]) -> dict[str, Any] | None:
        """The table under the keys; None if there is none.

        Raises:
            ValueError: the text cannot be understood.
        """
        found: Any = tomllib.loads(text)
        for key in keys:
            if not isinstance(found, dict):
                raise ValueError(f"what holds {key!r} is no table")
            if key not in found:
                return None
            found = found[key]
        if not isinstance(found, dict):
            raise ValueError(f"{keys[-1]!r} is no table")
        return found

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Collection[str]
    ) -> str:
        """The text with an entry; one that is there loses what is stale and keeps the rest.

        Raises:
            ValueError: the text cannot be understood.
        """
        old = self.entry(text, keys) or {}
        expected = copy.deepcopy(tomllib.loads(text))
        table = expected
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = {k: v for k, v in old.items() if k not in stale} | dict(entry)
        eol = "\r\n" if "\r\n" in text else "\n"
        ours = [f"{k} = {json.dumps(v, ensure_ascii=False)}{eol}" for k, v in entry.items()]
        parts = list(_statements(text))
        header = next((i for i, part in enumerate(parts) if _opens(part) == list(keys)), None)
        if header is None:
            end = "" if not text or text.endswith("\n") else eol
            space = eol if text.strip() else ""
            changed = f"{text}{end}{space}[{'.'.join(keys)}]{eol}{''.join(ours)}"
        else:
            after = range(header + 1, len(parts))
            end_of_table = next((i for i in after if _is_header(parts[i])), len(parts))
            kept = [
                part
                for part in parts[header + 1 : end_of_table]
                if tomllib.loads(part).keys().isdisjoint({*stale, *entry})
            ]
            opening = parts[header] if parts[header].endswith("\n") else parts[header] + eol
            changed = "".join([*parts[:header], opening, *ours, *kept, *parts[end_of_table:]])
        # A table that is written as `{…}` or by dotted keys cannot be extended like that.
        if tomllib.loads(changed) != expected:
            raise ValueError("it cannot be changed without changing something else")
        return changed


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
