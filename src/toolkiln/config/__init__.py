"""Settings: `toolkiln.toml`, overridden by `TOOLKILN_*` variables. The only reader of either.

What is a table in the file is checked in `tables`.
"""

import os
import re
import reprlib
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln.config.tables import EFFECTS, ENDLESS, KINDS, TABLES, hint_from, pace
from toolkiln.errors import ConfigError

__all__ = [
    "FILE_NAME", "Setting", "Settings", "Stamp", "checked", "described", "load", "pace", "places",
    "project_settings", "reload", "stamp",
]  # fmt: skip

FILE_NAME = "toolkiln.toml"
_PREFIX = "TOOLKILN_"
_DEFAULT = "default"


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
    """The state folder: versions, keys, audit log, environments, workspaces and results."""
    store: str = field(default="", repr=False)
    """A `postgresql://` URL; empty: an SQLite file in the state folder."""
    dev: bool = False
    """Whether what is on disk is served without anybody admitting it."""
    manifest_key: str = field(default="", repr=False)
    """What manifests are sealed with; without it a checksum tells damage, not forgery."""
    authoring: str = "auto"
    """What happens to tools that callers write: `auto`, `propose`, `admit` or `off`.

    `auto`: admitted if the writer holds WRITE_TOOLS, otherwise a proposal. `propose`: always a
    proposal. `admit`: agents of the local account need no privilege. `off`: refused.
    """
    proposals_per_caller: int = 20
    """How many proposals of one caller may wait at a time."""
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
    environment_bytes: int = 2 << 30
    """The most bytes that the packages of one environment may unpack to."""
    environment_files: int = 100_000
    """The most files and folders that one environment may have, compiled ones included."""
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
    """How long a call waits for a person, or for an answer of its caller; unanswered is no."""
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
    """A `redis://` URL for sessions, rates, approvals and what calls leave; empty: the store."""
    fleet: str = field(default="", repr=False)
    """The `redis://` URL of a fleet, whose tools are used instead of a folder's."""
    fleet_key: str = field(default="", repr=False)
    """What proves who belongs to the fleet; empty: a key that Redis keeps."""
    fleet_key_fallback: str = field(default="", repr=False)
    """Another `fleet_key` that is accepted as well, while keys are rotated."""
    worker_key: str = field(default="", repr=False)
    """The private key that a worker signs with; for workers only."""
    worker_keys: tuple[str, ...] = ()
    """The public keys of the fleet's workers: what none of them signed is not believed. Empty:
    signatures are not required. The variable has them separated by spaces."""
    fleet_durable: bool = False
    """Whether a call counts as accepted only once a replica of the fleet's Redis has it."""
    host: str = "127.0.0.1"
    """The address that `serve` listens on."""
    port: int = 8420
    """0: any that is free."""
    require_key: bool | str = "auto"
    """Whether requests from this machine need a credential: true, false, or `auto`, once the
    project has API keys. Requests from other machines always need one."""
    hosts: tuple[str, ...] = ()
    """Names, besides those of this machine, that requests may be addressed to."""
    origins: tuple[str, ...] = ()
    """Web origins, besides those of this machine, whose pages may make requests."""
    body_bytes: int = 4 << 20
    """The most that the body of a request has."""
    concurrent_requests: int = 500
    """How many are answered at once; others are told to come again."""
    request_seconds: int = 30
    """How long a client may take to send a request, or to take some of an answer."""
    drain_seconds: int = 30
    """How long calls may go on once the server was told to stop."""
    telemetry: str = ""
    """URL of an OpenTelemetry collector that gets traces; empty: OTEL_* variables say."""
    mcp_tools: int = 40
    """How many tools are listed one by one for a model; more are found by search."""
    mcp_wait_seconds: int = 0
    """How long an MCP client waits for a call before the call continues as a background task.
    0: as long as the tool may run, or ten seconds for clients that can poll tasks."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The process's variables, for package installs to find their index."""
    source: Path | None = field(default=None, compare=False)
    """The file that was looked for, whether it is there or not."""
    seen: Stamp | None = field(default=None, compare=False)
    """That file as it was when it was read."""
    given: Mapping[str, tuple[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    """By name: the file or variable that set something, and to what."""

    def made_state(self) -> Path:
        """The state folder, created if there is none, and private to this account.

        Root's sandboxes run as another user, who may pass through it but not list it. Version
        control ignores it.

        Raises:
            ConfigError: another account owns it, or may write to it: what it holds (API keys,
                versions, the audit log) may be forged.
        """
        state = self.state.absolute()
        with suppress(OSError):  # the first write reports what is wrong with it
            state.mkdir(mode=_private_mode(), parents=True, exist_ok=True)
            _refuse_shared(state)
            if not (ignored := state / ".gitignore").exists():
                ignored.touch(mode=0o600)
                ignored.write_text("*\n")
        return state


def _private_mode() -> int:
    return 0o711 if os.geteuid() == 0 else 0o700


def _refuse_shared(folder: Path) -> None:
    """Refuse a folder that other accounts can write to; keep them from reading it."""
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"the state folder {folder} belongs to another account (user {found.st_uid})",
            hint="run Toolkiln as that user, or set TOOLKILN_STATE to a folder of your own",
        )
    if mode & 0o022:
        raise ConfigError(
            f"other accounts can write to the state folder {folder}",
            hint=f"check what is in it, then `chmod go-w {folder}`; or set TOOLKILN_STATE to "
            "another folder",
        )
    if found.st_uid == os.geteuid() and mode & 0o077 & ~_private_mode():
        folder.chmod(mode & _private_mode())


_CHOICES = {
    "sandbox": ("auto", "A", "B", "C"),
    "authoring": ("auto", "propose", "admit", "off"),
    "policy": EFFECTS,
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_REQUIRE_KEY: Mapping[str, bool | str] = {**_BOOLEANS, "auto": "auto"}
_PATHS = ("tools", "state", "secrets_file")
_REDIS = ("redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://")
_LEAST = {
    "environment_bytes": 1,
    "environment_files": 1,
    "approval_seconds": 1,
    "session_seconds": 1,
    "body_bytes": 1,
    "concurrent_requests": 1,
    "request_seconds": 1,
}
_HIDDEN = (
    "manifest_key", "embeddings_key", "audit_key", "redis", "fleet", "fleet_key",
    "fleet_key_fallback", "worker_key", "store",
)  # fmt: skip
"""Values that no message repeats: they hold passwords."""
_NOT_SET = ("environ", "source", "seen", "given")
_LOGIN = re.compile(r"//[^/@]*@")
"""What a URL may have before its host."""


class Setting(NamedTuple):
    """One setting, as people may see it."""

    name: str
    value: Any
    """None where it is hidden."""
    is_hidden: bool
    """Whether it is set, and holds a password."""
    origin: str
    """The file or variable that set it, `default`, or `program`: an option of a command."""


def load(folder: Path, environ: Mapping[str, str], tools: Path | None = None) -> Settings:
    """Load the settings of a project: for work in `folder`, on `tools` if given.

    `toolkiln.toml` is searched for in `folder`; then, if `tools` are given there or in the
    environment, in the tools folder and in the folder that contains it. The project is the
    folder of that file, or without one the folder that contains the tools. Relative paths are
    relative to the project, those of arguments and variables to `folder`.

    Raises:
        ConfigError: the file cannot be parsed, or has an unknown setting or an unusable value.
    """
    file = _find(folder, tools or environ.get(_PREFIX + "TOOLS"))
    return _load(file, folder, environ)


def project_settings(tools: str | Path | None = None) -> Settings:
    """Load the settings of the project in the current folder, from the process's environment.

    Raises:
        ConfigError: as for `load`.
    """
    return load(Path.cwd(), os.environ, None if tools is None else Path(tools))


def reload(settings: Settings) -> Settings:
    """Load the settings again, from the same file.

    Raises:
        ConfigError: as for `load`.
    """
    assert settings.source is not None
    return _load(settings.source, settings.source.parent, settings.environ)


def _load(file: Path, folder: Path, environ: Mapping[str, str]) -> Settings:
    known = {item.name: item.default for item in fields(Settings) if item.name not in _NOT_SET}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    table, seen = _read(file)
    for name, value in table.items():
        if name not in known:
            raise ConfigError(
                f"{file}: there is no setting {name!r}", hint=hint_from(name, sorted(known))
            )
        values[name] = checked(name, value, str(file))
        origins[name] = str(file.absolute())
    for name, default in known.items():
        variable = _PREFIX + name.upper()
        is_text = not isinstance(default, tuple) or name == "worker_keys"
        if variable in environ and is_text and name not in TABLES:
            values[name] = checked(name, _from_text(environ[variable], default), variable)
            origins[name] = variable
    values.setdefault("tools", Settings.tools)
    values.setdefault("state", Settings.state)
    for name in _PATHS:
        if name in values:
            is_variable = origins.get(name, "").startswith(_PREFIX)
            values[name] = (folder if is_variable else file.parent) / values[name]
    given = {name: (origins.get(name, _DEFAULT), value) for name, value in values.items()}
    return Settings(**values, environ=environ, source=file.absolute(), seen=seen, given=given)


def described(settings: Settings) -> Iterator[Setting]:
    """All settings in force, each with where it comes from; passwords are hidden."""
    for item in fields(Settings):
        if item.name in _NOT_SET:
            continue
        value = getattr(settings, item.name)
        is_hidden = item.name in _HIDDEN and bool(value)
        shown = _LOGIN.sub("//…@", value) if isinstance(value, str) else value
        origin = _origin(settings, item, value)
        yield Setting(item.name, None if is_hidden else shown, is_hidden, origin)


def places(settings: Settings, tools: Path) -> dict[str, str]:
    """Describe the files, folders and variables that the project uses, for people."""
    state, file = settings.state.absolute(), settings.source
    store = _LOGIN.sub("//…@", settings.store) or str(state / "store.db")
    variables = {one.origin for one in described(settings) if one.origin.startswith(_PREFIX)}
    found = {
        "settings": "defaults only" if file is None else str(file),
        "variables": ", ".join(sorted(variables)) or "none",
        "tools": str(tools.absolute()),
        "state": str(state),
        "store": store,
        "secrets": str(settings.secrets_file or state / "secrets.toml"),
    }
    if settings.fleet or settings.redis:
        found["fleet"] = (
            "signatures of workers are required (worker_keys)"
            if settings.worker_keys
            else "not signed: a client with fleet_key can forge what another client believes; "
            "`toolkiln fleet keygen` prints keys for worker_key and worker_keys"
        )
    if file is not None and settings.seen is None:
        found["settings"] += " (not there: defaults)"
    if not state.exists():
        found["state"] += " (created when needed)"
        earlier = _earlier_state(settings.environ)
        if settings.state != earlier and (earlier / "store.db").exists():
            found["state"] += f"; earlier versions used {earlier}: set `state` to it to keep that"
    return found


def _earlier_state(environ: Mapping[str, str]) -> Path:
    """Return the folder that all projects of an account shared before each had its own."""
    base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '')}/.local/state"
    return Path(base, "toolkiln")


