"""Sessions at the command line and with a server, for `surface_snapshot.py`.

Each works on a copy of `tests/snapshots/project`, in processes of its own. A transcript (a file
with `$ ` or `> ` lines) is both the script of a session and what came of it.
"""

import importlib.metadata
import io
import json
import os
import pwd
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, redirect_stdout, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2

from preloaded import command

_ROOT = Path(__file__).parent.parent
SNAPSHOTS = _ROOT / "tests" / "snapshots"
_BIN = Path(sys.executable).parent
_PATIENCE = 60.0
_VERSION = importlib.metadata.version("toolkiln")

Files = dict[str, str]
"""Names below `tests/snapshots`, and what belongs there."""


# What differs from run to run.


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without a name, as in containers
        return "root"


_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"
_MASKS = [
    (r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
    (r"\b(ts_|tk_)[\w-]{20,}", r"\1<token>"),
    (_TIME, "<time>"),
    (r"\b1[789]\d{8}(?:\.\d+)?\b", "<time>"),
    (r'("(?:hash|head|seal)": )"[^"]+"', r'\1"<hash>"'),
    (r"(,|\b\d+:)[0-9a-f]{64}\b", r"\1<hash>"),
    (r"\b\d+\.\d{6,}(?:e-\d+)?\b", "<number>"),
    (r"\b\d+\.\d{3} s\b", "<seconds>"),
    (r"(?<!for )\b[123]\d\d s$", "<seconds>"),
    (r"(?:word\d+ ?){9,}", "<words>"),
    (r"\b[\w.-]+-\d+-[0-9a-f]{6}\b", "<worker>"),
    (r'("host": )"[^"]+"', r'\1"<host>"'),
    (r'("version": )"\d[^"]*"', r'\1"<version>"'),
    (r'("(?:duration|cpu|memory|age|took|bytes|pid|running)": ?)[\d.e-]+', r"\1<number>"),
    (r'("(?:seconds|oldest)": )\d+\.\d+', r"\1<number>"),
    (r'("sandbox": ?)"[ABC]"', r'\1"<mode>"'),
    (r"\b(?:[0-9a-f]{12}|[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32})\b", "<id>"),
    (rf"\b(?:root|uid {os.getuid()}|{re.escape(_account())})\b", "<me>"),
    (re.escape(_VERSION), "<version>"),
]


def masked(text: str, folder: Path | None = None) -> str:
    """Replace what differs from run to run, from machine to machine and with each release."""
    if folder is not None:
        text = text.replace(str(folder), "<folder>").replace(str(folder.parent), "<outside>")
    for programs in (_BIN, command().parent):
        text = text.replace(str(programs), "<bin>")
    text = text.replace(str(_ROOT), "<toolkiln>")
    for pattern, replacement in _MASKS:
        text = re.sub(pattern, replacement, text, flags=re.M)
    return text


def program(name: str, *folders: str) -> str:
    """Where a program of the system is; without it the script ends with status 77."""
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *folders]))
    if found is None:
        print(f"there is no {name}: install Debian's package", file=sys.stderr)
        sys.exit(77)
    return found


