"""Settings from `toolkiln.toml` and `TOOLKILN_*` variables, which override the file."""

import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln.errors import ConfigError, nearest_hint

FILE_NAME = "toolkiln.toml"
_PREFIX = "TOOLKILN_"
_DEFAULT = "default"


class FileStamp(NamedTuple):
    """File metadata that changes whenever the file does."""

    changed_ns: int
    """Time of the last change, including permissions."""
    modified_ns: int
    size: int
    inode: int
    device: int


@dataclass(frozen=True)
class Settings:
    """The operator's settings."""

    tools: Path = Path("tools")
    """File or folder of the tools."""
    state: Path = Path(".toolkiln")
    """State folder: versions, keys, audit log, environments, workspaces and results."""
    store: str = field(default="", repr=False)
    """`postgresql://` URL; empty for an SQLite file in the state folder."""
    dev: bool = False
    """Whether to serve the files on disk without admission."""
    manifest_key: str = field(default="", repr=False)
    """Key that seals the manifest; without one, a checksum detects damage but not forgery."""
    authoring: str = "auto"
    """How to handle tools written by callers: `auto`, `propose`, `admit` or `off`.

    `auto`: admit if the caller has WRITE_TOOLS, otherwise propose. `propose`: always propose.
    `admit`: agents of the local account need no privilege. `off`: reject.
    """
    proposals_per_caller: int = 20
    """Maximum number of pending proposals of one caller."""
    refuse: tuple[str, ...] = ()
    """Rules whose findings block admission, in addition to all errors."""
    embeddings: str = ""
    """URL of an OpenAI-compatible embeddings endpoint; empty for the bundled vectors."""
    embeddings_model: str = ""
    embeddings_dimensions: int = 1536
    """Length of that model's vectors."""
    embeddings_key: str = field(default="", repr=False)
    learn_usages: bool = False
    """Whether to store the prompts of successful calls to improve search."""
    sandbox: str = "auto"
    """Sandbox mode: `auto`, A, B or C."""
    allow_reduced: bool = False
    """Whether to fall back to mode C where A and B do not work."""
    show_exceptions: bool = False
    """Whether callers see the text of exceptions other than ToolError."""
    exclude_newer: str = ""
    """Date; packages uploaded later are ignored."""
    environment_bytes: int = 2 << 30
    """Maximum unpacked size of the packages of one environment."""
    environment_files: int = 100_000
    """Maximum number of files and folders in one environment, including compiled files."""
    private_networks: tuple[str, ...] = ()
    """Private address ranges, such as 10.1.0.0/16, that granted hosts may resolve to."""
    workspace_bytes: int = 256 << 20
    workspace_files: int = 10_000
    limits: Mapping[str, float] = field(default_factory=dict)
    """Maximum limits of tools: timeout, memory, cpu, processes, disk."""
    grants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Grants by tool, or `*` for all: network, workspace, sandbox, secrets."""
    policy: str = "allow"
    """Effect on calls that match no rule: `allow`, `deny` or `ask`."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Policy rules, in order, with the fields of `model.Rule`."""
    privileges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Privileges by user or `group:NAME`."""
    rates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Rate limits by glob of tools: `caller` and `tool`, such as `60/minute`."""
    approval_seconds: int = 300
    """How long a call waits for approval or for its caller's answer before it is denied."""
    session_seconds: int = 300
    """Lifetime of a session that is not renewed."""
    audit_key: str = field(default="", repr=False)
    """Key that seals the audit log; empty for a generated key in the state folder."""
    audit_days: int = 0
    """Retention of audit records; 0 keeps them forever."""
    secrets_file: Path | None = None
    """File of secrets; by default `secrets.toml` in the state folder."""
    keyring: bool = False
    """Whether to look for secrets in the system keyring as well."""
    redis: str = field(default="", repr=False)
    """`redis://` URL for sessions, rate limits, approvals and results; empty for the store."""
    fleet: str = field(default="", repr=False)
    """`redis://` URL of a fleet; its tools replace the local folder."""
    fleet_key: str = field(default="", repr=False)
    """Shared key of the fleet; empty for a key stored in Redis."""
    fleet_key_fallback: str = field(default="", repr=False)
    """Second `fleet_key` to accept during key rotation."""
    worker_key: str = field(default="", repr=False)
    """Private signing key of a worker."""
    worker_keys: tuple[str, ...] = ()
    """Public keys of the fleet's workers; messages without a valid signature are rejected. Empty:
    signatures are not required. Separated by spaces in the environment variable."""
    fleet_durable: bool = False
    """Whether a call is accepted only once a Redis replica has it."""
    host: str = "127.0.0.1"
    """Address that `serve` listens on."""
    port: int = 8420
    """Port that `serve` listens on; 0 for any free port."""
    require_key: bool | str = "auto"
    """Whether requests from this machine need a credential: true, false, or `auto` (once the
    project has API keys). Requests from other machines always need one."""
    hosts: tuple[str, ...] = ()
    """Accepted host names, in addition to those of this machine."""
    origins: tuple[str, ...] = ()
    """Accepted web origins, in addition to those of this machine."""
    body_bytes: int = 4 << 20
    """Maximum size of a request body."""
    concurrent_requests: int = 500
    """Maximum number of concurrent requests; more get 503."""
    request_seconds: int = 30
    """How long a client may take to send a request or to read part of a response."""
    drain_seconds: int = 30
    """How long running calls may continue once the server is stopping."""
    telemetry: str = ""
    """URL of an OpenTelemetry collector for traces; empty to use the OTEL_* variables."""
    mcp_tools: int = 40
    """Maximum number of tools listed for a model; with more, it uses search."""
    mcp_wait_seconds: int = 0
    """How long an MCP client waits for a call before the call continues as a background task.
    0: as long as the tool may run, or ten seconds for clients that can poll tasks."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The process environment, used to install packages."""
    source: Path | None = field(default=None, compare=False)
    """Path of the settings file, whether it exists or not."""
    file_stamp: FileStamp | None = field(default=None, compare=False)
    """The stamp of that file when it was read."""
    loaded: Mapping[str, tuple[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    """Setting name to its source (file or variable) and the loaded value."""

    def prepare_state(self) -> Path:
        """Return the state folder; create it if missing, private to this account.

        Root's sandboxes run as another user, who may traverse it but not list it. Version
        control ignores it.

        Raises:
            ConfigError: another account owns it or may write to it, so its API keys, versions
                and audit log may be forged.
        """
        state = self.state.absolute()
        with suppress(OSError):  # the first write reports the error
            mode = 0o711 if os.geteuid() == 0 else 0o700
            state.mkdir(mode=mode, parents=True, exist_ok=True)
            _reject_shared(state, mode)
            if not (ignored := state / ".gitignore").exists():
                ignored.touch(mode=0o600)
                ignored.write_text("*\n")
        return state


def _reject_shared(folder: Path, private_mode: int) -> None:
    """Reject a folder that other accounts can write to; remove their read permission."""
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"the state folder {folder} belongs to another account (user {status.st_uid})",
            hint="run Toolkiln as that user, or set TOOLKILN_STATE to a folder of your own",
        )
    if mode & 0o022:
        raise ConfigError(
            f"other accounts can write to the state folder {folder}",
            hint=f"check its content, then `chmod go-w {folder}`; or set TOOLKILN_STATE to "
            "another folder",
        )
    if status.st_uid == os.geteuid() and mode & 0o077 & ~private_mode:
        folder.chmod(mode & private_mode)


_EFFECTS = ("allow", "deny", "ask")
_TYPES = {"str": "use a string in quotes", "int": "use an integer", "bool": "use true or false"}
_MAX_NUMBER = 2**60
_LIMITS = ("timeout", "memory", "cpu", "processes", "disk")
_GRANTS = {"network": list, "workspace": str, "sandbox": bool, "secrets": list}
_RULE_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_RULE_SCALARS = {"effect": str, "approve_own": bool, "reason": str}
_RULE_CHOICES = {
    "effect": _EFFECTS,
    "hints": ("read_only", "destructive", "idempotent", "open_world"),
}
_RULES_HINT = 'write [[rules]], followed by effect = "deny" and other fields'
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(rf"([0-9]{{1,10}})/({'|'.join(_SECONDS)})")
_MAX_RATE = 10**9
_CHOICES = {
    "sandbox": ("auto", "A", "B", "C"),
    "authoring": ("auto", "propose", "admit", "off"),
    "policy": _EFFECTS,
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_REQUIRE_KEY: Mapping[str, bool | str] = {**_BOOLEANS, "auto": "auto"}
_PATHS = ("tools", "state", "secrets_file")
_REDIS = ("redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://")
_POSITIVE = (
    "environment_bytes", "environment_files", "approval_seconds", "session_seconds",
    "body_bytes", "concurrent_requests", "request_seconds",
)  # fmt: skip
_SECRETS = (
    "manifest_key", "embeddings_key", "audit_key", "redis", "fleet", "fleet_key",
    "fleet_key_fallback", "worker_key", "store",
)  # fmt: skip
"""Settings with passwords or keys; messages never repeat their values."""
_METADATA = ("environ", "source", "file_stamp", "loaded")
_LOGIN = re.compile(r"//[^/@]*@")


class Setting(NamedTuple):
    """One setting for display."""

    name: str
    value: Any
    """None if hidden."""
    is_hidden: bool
    """Whether it is a secret that is set."""
    origin: str
    """The file or variable that set it, `default`, or `program` for a command-line option."""


def load(folder: Path, environ: Mapping[str, str], tools: Path | None = None) -> Settings:
    """Load the settings of a project for a process that runs in `folder`.

    `toolkiln.toml` is searched in `folder`, then, if `tools` or TOOLKILN_TOOLS is set, in the
    tools folder and its parent. The project is the folder of that file, or without one the
    parent of the tools folder. Paths in the file are relative to the project, those of
    arguments and variables to `folder`.

    Raises:
        ConfigError: the file cannot be parsed, or a setting is unknown or invalid.
    """
    file = _find(folder, tools or environ.get(_PREFIX + "TOOLS"))
    return _load(file, folder, environ)


def project_settings(tools: str | Path | None = None) -> Settings:
    """Load the settings of the project in the current folder, with the process environment."""
    return load(Path.cwd(), os.environ, None if tools is None else Path(tools))


def reload(settings: Settings) -> Settings:
    """Load the settings again from the same file."""
    assert settings.source is not None
    return _load(settings.source, settings.source.parent, settings.environ)


def _load(file: Path, folder: Path, environ: Mapping[str, str]) -> Settings:
    known = {item.name: item.default for item in fields(Settings) if item.name not in _METADATA}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    table, file_stamp = _read(file)
    for name, value in table.items():
        if name not in known:
            hint = _hint_from(name, sorted(known))
            raise ConfigError(f"{file}: there is no setting {name!r}", hint=hint)
        values[name] = check_setting(name, value, str(file))
        origins[name] = str(file.absolute())
    for name, default in known.items():
        variable = _PREFIX + name.upper()
        is_text = not isinstance(default, tuple) or name == "worker_keys"
        if variable in environ and is_text and name not in _TABLES:
            values[name] = check_setting(name, _from_text(environ[variable], default), variable)
            origins[name] = variable
    values.setdefault("tools", Settings.tools)
    values.setdefault("state", Settings.state)
    for name in _PATHS:
        if name in values:
            is_variable = origins.get(name, "").startswith(_PREFIX)
            values[name] = (folder if is_variable else file.parent) / values[name]
    loaded = {name: (origins.get(name, _DEFAULT), value) for name, value in values.items()}
    return Settings(
        **values, environ=environ, source=file.absolute(), file_stamp=file_stamp, loaded=loaded
    )


def effective_settings(settings: Settings) -> Iterator[Setting]:
    """Yield all effective settings with their origin; secrets are hidden."""
    for item in fields(Settings):
        if item.name in _METADATA:
            continue
        value = getattr(settings, item.name)
        is_hidden = item.name in _SECRETS and bool(value)
        shown = _LOGIN.sub("//…@", value) if isinstance(value, str) else value
        origin = _origin(settings, item, value)
        yield Setting(item.name, None if is_hidden else shown, is_hidden, origin)


def describe_project(settings: Settings, tools: Path) -> dict[str, str]:
    """Describe the files, folders and variables of the project."""
    state, file = settings.state.absolute(), settings.source
    store = _LOGIN.sub("//…@", settings.store) or str(state / "store.db")
    origins = {setting.origin for setting in effective_settings(settings)}
    variables = sorted(origin for origin in origins if origin.startswith(_PREFIX))
    found = {
        "settings": "defaults only" if file is None else str(file),
        "variables": ", ".join(variables) or "none",
        "tools": str(tools.absolute()),
        "state": str(state),
        "store": store,
        "secrets": str(settings.secrets_file or state / "secrets.toml"),
    }
    if settings.fleet or settings.redis:
        found["fleet"] = (
            "worker signatures are required (worker_keys)"
            if settings.worker_keys
            else "not signed: any client with fleet_key can forge messages to other clients; "
            "`toolkiln fleet keygen` prints keys for worker_key and worker_keys"
        )
    if file is not None and settings.file_stamp is None:
        found["settings"] += " (missing: defaults)"
    if not state.exists():
        found["state"] += " (created when needed)"
        # Before each project had its own, all projects of an account shared a state folder.
        environ = settings.environ
        base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '')}/.local/state"
        shared = Path(base, "toolkiln")
        if settings.state != shared and (shared / "store.db").exists():
            found["state"] += f"; earlier versions used {shared}: set `state` to keep it"
    return found


