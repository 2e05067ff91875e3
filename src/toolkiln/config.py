"""Settings: `toolkiln.toml`, overridden by `TOOLKILN_*` variables. The only reader of either."""

import os
import re
import reprlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln.errors import ConfigError, nearest_hint

FILE_NAME = "toolkiln.toml"
_PREFIX = "TOOLKILN_"


class Stamp(NamedTuple):
    """What changes whenever a file does."""

    changed: int
    """When anything was, permissions too: nanoseconds of Unix time."""
    modified: int
    size: int
    inode: int
    device: int


@dataclass(frozen=True)
class Settings:
    """What an operator can set."""

    tools: Path = Path("tools")
    """The file or folder that holds the tools."""
    state: Path = Path(".toolkiln")
    """Where versions, environments, workspaces and results are kept."""
    store: str = field(default="", repr=False)
    """A `postgresql://` URL; empty: an SQLite file in the state folder."""
    dev: bool = False
    """Whether what is on disk is served without anybody admitting it."""
    manifest_key: str = field(default="", repr=False)
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
    embeddings_key: str = field(default="", repr=False)
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
    """By tool, or `*` for all: network, workspace, sandbox, secrets."""
    policy: str = "allow"
    """What becomes of calls that no rule fits: `allow`, `deny` or `ask`."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Who may run what, in order: each with the fields of `model.Rule`."""
    privileges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By user, or `group:NAME`: what they may beyond calling tools."""
    rates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By glob of tools: `caller`, `tool`, each such as `60/minute`."""
    approval_seconds: int = 300
    """How long a call waits for a person; unanswered is no."""
    session_seconds: int = 300
    """How long a session holds, unless it is renewed."""
    audit_key: str = field(default="", repr=False)
    """What the audit is sealed with; empty: a key that is made up, in the state folder."""
    audit_days: int = 0
    """How long records are kept; 0: for ever."""
    secrets_file: Path | None = None
    """Holds secrets; None: `secrets.toml` in the state folder."""
    keyring: bool = False
    """Whether secrets are looked for in the system's keyring as well."""
    redis: str = field(default="", repr=False)
    """A `redis://` URL where sessions and rates are shared; empty: in the store."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The process's variables, for package installs to find their index."""
    source: Path | None = field(default=None, compare=False)
    """The file that was looked for, whether it is there or not."""
    seen: Stamp | None = field(default=None, compare=False)
    """That file as it was when it was read."""

    def made_state(self) -> Path:
        """The state folder, made if there is none.

        Open to others: what is private in it is so itself, and sandboxes run as another user.
        """
        state = self.state.absolute()
        with suppress(OSError):  # whoever needs it says what is wrong with it
            state.mkdir(mode=0o755, parents=True, exist_ok=True)
        return state


_EFFECTS = ("allow", "deny", "ask")
_CHOICES = {
    "sandbox": ("auto", "A", "B", "C"),
    "authoring": ("admit", "propose", "off"),
    "policy": _EFFECTS,
}
_KINDS = {"str": "a text in quotes", "int": "a whole number", "bool": "true or false"}
_PATHS = ("tools", "state", "secrets_file")
_REDIS = ("redis://", "rediss://", "unix://")
_LEAST = {"approval_seconds": 1, "session_seconds": 1}
_HIDDEN = ("manifest_key", "embeddings_key", "audit_key", "redis", "store")
"""Values that no message repeats: they hold passwords."""
_LIMITS = ("timeout", "memory", "cpu", "processes", "disk")
_ENDLESS = 2**60
_GRANTS = {"network": list, "workspace": str, "sandbox": bool, "secrets": list}
_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_RULE = {"effect": str, **dict.fromkeys(_LISTS, tuple), "approve_own": bool, "reason": str}
_WORDS = {
    "effect": _EFFECTS,
    "hints": ("read_only", "destructive", "idempotent", "open_world"),
}
_AS_RULES = 'write [[rules]], and below it effect = "deny" and so on'
_GROUP = "group:"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(rf"([0-9]{{1,10}})/({'|'.join(_SECONDS)})")
_MOST_CALLS = 10**9
_NOT_SET = ("environ", "source", "seen")


