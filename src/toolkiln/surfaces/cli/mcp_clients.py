"""MCP clients: where each has its settings file, and how to change one entry in that file.

Nothing is read or written here; `install` does that. Every other line of a file stays byte for
byte, comments included; a change that would lose one is refused.
"""

import json
import re
import sys
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln.errors import InputError

Entry = dict[str, Any]


class _Change(NamedTuple):
    keys: Sequence[str]
    old: Entry | None
    fields: Entry
    """What to write."""
    gone: Sequence[str]
    """What to remove from the old entry."""


class Format(ABC):
    """A file format in which one entry can be changed."""

    def entry(self, text: str, keys: Sequence[str]) -> Entry | None:
        """Return the mapping at the keys; None if there is none.

        Raises:
            ValueError: the text cannot be parsed, or another kind of value is in the way.
        """
        found = self._read(text, keys)
        for key in keys:
            if not isinstance(found, dict):
                raise ValueError(f"the parent of {key!r} is not a mapping")
            if key not in found:
                return None
            found = found[key]
        if not isinstance(found, dict):
            raise ValueError(f"{keys[-1]!r} is not a mapping")
        return found

    def put(self, text: str, keys: Sequence[str], entry: Entry, stale: Sequence[str]) -> str:
        """Return the text with an entry; an existing one loses stale keys and keeps the others.

        Raises:
            ValueError: the text cannot be parsed or changed.
        """
        old = self.entry(text, keys)
        known = old or {}
        fields = {k: v for k, v in entry.items() if k not in known or known[k] != v}
        gone = [key for key in known if key in stale and key not in entry]
        if not fields and not gone:
            return text
        expected = parent = self._read(text, keys)
        for key in keys[:-1]:
            parent = parent.setdefault(key, {})
        parent[keys[-1]] = {k: v for k, v in known.items() if k not in gone} | fields
        changed = self._edited(text, _Change(keys, old, fields, gone))
        if self._read(changed, keys) != expected:
            raise ValueError("it cannot be changed without changing something else")
        return changed

    @abstractmethod
    def _read(self, text: str, keys: Sequence[str]) -> Any: ...

    @abstractmethod
    def _edited(self, text: str, change: _Change) -> str: ...


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
class JsonFormat(Format):
    """JSON, as strict as the client reads it."""

    comments: bool = False

    def _edited(self, text: str, change: _Change) -> str:
        keys, old, fields, gone = change
        text = text if text.strip(_BLANKS) else "{}\n"
        if old is None or gone:
            kept = {key: value for key, value in (old or {}).items() if key not in gone}
            return self._with(text, keys, kept | fields)
        for key, value in fields.items():
            text = self._with(text, [*keys, key], value)
        return text

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

    def _read(self, text: str, keys: Sequence[str]) -> Any:  # noqa: ARG002
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


_ASIDES_AT_END = re.compile(r"(?<=\n)(?:[ \t\r]*(?:#[^\n]*)?(?:\n|\Z))+\Z")
"""Empty lines and comments at the end of a text."""


class TomlFormat(Format):
    """TOML; an existing entry must be a table of its own."""

    def _read(self, text: str, keys: Sequence[str]) -> Any:  # noqa: ARG002
        # As text, not-a-number equals itself.
        return tomllib.loads(text, parse_float=str)

    def _edited(self, text: str, change: _Change) -> str:
        import tomlkit

        keys, fields, gone = list(change.keys), change.fields, change.gone
        eol = _eol(text)
        text = text if not text or text.endswith("\n") else text + eol
        replaced = [[*keys, name] for name in (*fields, *gone)]
        parts: list[str] = []
        table: Any = None
        for section in _toml_sections(text):
            path = _header_path(section)
            if path == keys:
                document = table = tomlkit.parse(section)
                for key in keys:
                    table = table[key]
                for key in gone:
                    table.pop(key, None)
                _set_fields(table, fields, eol)
                parts.append(document.as_string())
            elif path[: len(keys) + 1] in replaced:
                comments = _ASIDES_AT_END.search(section)
                parts.append(comments[0] if comments else "")
            else:
                parts.append(section)
        if table is None:
            table = tomlkit.table()
            _set_fields(table, fields, eol)
            space = eol if text.strip() else ""
            parts.append(f"{space}[{'.'.join(keys)}]{eol}{table.as_string()}")
        return "".join(parts)