def _origin(settings: Settings, item: Field[Any], value: Any) -> str:
    origin, read = settings.given.get(item.name, (_DEFAULT, _usual(item)))
    return origin if value == read else "program"


def _usual(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def checked(name: str, value: Any, origin: str) -> Any:
    """The value of a setting as `Settings` holds it; tables that it holds stay as they are.

    Raises:
        ConfigError: it cannot be used; `origin` says where it stands.
    """
    if name in TABLES:
        return TABLES[name](value, origin)
    default = getattr(Settings, name)
    shown = "…" if name in _HIDDEN else reprlib.repr(value)
    if name == "require_key":
        wanted = _REQUIRE_KEY.get(value.lower(), value) if isinstance(value, str) else value
        if wanted != "auto" and not isinstance(wanted, bool):
            raise ConfigError(f"{origin}: {name} is {shown}", hint='true, false or "auto"')
        return wanted
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
        raise ConfigError(f"{origin}: {name} is {shown}, not of type {kind}", hint=KINDS[kind])
    if isinstance(default, int) and not _LEAST.get(name, 0) <= value < ENDLESS:
        hint = f"a number from {_LEAST.get(name, 0)} on"
        raise ConfigError(f"{origin}: {name} is {shown}", hint=hint)
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ConfigError(f"{origin}: {name} is {shown}", hint=hint_from(value, _CHOICES[name]))
    if name == "port" and value >= 1 << 16:
        raise ConfigError(f"{origin}: port is {shown}", hint="a number from 0 to 65535")
    if name == "telemetry" and value and not value.startswith(("http://", "https://")):
        raise ConfigError(f"{origin}: telemetry is no URL", hint="such as http://127.0.0.1:4318")
    if name in ("redis", "fleet") and value and not value.startswith(_REDIS):
        raise ConfigError(f"{origin}: {name} is no such URL", hint="redis://HOST:PORT/NUMBER")
    return value


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


def _find(folder: Path, tools: Path | str | None) -> Path:
    """Return where the project's settings file is, or would be."""
    candidates = [folder]
    if tools and "\0" not in str(tools):
        place = Path(os.path.normpath((folder / tools).absolute()))
        candidates += [place, place.parent]
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