def as_json(value: object) -> str:
    """A value, for people to read and compare."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


# A project of its own for each session.


@contextmanager
def project() -> Iterator[Path]:
    """A folder with a copy of the project, away from anything of the account."""
    with tempfile.TemporaryDirectory(prefix="toolkiln-snapshot-") as name:
        folder = Path(name).resolve()
        shutil.copytree(SNAPSHOTS / "project", folder / "project")
        (folder / "home").mkdir()
        yield folder / "project"


def _environ(folder: Path, **variables: str) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join((str(command().parent), os.environ["PATH"])),
        "HOME": str(folder.parent / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        **variables,
    }


# The command line.


def helps() -> Files:
    """The help of all commands, each run through the entry point in this process."""
    [command] = importlib.metadata.entry_points(group="console_scripts", name="toolkiln")
    main = command.load()
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")
    texts: list[str] = []

    def walk(*names: str) -> None:
        sys.argv = ["toolkiln", *names, "--help"]
        with redirect_stdout(io.StringIO()) as output, suppress(SystemExit):
            main()
        text = output.getvalue()
        texts.append(text)
        for name in re.findall(r"^  ([a-z-]+)  ", text.partition("\nCommands:\n")[2], re.M):
            walk(*names, name)

    walk()
    return {"help.txt": "\n".join(texts)}


def transcript(name: str, opened: Callable[[], AbstractContextManager[Path]] = project) -> Files:
    """A session of shell commands: what each printed, its errors (`! `) and its exit status."""
    lines = []
    with opened() as folder:
        for line in (SNAPSHOTS / name).read_text("utf-8").splitlines():
            if line.startswith("#"):
                lines.append(line)
            if line.startswith("$ "):
                lines += [line, *ran(line[2:], folder)]
    return {name: "\n".join(lines) + "\n"}


def ran(command: str, folder: Path) -> Iterator[str]:
    """Run a shell command in a project; yields what it printed, and its status if it failed."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder, env=_environ(folder), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    for start, text in (("  ", done.stdout), ("! ", done.stderr)):
        for line in masked(text, folder).splitlines():
            # The columns of a table are as wide as the names in them.
            shown = re.sub(r"(?<=\S) {2,}", "  ", line) if re.match(r"[\w<]", line) else line
            yield (start + shown).rstrip()
    if done.returncode:
        yield f"[{done.returncode}]"


# A server: HTTP, MCP, and what it leaves behind.

_SHOWN = ("content-type", "etag", "location", "retry-after", "www-authenticate", "allow")
_ERA = {"legacy": "2025-11-25", "modern": "2026-07-28"}


class Collector(ThreadingHTTPServer):
    """Keeps what an OpenTelemetry exporter sends."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Keeper)

    @property
    def url(self) -> str:
        """The address for `telemetry`."""
        return f"http://127.0.0.1:{self.server_port}"


class _Keeper(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base class
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector of spans."""
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def spans(collector: Collector) -> str:
    """Names, kinds, states and attributes of the spans that came."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = set()
    for body in collector.bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                about = {item.key: item.value.string_value for item in span.attributes}
                text = masked(json.dumps(about, sort_keys=True))
                within = "child" if span.parent_span_id else "root"
                found.add(f"{span.name} kind={span.kind} status={span.status.code} {within} {text}")
    return "\n".join(sorted(found)) + "\n"


@contextmanager
def running(folder: Path, until: str, *command: str, **variables: str) -> Iterator[re.Match[str]]:
    """A `toolkiln` process that said on stderr what is looked for, ended by SIGTERM."""
    with subprocess.Popen(
        [_BIN / "toolkiln", *command],
        cwd=folder, env=_environ(folder, **variables), stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            said, found = "", None
            while found is None:
                line = process.stderr.readline()
                said += line
                assert line, said
                found = re.search(until, said, re.S)
            rest = threading.Thread(target=process.stderr.read)
            rest.start()
            yield found
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            finally:
                process.kill()
            rest.join()


def admit(folder: Path) -> None:
    """Admit all tools of a project."""
    given = [str(command()), "admit", "--yes", "--no-probe"]
    subprocess.run(given, cwd=folder, env=_environ(folder), check=True, capture_output=True)


@contextmanager
def serving(folder: Path, *options: str, **variables: str) -> Iterator[tuple[str, str]]:
    """A server of the project: its address, and the operator's token."""
    ready = r"Page ((http://\S+)/ui/\S+).*\nMCP "
    with running(folder, ready, "serve", "--port", "0", *options, **variables) as found:
        login = httpx2.get(found[1], trust_env=False)
        yield found[2], login.headers["set-cookie"].partition(";")[0].partition("=")[2]


class Callers:
    """The people and agents of a session, by name; they appear when they are first named."""

    def __init__(self, url: str, token: str) -> None:
        self._operator = token
        self._tokens = {"operator": token}
        self.client = httpx2.Client(base_url=url, timeout=_PATIENCE, trust_env=False)

    def headers(self, name: str) -> dict[str, str]:
        """Show who makes a request."""
        if name == "anonymous":
            return {}
        if name not in self._tokens:
            shown = {"authorization": f"Bearer {self._operator}"}
            made = self.client.post("/v1/sessions", json={"user_id": name}, headers=shown)
            self._tokens[name] = made.raise_for_status().json()["token"]
        return {"authorization": f"Bearer {self._tokens[name]}"}