def load(folder: Path, environ: Mapping[str, str]) -> Settings:
    """The settings for work in `folder`.

    Raises:
        ConfigError: the file cannot be parsed, or sets something that does not exist.
    """
    file = folder / FILE_NAME
    known = {item.name: item.default for item in fields(Settings) if item.name not in _NOT_SET}
    values: dict[str, Any] = {}
    table, seen = _read(file)
    for name, value in table.items():
        if name not in known:
            raise ConfigError(
                f"{file}: there is no setting {name!r}", hint=_hint(name, sorted(known))
            )
        values[name] = checked(name, value, str(file))
    for name, default in known.items():
        variable = _PREFIX + name.upper()
        if variable in environ and not isinstance(default, tuple) and name not in _TABLES:
            values[name] = checked(name, _from_text(environ[variable], default), variable)
    values.setdefault("tools", Settings.tools)
    values.setdefault("state", _home_state(environ))
    values |= {name: folder / values[name] for name in _PATHS if name in values}
    return Settings(**values, environ=environ, source=file.absolute(), seen=seen)


def checked(name: str, value: Any, origin: str) -> Any:
    """The value of a setting as `Settings` holds it; tables that it holds stay as they are.

    Raises:
        ConfigError: it cannot be used; `origin` says where it stands.
    """
    if name in _TABLES:
        return _TABLES[name](value, origin)
    default = getattr(Settings, name)
    shown = "…" if name in _HIDDEN else reprlib.repr(value)
    if name in _PATHS:
        if not isinstance(value, str) or not value or "\0" in value:
            hint = f'write {name} = "{default or "secrets.toml"}"'
            raise ConfigError(f"{origin}: {name} is {shown}, not a path", hint=hint)
        return Path(value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            hint = f'write {name} = ["…"]'
            raise ConfigError(f"{origin}: {name} is not a list of texts", hint=hint)
        return tuple(value)
    if type(value) is not type(default):
        kind = type(default).__name__
        raise ConfigError(f"{origin}: {name} is {shown}, not of type {kind}", hint=_KINDS[kind])
    if isinstance(default, int) and not _LEAST.get(name, 0) <= value < _ENDLESS:
        hint = f"a number from {_LEAST.get(name, 0)} on"
        raise ConfigError(f"{origin}: {name} is {shown}", hint=hint)
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(f"{origin}: {name} is {shown}", hint=_hint(value, _CHOICES[name]))
    if name == "redis" and value and not value.startswith(_REDIS):
        raise ConfigError(f"{origin}: redis is no such URL", hint="redis://HOST:PORT/NUMBER")
    return value


def pace(rate: Any) -> tuple[int, int]:
    """How many calls within how many seconds `60/minute` means.

    Raises:
        ConfigError: it means nothing.
    """
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if not match or not 1 <= int(match[1]) <= _MOST_CALLS:
        hint = f'such as "60/minute": from 1 to {_MOST_CALLS}, per {", ".join(_SECONDS)}'
        raise ConfigError(f"{reprlib.repr(rate)} is no rate", hint=hint)
    return int(match[1]), _SECONDS[match[2]]


def stamp(file: Path) -> Stamp | None:
    """A file as it is; None if it is not there."""
    try:
        return _stamp(file.stat())
    except FileNotFoundError:
        return None
    except OSError:
        return Stamp(0, 0, 0, 0, 0)  # it is there, or its folder is no folder: reading it tells


def _stamp(status: os.stat_result) -> Stamp:
    times = status.st_ctime_ns, status.st_mtime_ns
    return Stamp(*times, status.st_size, status.st_ino, status.st_dev)


def _home_state(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME")
    if not base and (home := environ.get("HOME")):
        base = f"{home}/.local/state"
    return Path(base, "toolkiln") if base else Settings.state


def _from_text(text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
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
                    'sandbox = false, secrets = ["NAME"]',
                )
    return dict(value)


def _as_table(name: str, value: Any, origin: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        hint = f"write [{name}], and its values below"
        raise ConfigError(f"{origin}: {name} is {reprlib.repr(value)}, not a table", hint=hint)
    return dict(value)


def _rules(value: Any, origin: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{origin}: rules is {reprlib.repr(value)}, not a list", hint=_AS_RULES)
    return tuple(_rule(rule, f"{origin}: rules[{place}]") for place, rule in enumerate(value, 1))


def _rule(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} is {reprlib.repr(value)}, not a table", hint=_AS_RULES)
    rule = {name: _given(name, given, place) for name, given in value.items()}
    if "effect" not in rule:
        raise ConfigError(f"{place} has no effect", hint=f"one of {', '.join(_EFFECTS)}")
    return rule


def _given(name: str, value: Any, place: str) -> Any:
    """What a rule gives for one of its fields."""
    if name not in _RULE:
        raise ConfigError(f"{place} has no {reprlib.repr(name)}", hint=_hint(name, _RULE))
    place = f"{place}.{name}"
    if name in _LISTS:
        value = _texts(value, place)
    elif not isinstance(value, _RULE[name]):
        hint = _KINDS[_RULE[name].__name__]
        raise ConfigError(f"{place} is {reprlib.repr(value)}", hint=hint)
    if name in _WORDS:
        for word in (value,) if name == "effect" else value:
            if word not in _WORDS[name]:
                hint = _hint(word, _WORDS[name])
                raise ConfigError(f"{place} is {reprlib.repr(word)}", hint=hint)
    return value


def _texts(value: Any, place: str) -> tuple[str, ...]:
    """One text or several; none at all would fit nothing and looks like a slip."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ConfigError(f"{place} is {reprlib.repr(value)}", hint="a list of texts")
    if not texts:
        raise ConfigError(f"{place} is empty", hint="leave it out, or list some")
    for text in texts:
        if not isinstance(text, str) or not text or text != text.strip():
            hint = "texts that are not empty, without blanks around them"
            raise ConfigError(f"{place} has {reprlib.repr(text)} in it", hint=hint)
    return tuple(texts)


def _privileges(value: Any, origin: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for who, names in _as_table("privileges", value, origin).items():
        place = f"{origin}: privileges.{reprlib.repr(who)}"
        if who in ("*", _GROUP) or not who or who != who.strip():
            hint = 'name a user, or a group as in "group:admins"'
            raise ConfigError(f"{place} names nobody", hint=hint)
        found[who] = _texts(names, place)
    return found


def _rates(value: Any, origin: str) -> dict[str, dict[str, str]]:
    for glob, rates in _as_table("rates", value, origin).items():
        place = f"rates.{reprlib.repr(glob)}"
        _texts(glob, f"{origin}: rates")
        for name, rate in _as_table(place, rates, origin).items():
            if name not in ("caller", "tool"):
                hint = _hint(name, ("caller", "tool"))
                raise ConfigError(f"{origin}: {place} has no {reprlib.repr(name)}", hint=hint)
            try:
                pace(rate)
            except ConfigError as error:
                message = f"{origin}: {place}.{name}: {error.message}"
                raise ConfigError(message, hint=error.hint) from None
    return dict(value)


def _hint(name: Any, known: Iterable[str]) -> str:
    names = list(known)
    return nearest_hint(str(name)[:100], names) or f"one of {', '.join(names)}"


_TABLES: dict[str, Callable[[Any, str], Any]] = {
    "limits": _limits,
    "grants": _grants,
    "rules": _rules,
    "privileges": _privileges,
    "rates": _rates,
}


def _read(file: Path) -> tuple[dict[str, Any], Stamp | None]:
    """What a file says, and the stamp that it had when it said so."""
    try:
        with file.open("rb") as opened:
            seen = _stamp(os.fstat(opened.fileno()))
            return tomllib.load(opened), seen
    except FileNotFoundError:
        return {}, None
    # A number of thousands of digits is a ValueError, as what is no TOML or no text.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="correct the file") from error
