"""One project has one configuration and one state folder, whichever way it is used."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from preloaded import command
from tables import each_row
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import ConfigError, InputError
from toolkiln.model.call import Result

GREET = '''def greet(name: str) -> str:
    """Greet a person by name.

    Args:
        name: Who is greeted.
    """
    return f"Hello {name}"
'''
DENY_GREET = """
[[rules]]
effect = "deny"
tools = ["greet"]
reason = "no greetings"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with one admitted tool."""
    folder = tmp_path / "project"
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "greet.py").write_text(GREET)
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("TOOLKILN_")]:
        monkeypatch.delenv(name)
    toolkiln("admit", "--yes", "--no-probe")
    return folder


def toolkiln(*arguments: str, cwd: Path | None = None, status: int = 0) -> str:
    """Run the command; what it prints."""
    done = subprocess.run(
        [command(), *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr
    return done.stdout


def audited(cwd: Path | None = None) -> list[dict[str, Any]]:
    """Return the ended calls that the audit log of a project has."""
    records = json.loads(toolkiln("audit", "list", "--json", cwd=cwd))
    return [r for r in records if r["act"] == "call" and r["outcome"] != "started"]


def call(kiln: Kiln) -> Result:
    """Call the tool from a program without an event loop."""
    with kiln:
        result = kiln.call_sync("greet", {"name": "Ada"})
    assert isinstance(result, Result)
    return result


@each_row(
    "text, variables, settings, status",
    [
        ('policy = "deny"', {}, None, "denied"),
        ("", {"TOOLKILN_POLICY": "deny"}, None, "denied"),
        ('policy = "deny"', {"TOOLKILN_POLICY": "allow"}, None, "ok"),
        ('policy = "deny"', {}, Settings(), "ok"),
    ],
)
def test_python_follows_the_project_unless_the_program_passes_settings(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    variables: dict[str, str],
    settings: Settings | None,
    status: str,
) -> None:
    (project / "toolkiln.toml").write_text(text)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert call(Kiln("tools", settings=settings)).status == status


def test_calls_from_python_are_in_the_audit_log_that_the_command_line_shows(project: Path) -> None:
    call(Kiln("tools"))

    assert [(one["tool"], one["surface"]) for one in audited()] == [("greet", "python")]


def test_the_settings_beside_the_tools_count_from_any_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "toolkiln.toml").write_text(DENY_GREET)
    monkeypatch.chdir(tmp_path)

    from_python = call(Kiln(project / "tools"))
    toolkiln("call", "greet", "name=Ada", "--tools", str(project / "tools"), status=2)

    assert from_python.status == "denied"
    assert "no greetings" in str(from_python.error)
    assert [one["outcome"] for one in audited(project)] == ["denied", "denied"]
    assert not (tmp_path / ".toolkiln").exists()


def test_settings_inside_the_tools_folder_count_from_any_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "tools" / "toolkiln.toml").write_text('tools = "."\npolicy = "deny"')
    monkeypatch.chdir(tmp_path)

    assert call(Kiln(project / "tools")).status == "denied"


def test_the_settings_of_the_current_folder_come_first(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tools").mkdir(parents=True)
    (other / "tools" / "greet.py").write_text(GREET)
    (other / "toolkiln.toml").write_text('policy = "deny"')
    (project / "toolkiln.toml").write_text('policy = "allow"')
    toolkiln("admit", "--yes", "--no-probe", "--tools", str(other / "tools"))

    assert call(Kiln(other / "tools")).status == "ok"


def test_a_project_without_settings_keeps_its_state_beside_the_tools(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    call(Kiln(project / "tools"))

    assert len(audited(project)) == 1
    assert (project / ".toolkiln" / ".gitignore").read_text() == "*\n"


def test_two_projects_of_one_account_share_no_keys_and_no_audit_log(
    project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "tools").mkdir(parents=True)
    toolkiln("keys", "create", "ci", "--user", "ci")
    call(Kiln("tools"))

    assert json.loads(toolkiln("keys", "list", "--json", cwd=other)) == []
    assert audited(other) == []


def test_unusable_settings_are_an_error_in_python_too(project: Path) -> None:
    (project / "toolkiln.toml").write_text('polcy = "deny"')

    with pytest.raises(ConfigError, match="polcy"):
        Kiln("tools")


def test_a_fleet_in_the_settings_is_for_connect(project: Path) -> None:
    (project / "toolkiln.toml").write_text('fleet = "redis://127.0.0.1:1"')

    with pytest.raises(InputError, match="fleet") as refused:
        Kiln()

    assert "Kiln.connect()" in str(refused.value.hint)
    assert Kiln.connect().settings.redis == "redis://127.0.0.1:1"
    assert call(Kiln("tools")).status == "ok"


def test_connect_without_a_fleet_says_where_to_name_one(project: Path) -> None:
    with pytest.raises(InputError, match="fleet") as refused:
        Kiln.connect()

    assert "TOOLKILN_FLEET" in str(refused.value.hint)


def test_rules_that_change_count_in_python_without_a_restart(project: Path) -> None:
    (project / "toolkiln.toml").write_text('policy = "allow"')

    async def outcomes() -> tuple[str, str]:
        async with Kiln("tools") as kiln:
            before = await kiln.call("greet", {"name": "Ada"})
            (project / "toolkiln.toml").write_text('policy = "deny"')
            async with asyncio.timeout(30):
                while (after := await kiln.call("greet", {"name": "Ada"})).status == "ok":
                    await asyncio.sleep(0.05)
        return before.status, after.status

    assert asyncio.run(outcomes()) == ("ok", "denied")


def test_doctor_shows_the_files_and_folders_of_the_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "home" / ".local" / "state" / "toolkiln"
    earlier.mkdir(parents=True)
    (earlier / "store.db").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (project / "toolkiln.toml").write_text('state = "kept"')
    monkeypatch.setenv("TOOLKILN_AUDIT_DAYS", "30")

    found = json.loads(toolkiln("doctor", "--json"))["project"]
    monkeypatch.setenv("TOOLKILN_STORE", "postgresql://ann:s3cr3t-pass@127.0.0.1:1/x")
    printed = subprocess.run([command(), "doctor"], capture_output=True, text=True, check=False)

    assert found["settings"] == str(project / "toolkiln.toml")
    assert found["variables"] == "TOOLKILN_AUDIT_DAYS"
    assert found["tools"] == str(project / "tools")
    assert found["state"].startswith(str(project / "kept"))
    assert str(earlier) in found["state"]
    assert found["store"] == str(project / "kept" / "store.db")
    assert f"tools        {project / 'tools'}" in printed.stdout
    assert "s3cr3t-pass" not in printed.stdout + printed.stderr