def requests(name: str, folder: Path, ask: Callable[[str, str, str], tuple[str, Any]]) -> str:
    """A session of requests, each a line `> CALLER: WHAT HEADER=VALUE BODY`.

    `<a.0.b>` in a line is replaced by a value of the answer before it; `until=a` repeats a request
    until the answer has an `a`.
    """
    lines: list[str] = []
    last: Any = None
    for line in (SNAPSHOTS / name).read_text("utf-8").splitlines():
        if line.startswith("#"):
            lines.append(line)
        if line.startswith("> "):
            filled = re.sub(r"<([\w.]+)>", partial(_looked_up, last), line[2:])
            caller, _, rest = filled.partition(": ")
            what, _, body = rest.partition(" {")
            shown, last = ask(caller, what, f"{{{body}" if body else "")
            lines += [line, *(f"  {part}".rstrip() for part in masked(shown, folder).splitlines())]
    return "\n".join(lines) + "\n"


def _looked_up(value: Any, path: re.Match[str]) -> str:
    for step in path[1].split("."):
        value = value[int(step) if step.isdigit() else step]
    return str(value)


def asked_http(callers: Callers, caller: str, what: str, body: str) -> tuple[str, Any]:
    """Make a request to the API; what it shows, and the value of its body."""
    method, _, path = what.partition(" ")
    path, *more = path.split(" ")
    headers = callers.headers(caller) | dict(part.split("=", 1) for part in more)
    until = headers.pop("until", "")
    if body:
        headers["content-type"] = "application/json"
    given = callers.client.request(method, path, content=body or None, headers=headers)
    while until and not given.json()[until]:
        given = callers.client.request(method, path, content=body or None, headers=headers)
    shown = [f"{given.status_code}"]
    shown += [f"{name}: {given.headers[name]}" for name in _SHOWN if name in given.headers]
    if "json" not in given.headers.get("content-type", ""):
        return "\n".join([*shown, given.text]), None
    found = given.json()
    return "\n".join([*shown, as_json(found)]), found


def asked_mcp(
    callers: Callers, sessions: dict[str, str], caller: str, what: str, body: str
) -> tuple[str, Any]:
    """Make a request to `/mcp` in the way of an era; `sessions` are those of callers."""
    era, _, method = what.partition(" ")
    params = json.loads(body or "{}")
    headers = callers.headers(caller) | {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _ERA[era],
    }
    if era == "legacy":
        headers |= {"mcp-session-id": sessions[caller]} if caller in sessions else {}
    else:
        headers |= {"mcp-method": method, "mcp-name": params.get("name") or params.get("uri", "")}
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": _ERA[era],
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    if not method.startswith("notifications/"):
        message["id"] = 1
    given = callers.client.post("/mcp", json=message, headers=headers)
    if method == "initialize":
        sessions[caller] = given.headers["mcp-session-id"]
    text = given.text
    if given.headers.get("content-type", "").startswith("text/event-stream"):
        text = [line[6:] for line in text.splitlines() if line.startswith("data: {")][-1]
    found = json.loads(text) if text else None
    return f"{given.status_code}\n{as_json(found) if text else ''}", found


def _inlined(value: Any, whole: Any, within: tuple[str, ...] = ()) -> Any:
    """Put what references name in their place, and leave out titles."""
    if isinstance(value, list):
        return [_inlined(item, whole, within) for item in value]
    if not isinstance(value, dict):
        return value
    if (name := value.get("$ref")) in within:
        return {"$ref": "(itself)"}
    if name:
        return _inlined({**_target(name, whole), **value, "$ref": None}, whole, (*within, name))
    shown = {
        key: item for key, item in value.items() if not isinstance(item, str) or key != "title"
    }
    return {key: _inlined(item, whole, within) for key, item in shown.items()}


