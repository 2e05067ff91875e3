"""Table of MCP clients: where each has its settings file, and in which format.

Nothing is read or written here; `install` does that.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.config_files import JsonFormat, TomlFormat, YamlFormat

Entry = dict[str, Any]


class Format(Protocol):
    """A file format in which one entry can be changed."""

    def entry(self, text: str, keys: Sequence[str]) -> Entry | None:
        """Return the entry under the keys. Raises ValueError if the text cannot be parsed."""
        ...

    def put(
        self, text: str, keys: Sequence[str], entry: Mapping[str, Any], stale: Sequence[str]
    ) -> str:
        """Return the text with an entry. Raises ValueError if that is not possible."""
        ...


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