def _origin(settings: Settings, item: Field[Any], value: Any) -> str:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    origin, loaded = settings.loaded.get(item.name, (_DEFAULT, default))
    return origin if value == loaded else "program"


def check_setting(name: str, value: Any, origin: str) -> Any:
    """Convert a value to the type of its setting.

    Raises:
        ConfigError: it is invalid; the message starts with `origin`.
    """
    if name in _TABLES:
        return _TABLES[name](value, origin)
    default = getattr(Settings, name)
    wrong = f"{origin}: {name} is {'…' if name in _SECRETS else reprlib.repr(value)}"
    if name == "require_key":
        required = _REQUIRE_KEY.get(value.lower(), value) if isinstance(value, str) else value
        if required != "auto" and not isinstance(required, bool):
            raise ConfigError(wrong, hint='use true, false or "auto"')
        return required
    if name in _PATHS:
        if not isinstance(value, str) or not value or "\0" in value:
            hint = f'write {name} = "{default or "secrets.toml"}"'
            raise ConfigError(f"{wrong}, not a path", hint=hint)
        return Path(value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            hint = f'write {name} = ["…"]'
            raise ConfigError(f"{origin}: {name} is not a list of strings", hint=hint)
        return tuple(value)
    if type(value) is not type(default):
        kind = type(default).__name__
        raise ConfigError(f"{wrong}, not of type {kind}", hint=_TYPES[kind])
    minimum = 1 if name in _POSITIVE else 0
    if isinstance(default, int) and not minimum <= value < _MAX_NUMBER:
        raise ConfigError(wrong, hint=f"use a number of at least {minimum}")
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(wrong, hint=_hint_from(value, _CHOICES[name]))
    if name == "port" and value >= 1 << 16:
        raise ConfigError(wrong, hint="use a number from 0 to 65535")
    if name == "telemetry" and value and not value.startswith(("http://", "https://")):
        hint = "use a URL like http://127.0.0.1:4318"
        raise ConfigError(f"{origin}: telemetry is not a URL", hint=hint)
    if name in ("redis", "fleet") and value and not value.startswith(_REDIS):
        hint = "use a URL like redis://HOST:PORT/NUMBER"
        raise ConfigError(f"{origin}: {name} is not a Redis URL", hint=hint)
    return value


def read_stamp(file: Path) -> FileStamp | None:
    """Return the current stamp of a file; None if it is missing."""
    try:
        return _stamp(file.stat())
    except FileNotFoundError:
        return None
    except OSError:
        return FileStamp(0, 0, 0, 0, 0)  # reading the file reports the error


def _stamp(status: os.stat_result) -> FileStamp:
    times = status.st_ctime_ns, status.st_mtime_ns
    return FileStamp(*times, status.st_size, status.st_ino, status.st_dev)


def _find(folder: Path, tools: Path | str | None) -> Path:
    """Return the path of the settings file, existing or not."""
    candidates = [folder]
    if tools and "\0" not in str(tools):
        tools_path = Path(os.path.normpath((folder / tools).absolute()))
        candidates += [tools_path, tools_path.parent]
    for candidate in candidates:
        if os.path.lexists(candidate / FILE_NAME):
            return candidate / FILE_NAME
    return candidates[-1] / FILE_NAME


def _from_text(text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return text.split()
    if isinstance(default, bool):
        return _BOOLEANS.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
    return text


def _read(file: Path) -> tuple[dict[str, Any], FileStamp | None]:
    try:
        with file.open("rb") as opened:
            file_stamp = _stamp(os.fstat(opened.fileno()))
            return tomllib.load(opened), file_stamp
    except FileNotFoundError:
        return {}, None
    # ValueError: invalid TOML, invalid UTF-8, or an integer of thousands of digits.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="correct the file") from error


def parse_rate(rate: Any) -> tuple[int, int]:
    """Parse a rate such as `60/minute` into calls and seconds.

    Raises:
        ConfigError: it is invalid.
    """
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if not match or not 1 <= int(match[1]) <= _MAX_RATE:
        hint = f'use a rate like "60/minute": 1 to {_MAX_RATE}, per {", ".join(_SECONDS)}'
        raise ConfigError(f"{reprlib.repr(rate)} is not a rate", hint=hint)
    return int(match[1]), _SECONDS[match[2]]


def _hint_from(name: Any, known: Iterable[str]) -> str:
    names = list(known)
    return nearest_hint(str(name)[:100], names) or f"use one of {', '.join(names)}"


def _refuse_unknown(name: Any, known: Iterable[str], location: str) -> None:
    if name not in known:
        hint = _hint_from(name, known)
        raise ConfigError(f"{location} has no {reprlib.repr(name)}", hint=hint)


def _limits(value: Any, origin: str) -> dict[str, float]:
    table = _as_table("limits", value, origin)
    for name, number in table.items():
        _refuse_unknown(name, _LIMITS, f"{origin}: limits")
        minimum = 0.001 if name in ("timeout", "cpu") else 1
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not minimum <= number < _MAX_NUMBER
        ):
            hint = f"use a number of at least {minimum:g}"
            raise ConfigError(f"{origin}: limits.{name} is {number!r}", hint=hint)
    return table


def _grants(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    for tool, grant in _as_table("grants", value, origin).items():
        for name, granted in _as_table(f"grants.{tool}", grant, origin).items():
            _refuse_unknown(name, _GRANTS, f"{origin}: grants.{tool}")
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
        hint = f"write [{name}], followed by its values"
        raise ConfigError(f"{origin}: {name} is {reprlib.repr(value)}, not a table", hint=hint)
    return dict(value)


def _rules(value: Any, origin: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{origin}: rules is {reprlib.repr(value)}, not a list", hint=_RULES_HINT)
    return tuple(_rule(rule, f"{origin}: rules[{number}]") for number, rule in enumerate(value, 1))


def _rule(value: Any, location: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{location} is {reprlib.repr(value)}, not a table", hint=_RULES_HINT)
    rule = {name: _rule_field(name, item, location) for name, item in value.items()}
    if "effect" not in rule:
        raise ConfigError(f"{location} has no effect", hint=f"use one of {', '.join(_EFFECTS)}")
    return rule


def _rule_field(name: str, value: Any, location: str) -> Any:
    _refuse_unknown(name, (*_RULE_SCALARS, *_RULE_LISTS), location)
    location = f"{location}.{name}"
    if name in _RULE_LISTS:
        value = _strings(value, location)
    elif not isinstance(value, _RULE_SCALARS[name]):
        hint = _TYPES[_RULE_SCALARS[name].__name__]
        raise ConfigError(f"{location} is {reprlib.repr(value)}", hint=hint)
    if name in _RULE_CHOICES:
        for word in (value,) if name == "effect" else value:
            if word not in _RULE_CHOICES[name]:
                hint = _hint_from(word, _RULE_CHOICES[name])
                raise ConfigError(f"{location} is {reprlib.repr(word)}", hint=hint)
    return value


def _strings(value: Any, location: str) -> tuple[str, ...]:
    # An empty list would match nothing and is probably a mistake.
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ConfigError(f"{location} is {reprlib.repr(value)}", hint="use a list of strings")
    if not texts:
        raise ConfigError(f"{location} is empty", hint="remove it, or add a value")
    for text in texts:
        if not isinstance(text, str) or not text or text != text.strip():
            hint = "use non-empty strings without surrounding spaces"
            raise ConfigError(f"{location} has {reprlib.repr(text)} in it", hint=hint)
    return tuple(texts)


def _privileges(value: Any, origin: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for user, names in _as_table("privileges", value, origin).items():
        location = f"{origin}: privileges.{reprlib.repr(user)}"
        if user in ("*", "group:") or not user or user != user.strip():
            hint = 'use a user, or a group like "group:admins"'
            raise ConfigError(f"{location} is not a user or group", hint=hint)
        if user == "anonymous":
            hint = 'use a rule with users = ["anonymous"] to allow them a tool'
            raise ConfigError(f"{location}: anonymous callers have no privileges", hint=hint)
        found[user] = _strings(names, location)
    return found


def _rates(value: Any, origin: str) -> dict[str, dict[str, str]]:
    for glob, rates in _as_table("rates", value, origin).items():
        location = f"rates.{reprlib.repr(glob)}"
        _strings(glob, f"{origin}: rates")
        for name, rate in _as_table(location, rates, origin).items():
            _refuse_unknown(name, ("caller", "tool"), f"{origin}: {location}")
            try:
                parse_rate(rate)
            except ConfigError as error:
                message = f"{origin}: {location}.{name}: {error.message}"
                raise ConfigError(message, hint=error.hint) from None
    return dict(value)


_TABLES: dict[str, Callable[[Any, str], Any]] = {
    "limits": _limits,
    "grants": _grants,
    "rules": _rules,
    "privileges": _privileges,
    "rates": _rates,
}
"""Table setting to the function that checks it."""