def _set_fields(table: Any, fields: Entry, eol: str) -> None:
    import tomlkit

    for key, value in fields.items():
        item: Any = tomlkit.inline_table() if isinstance(value, dict) else tomlkit.item(value)
        if isinstance(value, dict):
            item.update(value)
        item.trivia.trail = eol
        table[key] = item


def _toml_sections(text: str) -> Iterator[str]:
    """Split valid TOML before each header.

    tomlkit gets one section: it would reorder tables that an array of tables interrupts.
    """
    section = ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if line.lstrip().startswith("[") and _is_toml(section):
            yield section
            section = ""
        section += line
    yield section


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except ValueError:  # a value continues on the next line
        return False
    return True


def _header_path(section: str) -> list[str]:
    """Return the keys of the table that a section's first line opens, if it opens one."""
    if not section.lstrip().startswith("["):
        return []
    path: list[str] = []
    table: Any = tomllib.loads(section.partition("\n")[0].rstrip("\r"))
    while isinstance(table, dict) and table:
        ((key, table),) = table.items()
        path.append(key)
    return path


_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON allows in a text, and YAML does not."""
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)\Z)[a-z_][a-z0-9_-]*", re.I)
"""A key that needs no quotes."""


class YamlFormat(Format):
    """YAML; the entry and what is above it must be mappings in block style."""

    def _read(self, text: str, keys: Sequence[str]) -> Any:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            document = YAML(typ="safe", pure=True).load(text)
        except YAMLError as error:
            raise ValueError(getattr(error, "problem", None) or str(error)) from error
        document = parent = {} if document is None else document
        for key in keys:
            if not isinstance(parent, dict) or key not in parent:
                break
            if parent[key] is None:  # `key:` without a value
                parent[key] = {}
            parent = parent[key]
        return document

    def _edited(self, text: str, change: _Change) -> str:
        from ruamel.yaml import YAML
        from ruamel.yaml.nodes import MappingNode

        eol = _eol(text)
        node = YAML(typ="safe", pure=True).compose(text)
        place, indent, missing = len(text), 0, list(change.keys)
        children = node.value if isinstance(node, MappingNode) else []
        while found := [pair for pair in children if missing and pair[0].value == missing[0]]:
            key, node = found[0]
            place = _line_end(text, key.end_mark.index)
            indent = key.start_mark.column + 2
            children = node.value if isinstance(node, MappingNode) else []
            del missing[0]
        if children and len(missing) < len(change.keys):
            indent = children[0][0].start_mark.column
        added = []
        for name in missing:
            added.append(f"{' ' * indent}{name if _PLAIN.fullmatch(name) else _quoted(name)}:{eol}")
            indent += 2
        added += [f"{' ' * indent}{k}: {_quoted(v)}{eol}" for k, v in change.fields.items()]
        after = text[place:]
        if not missing:
            for key, value in reversed(children):
                if key.value in {*change.fields, *change.gone}:
                    start, end = _field_span(text, key, value)
                    after = after[: start - place] + after[end - place :]
        before = text[:place]
        if isinstance(node, MappingNode) and not children:
            start, end = node.start_mark.index, node.end_mark.index
            before = f"{before[:start]}{before[end:]}".rstrip(_BLANKS) + eol
        elif before and not before.endswith("\n"):
            before += eol
        return "".join([before, *added, after])


def _field_span(text: str, key: Any, value: Any) -> tuple[int, int]:
    """Return where the lines of a field start and end, without comments about the next one."""
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    end = value.end_mark.index
    line = text.rfind("\n", 0, end) + 1
    # A block ends where the next token starts.
    end = _line_end(text, end) if text[line:end].strip(_BLANKS) else line
    return start, start + len(_ASIDES_AT_END.sub("", text[start:end]))


def _line_end(text: str, at: int) -> int:
    return text.find("\n", at) + 1 or len(text)


def _quoted(value: Any) -> str:
    """Return a JSON value on one line in a form that YAML reads as the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _started(command: Sequence[str]) -> Entry:
    return {"command": command[0], "args": list(command[1:])}


def _started_by_type(command: Sequence[str]) -> Entry:
    return {"type": "stdio", **_started(command)}


def _reached_by_type(url: str) -> Entry:
    return {"type": "http", "url": url}


def _reached(url: str) -> Entry:
    return {"url": url}