def _target(name: str, whole: Any) -> Any:
    for step in name.removeprefix("#/").split("/"):
        whole = whole[step]
    return whole


def described(whole: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI description without names of models: what is equal once inlined has one name.

    That is the place where it occurs first, so that the description stays small.
    """
    places: dict[str, str] = {}
    parts: dict[str, Any] = {}

    def shown(value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [shown(item, place) for item in value]
        if not isinstance(value, dict):
            return value
        value = {
            key: item for key, item in value.items() if not isinstance(item, str) or key != "title"
        }
        if name := value.get("$ref"):
            content = json.dumps(_inlined({"$ref": name}, whole), sort_keys=True)
            if content not in places:
                places[content] = place
                parts[place] = shown(_target(name, whole), place)
            return value | {"$ref": places[content]}
        return {key: shown(item, f"{place}/{key}") for key, item in value.items()}

    rest = {key: item for key, item in whole.items() if key != "components"}
    return {
        **shown(rest, ""),
        "parts": parts,
        "security_schemes": whole["components"]["securitySchemes"],
    }


def metrics(text: str) -> str:
    """Names, help, types and labels; no values, and nothing of the Python process."""
    lines = {
        re.sub(
            r'mode="[ABC]"', 'mode="<mode>"', line if line[0] == "#" else line.rpartition(" ")[0]
        )
        for line in text.splitlines()
        if not re.match(r"(# \w+ )?process_|\w+_created|.*_seconds_.*tool=(?!.greet)", line)
    }
    return "\n".join(sorted(lines)) + "\n"


def audited(callers: Callers) -> str:
    """Acts, outcomes and details of all records, each once."""
    found, cursor = set(), ""
    while True:
        page = callers.client.get(
            f"/v1/audit?limit=100{cursor}", headers=callers.headers("operator")
        ).json()
        for entry in page["items"]:
            names = ("act", "outcome", "user", "surface", "tool", "detail")
            # A call that takes half a second has a record of its start.
            if (entry["act"], entry["outcome"]) != ("call", "started") or entry["tool"] == "pay":
                found.add(masked(" | ".join(entry[name] for name in names)))
        if page["next_cursor"] is None:
            return "\n".join(sorted(found)) + "\n"
        cursor = f"&cursor={page['next_cursor']}"


def tables(folder: Path) -> str:
    """The tables and indexes of the databases in a state folder."""
    lines = []
    for file in ("store.db", "audit.db"):
        lines.append(f"-- {file}")
        with closing(sqlite3.connect(folder / file)) as database:
            query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
            lines += [re.sub(r"\s+", " ", sql) + ";" for (sql,) in database.execute(query)]
    return "\n".join(lines) + "\n"


def tree(folder: Path) -> str:
    """The files of a state folder, with their modes."""
    lines = set()
    for file in folder.rglob("*"):
        name = re.sub(r"[0-9a-f]{8,}", "<id>", str(file.relative_to(folder)))
        lines.add(f"{stat.filemode(file.lstat().st_mode)} {name}")
    return "\n".join(sorted(lines, key=lambda line: line.split()[1])) + "\n"


def server() -> Files:
    """All that a server shows to clients, operators and on disk."""
    with project() as folder, collecting() as collector:
        admit(folder)
        with serving(folder, TOOLKILN_TELEMETRY=collector.url) as (url, token):
            callers = Callers(url, token)
            with callers.client:
                http = requests("http.txt", folder, partial(asked_http, callers))
                mcp = requests("mcp.txt", folder, partial(asked_mcp, callers, {}))
                openapi = callers.client.get("/openapi.json").json()
                figures = callers.client.get("/metrics", headers=callers.headers("operator")).text
                audit = audited(callers)
        return {
            "http.txt": http,
            "mcp.txt": mcp,
            "openapi.json": masked(as_json(described(openapi))),
            "metrics.txt": metrics(figures),
            "audit.txt": audit,
            "spans.txt": spans(collector),
            "tables.sql": tables(folder / ".toolkiln"),
            "state.txt": tree(folder / ".toolkiln"),
        }
