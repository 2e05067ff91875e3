"""`toolkiln install`: the files of clients, in a home folder of each test."""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tables import each_row
from toolkiln.surfaces.cli.mcp_clients import CLIENTS, McpClientApp, settings_file

from .conftest import COMMAND, GREET, Shell

FILES = {
    "claude-code": (".claude.json", ".mcp.json"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", None),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
    "opencode": (".config/opencode/opencode.json", "opencode.json"),
    "goose": (".config/goose/config.yaml", None),
}
"""Where each client looks, as its documentation says: below home, and in a project."""
BEFORE = {
    ".json": '{\n\t"theme": "dark",\n\t"mcpServers": {"other": {"command": "x"}}\n}',
    ".toml": 'model = "x" # the best\n\n[mcp_servers.other]\ncommand = "x"\n',
    ".yaml": "GOOSE_MODEL: x # the best\nextensions:\n  other:\n    cmd: x\n",
}


URL = "http://127.0.0.1:8181/mcp"


@pytest.fixture
def desk(tmp_path: Path) -> Shell:
    """A project with a tool, and a home."""
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "tools" / "greet.py").write_text(GREET)
    (tmp_path / "home").mkdir()
    return Shell(project, {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""})


def home(desk: Shell) -> Path:
    return Path(desk.variables["HOME"])


def parsed(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) if suffix == ".yaml" else json.loads(text)


def command(entry: dict[str, Any]) -> list[str]:
    """What an entry starts, whichever client it is for."""
    program = entry.get("command") or entry["cmd"]
    return program if isinstance(program, list) else [program, *entry["args"]]


