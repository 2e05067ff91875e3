"""Settings: `toolkiln.toml`, overridden by `TOOLKILN_*` variables. The only reader of either."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from toolkiln.errors import ConfigError, nearest_hint

FILE_NAME = "toolkiln.toml"
_PREFIX = "TOOLKILN_"


@dataclass(frozen=True)
class Settings:
    """What an operator can set."""

    tools: Path = Path("tools")
    """The file or folder that holds the tools."""
    state: Path = Path(".toolkiln")
    """Where versions, environments, workspaces and results are kept."""
    store: str = ""
    """A `postgresql://` URL; empty: an SQLite file in the state folder."""
    dev: bool = False
    """Whether what is on disk is served without anybody admitting it."""
    manifest_key: str = ""
    """What manifests are sealed with; without it a checksum tells damage, not forgery."""
    authoring: str = "admit"
    """What becomes of tools that agents write: `admit`, `propose` (a person decides), `off`."""
    refuse: tuple[str, ...] = ()
    """Rules whose findings keep a version from being admitted, besides all errors."""
    embeddings: str = ""
    """URL of an OpenAI-compatible embeddings endpoint; empty: the bundled vectors."""
    embeddings_model: str = ""
    embeddings_dimensions: int = 1536
    """How many numbers that model's vectors have."""
    embeddings_key: str = ""
    learn_usages: bool = False
    """Whether the prompts of successful calls are kept, for search to learn from."""
    sandbox: str = "auto"
    """`auto`, or one mode: A, B or C."""
    allow_reduced: bool = False
    """Whether mode C may serve where A and B do not work."""
    show_exceptions: bool = False
    """Whether callers see the text of exceptions that are no ToolError."""
    exclude_newer: str = ""
    """A date: packages uploaded later are not chosen."""
    private_networks: tuple[str, ...] = ()
    """Ranges such as 10.1.0.0/16 that granted hosts may lead to."""
    workspace_bytes: int = 256 << 20
    workspace_files: int = 10_000
    limits: Mapping[str, float] = field(default_factory=dict)
    """The most that tools get: timeout, memory, cpu, processes, disk."""
    grants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By tool, or `*` for all: network, workspace, sandbox."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The process's variables, for package installs to find their index."""


_CHOICES = {"sandbox": ("auto", "A", "B", "C"), "authoring": ("admit", "propose", "off")}
_LIMITS = ("timeout", "memory", "cpu", "processes", "disk")
_ENDLESS = 2**60
_GRANTS = {"network": list, "workspace": str, "sandbox": bool}
_NOT_SET = ("environ",)


def load(folder: Path, environ: Mapping[str, str]) -> Settings:
    """The settings for work in `folder`.

    Raises:
        ConfigError: the file cannot be parsed, or sets something that does not exist.
    """
    file = folder / FILE_NAME
    known = {item.name: item.default for item in fields(Settings) if item.name not in _NOT_SET}
    values: dict[str, Any] = {}
    for name, value in _table(file).items():
        if name not in known:
            hint = nearest_hint(name, known) or f"known settings: {', '.join(sorted(known))}"
            raise ConfigError(f"{file}: there is no setting {name!r}", hint=hint)
        values[name] = _checked(name, value, known[name], str(file))
    for name, default in known.items():
        variable = _PREFIX + name.upper()
        if variable in environ and not isinstance(default, tuple) and name not in _TABLES:
            values[name] = _checked(name, _from_text(environ[variable], default), default, variable)
    values["tools"] = folder / values.get("tools", Settings.tools)
    values["state"] = folder / values.get("state", _home_state(environ))
    return Settings(**values, environ=environ)


def _home_state(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME")
    if not base and (home := environ.get("HOME")):
        base = f"{home}/.local/state"
    return Path(base, "toolkiln") if base else Settings.state


def _checked(name: str, value: Any, default: Any, origin: str) -> Any:
    if name in _TABLES:
        return _TABLES[name](value, origin)
    if isinstance(default, Path):
        if not isinstance(value, str) or not value or "\0" in value:
            hint = f'write {name} = "{default}"'
            raise ConfigError(f"{origin}: {name} is {value!r}, not a path", hint=hint)
        return Path(value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{origin}: {name} is not a list of texts")
        return tuple(value)
    if type(value) is not type(default):
        kind = type(default).__name__
        raise ConfigError(f"{origin}: {name} is {value!r}, not of type {kind}")
    if isinstance(default, int) and value < 0:
        raise ConfigError(f"{origin}: {name} is {value!r}, below zero")
    if name in _CHOICES and value not in _CHOICES[name]:
        hint = f"one of {', '.join(_CHOICES[name])}"
        raise ConfigError(f"{origin}: {name} is {value!r}", hint=hint)
    return value


def _from_text(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isdigit() else text
    return text


def _limits(value: Any, origin: str) -> dict[str, float]:
    table = _as_table("limits", value, origin)
    for name, number in table.items():
        if name not in _LIMITS:
            raise ConfigError(
                f"{origin}: limits has no {name!r}", hint=f"one of {', '.join(_LIMITS)}"
            )
        least = 0.001 if name in ("timeout", "cpu") else 1
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not least <= number < _ENDLESS
        ):
            hint = f"a number from {least:g} on"
            raise ConfigError(f"{origin}: limits.{name} is {number!r}", hint=hint)
    return table


def _grants(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    for tool, grant in _as_table("grants", value, origin).items():
        for name, granted in _as_table(f"grants.{tool}", grant, origin).items():
            if name not in _GRANTS:
                raise ConfigError(
                    f"{origin}: grants.{tool} has no {name!r}", hint=f"one of {', '.join(_GRANTS)}"
                )
            if (
                not isinstance(granted, _GRANTS[name])
                or (name == "workspace" and granted not in ("read", "write"))
                or (isinstance(granted, list) and not all(isinstance(h, str) for h in granted))
            ):
                raise ConfigError(
                    f"{origin}: grants.{tool}.{name} is {granted!r}",
                    hint='network = ["api.example.com"], workspace = "read" or "write", '
                    "sandbox = false",
                )
    return dict(value)


def _as_table(name: str, value: Any, origin: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{origin}: {name} is {value!r}, not a table")
    return value


_TABLES = {"limits": _limits, "grants": _grants}


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="correct the file") from error