@dataclass(frozen=True)
class McpClientApp:
    """One client. Its paths are templates for `settings_file`."""

    title: str
    user: tuple[str, ...]
    """The file of a user: the first that exists, else the last."""
    project: tuple[str, ...] = ()
    """The file of a project; empty if the client has none."""
    format: Format = field(default_factory=JsonFormat)
    keys: tuple[str, ...] = ("mcpServers",)
    """The keys above the servers in the file."""
    started: Callable[[Sequence[str]], Entry] = _started
    """The entry of a server that the client starts, from its command."""
    reached: Callable[[str], Entry] | None = _reached
    """The entry of a server that is there already, from its URL; None: there is none."""
    headers: str = "headers"
    """The field of such an entry that holds the HTTP headers to send."""
    first: Callable[[str], Entry] = lambda _: {}
    """What else a new entry says, from its name; an old one may say otherwise."""
    then: str = "restart it"
    """What makes the client see the change."""

    def stale(self, *, remote: bool) -> tuple[str, ...]:
        """What an entry cannot keep when its server is reached in the other way."""
        return _OF_STARTED if remote else _OF_REACHED


_OF_STARTED = ("command", "args", "cmd", "env", "envs", "environment", "cwd", "env_vars")
_OF_REACHED = ("url", "httpUrl", "uri", "headers", "http_headers", "bearer_token_env_var", "oauth")

CLIENTS: Mapping[str, McpClientApp] = {
    "claude-code": McpClientApp(
        title="Claude Code",
        user=("{claude}/.claude.json",),
        project=("{here}/.mcp.json",),
        started=_started_by_type,
        reached=_reached_by_type,
        then="start a new session; /mcp shows it",
    ),
    "claude-desktop": McpClientApp(
        title="Claude Desktop",
        user=("{apps}/Claude/claude_desktop_config.json",),
        reached=None,
    ),
    "cursor": McpClientApp(
        title="Cursor",
        user=("{home}/.cursor/mcp.json",),
        project=("{here}/.cursor/mcp.json",),
        format=JsonFormat(comments=True),
        then="switch it on in its settings, under MCP",
    ),
    "vscode": McpClientApp(
        title="VS Code",
        user=("{apps}/Code/User/mcp.json",),
        project=("{here}/.vscode/mcp.json",),
        format=JsonFormat(comments=True),
        keys=("servers",),
        started=_started_by_type,
        reached=_reached_by_type,
        then="run `MCP: List Servers` in it and start the server",
    ),
    "codex": McpClientApp(
        title="Codex",
        user=("{codex}/config.toml",),
        project=("{here}/.codex/config.toml",),
        format=TomlFormat(),
        keys=("mcp_servers",),
        headers="http_headers",
        then="start a new session; /mcp shows it",
    ),
    "gemini": McpClientApp(
        title="Gemini CLI",
        user=("{home}/.gemini/settings.json",),
        project=("{here}/.gemini/settings.json",),
        format=JsonFormat(comments=True),
        reached=lambda url: {"httpUrl": url},
        then="start a new session; /mcp shows it",
    ),
    "opencode": McpClientApp(
        title="opencode",
        user=("{config}/opencode/opencode.jsonc", "{config}/opencode/opencode.json"),
        project=("{here}/opencode.jsonc", "{here}/opencode.json"),
        format=JsonFormat(comments=True),
        keys=("mcp",),
        started=lambda command: {"type": "local", "command": list(command)},
        reached=lambda url: {"type": "remote", "url": url},
        then="start a new session",
    ),
    "goose": McpClientApp(
        title="Goose",
        user=("{config}/goose/config.yaml",),
        format=YamlFormat(),
        keys=("extensions",),
        started=lambda command: {"type": "stdio", "cmd": command[0], "args": list(command[1:])},
        reached=lambda url: {"type": "streamable_http", "uri": url},
        first=lambda name: {
            "name": name,
            "description": "The tools of a folder",
            "enabled": True,
            "timeout": 300,
        },
        then="start a new session",
    ),
}


def settings_file(templates: Sequence[str], here: Path, environ: Mapping[str, str]) -> Path:
    """Return the file that exists first among some templates, else the last.

    Raises:
        InputError: HOME is not set.
    """
    home = environ.get("HOME")
    if not home:
        raise InputError("HOME is not set", hint="set it, or print the entry with --print")
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    folders = {
        "home": home,
        "here": str(here),
        "config": config,
        "apps": f"{home}/Library/Application Support" if sys.platform == "darwin" else config,
        "claude": environ.get("CLAUDE_CONFIG_DIR") or home,
        "codex": environ.get("CODEX_HOME") or f"{home}/.codex",
    }
    files = [Path(template.format_map(folders)) for template in templates]
    return next((file for file in files if file.exists()), files[-1])