def listed_keys(desk: Shell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = desk.invoke("keys", "list", "--json").json()
    return found


def installed(file: Path, client: McpClientApp, name: str = "toolkiln") -> dict[str, Any]:
    (key,) = client.keys
    entry = parsed(file.read_text(), file.suffix)[key][name]
    assert isinstance(entry, dict)
    return entry


# Every client


@each_row("name", CLIENTS)
def test_a_client_gets_a_command_that_works_from_anywhere(name: str, desk: Shell) -> None:
    file = home(desk) / FILES[name][0]

    before = set(home(desk).rglob("*"))
    printed = desk.invoke("install", name, "--print")
    after = set(home(desk).rglob("*"))
    done = desk.invoke("install", name)

    project = str(desk.folder)
    expected = [str(COMMAND), "-C", project, "mcp", "--tools", f"{project}/tools"]
    assert printed.err == f"note: this goes into {file}\n"
    assert after == before
    assert (done.code, done.out) == (0, f"added: {file}: toolkiln\n")
    assert command(installed(file, CLIENTS[name])) == expected
    assert parsed(printed.out, file.suffix) == parsed(file.read_text(), file.suffix)
    file.unlink()


@each_row("name", [name for name, (_, project) in FILES.items() if project])
def test_a_project_has_a_file_of_its_own(name: str, desk: Shell) -> None:
    desk.invoke("install", name, "--scope", "project")

    file = desk.folder / str(FILES[name][1])
    assert command(installed(file, CLIENTS[name]))[-1] == str(desk.folder / "tools")
    assert not (home(desk) / FILES[name][0]).exists()


@each_row("name", CLIENTS)
def test_what_is_there_stays_and_a_second_time_changes_nothing(name: str, desk: Shell) -> None:
    file = home(desk) / FILES[name][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    text = BEFORE[file.suffix].replace("mcpServers", CLIENTS[name].keys[0])
    file.write_text(text)
    before = parsed(text, file.suffix)

    first = desk.invoke("install", name)
    data, moment = file.read_bytes(), file.stat().st_mtime_ns
    second = desk.invoke("install", name)

    after = parsed(data.decode(), file.suffix)
    del after[CLIENTS[name].keys[0]]["toolkiln"]
    assert after == before
    assert (first.out.split(":")[0], second.out.split(":")[0]) == ("added", "unchanged")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (data, moment)
    assert list(file.parent.glob(".*.??????*")) == []


REACHED = [name for name, client in CLIENTS.items() if client.reached]


@each_row("name", REACHED)
def test_a_server_that_runs_is_reached_by_its_url_and_started_again(name: str, desk: Shell) -> None:
    file = home(desk) / FILES[name][0]
    desk.invoke("install", name)
    started = installed(file, CLIENTS[name])

    changed = desk.invoke("install", name, "--url", URL)

    reached = installed(file, CLIENTS[name])
    assert changed.out.startswith("changed: ")
    assert f"it replaces {COMMAND} -C" in changed.err
    assert URL in reached.values()
    assert not {"command", "cmd", "args"} & reached.keys()
    desk.invoke("install", name)
    assert installed(file, CLIENTS[name]) == started


@each_row("name", REACHED)
def test_a_client_with_a_url_gets_a_key_of_its_own_and_another_the_next_time(
    name: str, desk: Shell
) -> None:
    file, client = home(desk) / FILES[name][0], CLIENTS[name]

    first = desk.invoke("install", name, "--url", URL)
    shown = installed(file, client)[client.headers]["Authorization"]
    again = desk.invoke("install", name, "--url", URL)
    rotated = installed(file, client)[client.headers]["Authorization"]

    keys = [key for key in listed_keys(desk) if key["name"] == name]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert shown.startswith("Bearer tk_")
    assert rotated != shown
    assert "requests without a credential are refused" in first.err
    assert "tk_" not in first.out + first.err + again.out + again.err
    assert [(key["user"], key["state"]) for key in keys] == [(name, "valid"), (name, "revoked")]
    assert keys[0]["privileges"] == []


def test_other_headers_of_an_entry_stay_beside_the_key(desk: Shell) -> None:
    file = home(desk) / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('[mcp_servers.toolkiln]\nurl = "x"\nhttp_headers = { "X-Team" = "blue" }\n')

    desk.invoke("install", "codex", "--url", URL)

    headers = installed(file, CLIENTS["codex"])["http_headers"]
    assert headers["X-Team"] == "blue"
    assert headers["Authorization"].startswith("Bearer tk_")


@pytest.mark.parametrize(
    ("arguments", "is_made"),
    [
        (["--url", "https://tools.example.org/mcp"], False),
        (["--url", "https://tools.example.org/mcp", "--key"], True),
        (["--url", URL, "--no-key"], False),
        (["--url", URL, "--print"], False),
        ([], False),
    ],
)
def test_a_key_is_made_for_a_server_of_this_machine_or_on_request(
    arguments: list[str], is_made: bool, desk: Shell
) -> None:
    done = desk.invoke("install", "cursor", *arguments)

    assert done.code == 0
    assert bool(listed_keys(desk)) is is_made


def test_a_file_that_cannot_be_written_leaves_no_valid_key(desk: Shell) -> None:
    (home(desk) / ".cursor").write_text("no folder")

    desk.refused("install", "cursor", "--url", URL)

    assert all(key["state"] == "revoked" for key in listed_keys(desk))


def test_entries_of_one_client_have_keys_of_their_own(desk: Shell) -> None:
    for options in ([], ["--scope", "project"], ["--name", "other"]):
        desk.invoke("install", "cursor", "--url", URL, *options)

    keys = listed_keys(desk)
    assert {key["name"] for key in keys} == {"cursor", "cursor-project", "cursor-other"}
    assert {key["state"] for key in keys} == {"valid"}


@each_row("name", CLIENTS)
def test_a_broken_file_is_reported_and_stays(name: str, desk: Shell) -> None:
    file = home(desk) / FILES[name][0]
    file.parent.mkdir(parents=True, exist_ok=True)
    for text in ("{", "a [", "\x00", "\xff", "[1, 2]", '{"a": ' * 20_000):
        file.write_text(text, "latin-1")

        error = desk.refused("install", name)

        assert error.startswith(f"error: '{file}' cannot be changed: ")
        assert file.read_text("latin-1") == text


# Entries


def test_an_entry_keeps_what_was_added_to_it(desk: Shell) -> None:
    file = home(desk) / ".codex" / "config.toml"
    desk.invoke("install", "codex")
    ours = file.read_text()
    file.write_text(f"{ours}enabled = false # for now\n[mcp_servers.toolkiln.env]\nA = '1'\n")

    desk.invoke("install", "codex", "--tools", "tools/greet.py")

    entry = installed(file, CLIENTS["codex"])
    assert entry["env"] == {"A": "1"}
    assert "enabled = false # for now\n" in file.read_text()
    assert command(entry)[-1].endswith("/greet.py")


def test_an_extension_that_is_switched_off_stays_so(desk: Shell) -> None:
    file = home(desk) / ".config" / "goose" / "config.yaml"
    desk.invoke("install", "goose")
    file.write_text(file.read_text().replace("enabled: true", "enabled: false"))

    done = desk.invoke("install", "goose", "--tools", "tools/greet.py")

    assert done.out.startswith("changed: ")
    assert installed(file, CLIENTS["goose"])["enabled"] is False


def test_servers_are_kept_apart_by_their_names(desk: Shell) -> None:
    desk.invoke("install", "cursor")

    desk.invoke("install", "cursor", "--name", "greetings", "--tools", "tools/greet.py")

    servers = json.loads((home(desk) / ".cursor" / "mcp.json").read_text())["mcpServers"]
    assert [command(servers[name])[-1][-8:] for name in servers] == ["ct/tools", "greet.py"]


def test_comments_are_understood_where_the_client_does(desk: Shell) -> None:
    file = desk.folder / ".vscode" / "mcp.json"
    file.parent.mkdir()
    text = '{\n  // what we use\n  "servers": {\n    "x": {"url": "http://x"}, // fine\n  },\n}\n'
    file.write_text(text)

    desk.invoke("install", "vscode", "--scope", "project")

    lines = file.read_text().splitlines()
    assert [line for line in text.splitlines() if line not in lines] == []
    assert lines[4] == '    "toolkiln": {'


def test_opencode_gets_its_entry_in_the_file_that_it_has(desk: Shell) -> None:
    file = desk.folder / "opencode.jsonc"
    file.write_text('{\n  "theme": "x", // dark\n}\n')

    desk.invoke("install", "opencode", "--scope", "project")

    assert '"theme": "x", // dark\n  "mcp": {' in file.read_text()
    assert not (desk.folder / "opencode.json").exists()


# Files


def test_a_file_keeps_its_permissions_and_a_link_stays_one(desk: Shell) -> None:
    target = home(desk) / "dotfiles" / "claude.json"
    target.parent.mkdir()
    target.write_text("{}")
    target.chmod(0o640)
    link = home(desk) / ".claude.json"
    link.symlink_to(target)

    desk.invoke("install", "claude-code")

    assert link.is_symlink()
    assert "toolkiln" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert list(target.parent.iterdir()) == [target]


def test_a_mark_at_the_start_of_a_file_stays(desk: Shell) -> None:
    file = home(desk) / ".claude.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')

    desk.invoke("install", "claude-code")

    assert file.read_bytes().startswith(b'\xef\xbb\xbf{"a": 1, "mcpServers"')
    assert file.read_bytes().endswith(b"}\r\n")


def test_what_is_no_file_is_left_alone(desk: Shell) -> None:
    os.mkfifo(home(desk) / ".claude.json")

    assert "is not a file" in desk.refused("install", "claude-code")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(desk: Shell) -> None:
    home(desk).chmod(0o500)

    error = desk.refused("install", "claude-code")

    assert "cannot be written: Permission denied" in error


def test_folders_that_variables_name_count(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g"}

    names = ("claude-code", "codex", "goose", "vscode")
    found = [settings_file(CLIENTS[name].user, tmp_path, environ) for name in names]

    assert [str(file) for file in found] == [
        "/c/.claude.json",
        "/x/config.toml",
        "/g/goose/config.yaml",
        "/g/Code/User/mcp.json",
    ]


def test_on_a_mac_applications_have_their_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    desktop = settings_file(CLIENTS["claude-desktop"].user, tmp_path, {"HOME": "/h"})
    goose = settings_file(CLIENTS["goose"].user, tmp_path, {"HOME": "/h"})

    assert str(desktop) == "/h/Library/Application Support/Claude/claude_desktop_config.json"
    assert str(goose) == "/h/.config/goose/config.yaml"


# Errors


@each_row(
    "arguments, message",
    [
        (["cursr"], "there is no client 'cursr'\n\nhint: did you mean 'cursor'?"),
        (["cursor", "--name", "a.b"], "'a.b' is not a valid name for a server"),
        (["cursor", "--scope", "team"], "there is no scope 'team'\n\nhint: user or project"),
        (["goose", "--scope", "project"], "Goose has no file for a project"),
        (["cursor", "--url", "file:///x"], "'file:///x' is not the URL of a server"),
        (["claude-desktop", "--url", URL], "Claude Desktop does not support URLs in its file"),
        (["cursor", "--tools", "nothing"], "there is nothing at "),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], message: str, desk: Shell
) -> None:
    assert desk.refused("install", *arguments).startswith(f"error: {message}")
    assert list(home(desk).iterdir()) == []


def test_without_a_home_nothing_is_guessed(desk: Shell) -> None:
    assert "HOME is not set" in desk.having(HOME="").refused("install", "cursor")


def test_without_a_client_all_are_listed_with_their_files(desk: Shell) -> None:
    table = desk.invoke("install")
    found = {item["client"]: item for item in desk.invoke("install", "--json").json()}

    assert [line.split()[0] for line in table.out.splitlines()[1:]] == list(CLIENTS)
    assert {name: item["user"] for name, item in found.items()} == {
        name: str(home(desk) / user) for name, (user, _) in FILES.items()
    }
    assert {name: item["project"] for name, item in found.items()} == {
        name: project and str(desk.folder / project) for name, (_, project) in FILES.items()
    }


def test_outcomes_can_be_had_as_json(desk: Shell) -> None:
    shown = desk.invoke("install", "cursor", "--print", "--json").json()
    outcomes = [desk.invoke("install", "cursor", "--json").json() for _ in range(2)]

    assert shown["keys"] == ["mcpServers", "toolkiln"]
    assert shown["entry"]["command"] == str(COMMAND)
    assert [item["outcome"] for item in outcomes] == ["added", "unchanged"]
    assert {item["file"] for item in outcomes} == {shown["file"]}


# The folder to work in


def test_a_command_can_work_in_another_folder(desk: Shell) -> None:
    (desk.folder / "toolkiln.toml").write_text('tools = "tools/greet.py"\n')
    root = Shell(Path("/"), desk.variables).having(TOOLKILN_STATE=str(desk.folder / "state"))

    done = root.run("-C", str(desk.folder), "list")
    missing = root.run("-C", "/nowhere", "list")

    assert "greet  Greet a person by name." in done.out
    assert missing.code == 2
    assert missing.err.startswith("error: '/nowhere': No such file or directory\n")
