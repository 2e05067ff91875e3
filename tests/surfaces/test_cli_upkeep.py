"""Doctor, tasks, workspaces and environments, and errors of settings and of the state folder."""

import zipfile
from pathlib import Path

import pytest

from tables import each_row

from .conftest import Shell

SETTINGS = """
[grants."*"]
workspace = "write"
"""
TOOLS = {
    "keep.py": '''
import os
from toolkiln import tool

@tool(workspace="write")
def keep(name: str, text: str = "") -> list[str]:
    """Keep a text in a file."""
    with open(f"/workspace/{name}", "w") as file:
        file.write(text)
    return sorted(os.listdir("/workspace"))

@tool(workspace="write")
def link() -> None:
    """Make a link that leads out."""
    os.symlink("/etc/passwd", "/workspace/link")
''',
}
ALPHA = '''# requirements: alpha
import alpha

def version_of_alpha() -> int:
    """Return the version of alpha.

    Examples:
        >>> version_of_alpha() in (1, 2)
        True
    """
    return alpha.VERSION
'''


class TestDoctor:
    def test_the_mode_in_use_and_every_layer_are_shown(self, shell: Shell) -> None:
        done = shell.run("doctor")
        as_json = shell.run("doctor", "--json")

        report = as_json.json()
        assert done.code == 0, done
        assert "in use: " in done.out
        assert all(f"\nmode {mode}: " in done.out for mode in "ABC")
        assert "seccomp" in done.out
        assert (as_json.code, as_json.err) == (0, "")
        assert report["mode"] in ("A", "B")
        assert [trial["mode"] for trial in report["trials"]] == ["A", "B", "C"]


class TestTasks:
    def test_an_unknown_task_is_a_clear_error(self, shell: Shell) -> None:
        for command in ("check", "await", "cancel"):
            error = shell.refused("task", command, "nonsense")

            assert "there is no task 'nonsense'" in error
            assert "hint: " in error

    def test_without_tasks_the_list_is_empty(self, fresh: Shell) -> None:
        done = fresh.invoke("task", "list")

        assert (done.code, done.out) == (0, "")
        assert fresh.invoke("task", "list", "--json").json() == []

    def test_a_timeout_below_zero_is_refused(self, shell: Shell) -> None:
        assert shell.invoke("task", "await", "x", "--timeout", "-1").code == 2


class TestWorkspaces:
    def test_a_workspace_is_listed_exported_and_cleared(self, shell: Shell, tmp_path: Path) -> None:
        shell.invoke("call", "keep", "name=a.txt", "text=kept", "--session", "one")
        shell.invoke("call", "link", "--session", "one")
        out, other = tmp_path / "out", tmp_path / "other"

        listed = shell.invoke("workspace", "list")
        (session,) = shell.invoke("workspace", "list", "--json").json()
        exported = shell.invoke("workspace", "export", "one", str(out))
        as_json = shell.invoke("workspace", "export", "one", str(other), "--json").json()
        again = shell.refused("workspace", "export", "one", str(out))
        cleared = shell.invoke("workspace", "clear", "one")

        assert "one  2 files" in listed.out
        assert (session["session"], session["files"]) == ("one", 2)
        assert (exported.code, exported.out) == (0, f"1 file to {out}\n")
        assert "skipped: 'link'" in exported.err
        assert (as_json["files"], len(as_json["left_out"])) == (1, 1)
        assert (out / "a.txt").read_text() == "kept"
        assert [file.name for file in out.iterdir()] == ["a.txt"]
        assert "not empty" in again
        assert (cleared.code, cleared.err) == (0, "cleared: one\n")
        assert shell.invoke("workspace", "list", "--json").json() == []

    def test_an_unknown_session_is_a_clear_error(self, shell: Shell) -> None:
        for arguments in (["clear", "tow"], ["export", "tow", "out"]):
            error = shell.refused("workspace", *arguments)

            assert "session 'tow' has no workspace" in error


class TestEnvironments:
    @pytest.fixture
    def packages(self, shell: Shell, tmp_path: Path) -> Shell:
        """A folder with a tool that requires alpha, of which there is version 1."""
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "alpha_tool.py").write_text(ALPHA)
        (tmp_path / "tools" / "plain.py").write_text('def plain() -> int: "Be plain."')
        wheel(tmp_path, 1)
        return Shell(tmp_path).having(
            UV_FIND_LINKS=str(tmp_path), UV_NO_INDEX="1", UV_CACHE_DIR=str(tmp_path / "cache")
        )

    def test_environments_are_built_listed_and_pruned(self, packages: Shell) -> None:
        before = packages.run("env", "list")
        built = packages.run("env", "build")
        listed = packages.invoke("env", "list", "--json").json()
        called = packages.run("call", "version_of_alpha")
        kept = packages.run("env", "prune")
        pruned = packages.invoke("env", "prune", "--older-than", "0", "--json")

        assert (before.code, before.out) == (0, "")
        assert built.code == 0, built
        assert "plain: needs no packages" in built.out
        assert built.out.splitlines()[-1].endswith("alpha 1")
        assert [entry["packages"] for entry in listed] == [{"alpha": "1"}]
        assert called.out == "1\n"
        assert kept.out == "removed 0 environments, 0.0 MB\n"
        assert [entry["key"] for entry in pruned.json()] == [listed[0]["key"]]
        assert packages.invoke("env", "list").out == ""

    def test_the_lock_holds_until_an_upgrade_whose_examples_pass(self, packages: Shell) -> None:
        packages.invoke("env", "build", "version_of_alpha")
        wheel(packages.folder, 2)
        held = packages.invoke("call", "version_of_alpha")
        upgraded = packages.run("env", "upgrade")
        newer = packages.invoke("call", "version_of_alpha")
        wheel(packages.folder, 3)
        refused = packages.invoke("env", "upgrade", "version_of_alpha")
        as_json = packages.invoke("env", "upgrade", "version_of_alpha", "--json")

        assert held.out == "1\n"
        assert "version_of_alpha: alpha 1 → 2" in upgraded.out
        assert upgraded.code == 0
        assert newer.out == "2\n"
        assert refused.code == 1
        assert "not upgraded: the examples fail with alpha 2 → 3" in refused.out
        assert "version_of_alpha() in (1, 2)" in refused.err
        assert as_json.code == 1
        assert as_json.json()[0]["changes"] == {"alpha": ["2", "3"]}
        assert packages.invoke("call", "version_of_alpha").out == "2\n"

    def test_one_tool_that_cannot_be_built_does_not_stop_the_others(self, packages: Shell) -> None:
        (packages.folder / "tools" / "a.py").write_text(
            '# requirements: missing\ndef first(): "Miss something."'
        )

        built = packages.invoke("env", "build")
        as_json = packages.invoke("env", "build", "--json")
        called = packages.invoke("call", "first")

        assert built.code == 1
        assert "first: failed" in built.out
        assert "version_of_alpha: " in built.out
        assert "missing" in built.err
        assert {item["tool"]: "error" in item for item in as_json.json()} == {
            "first": True, "plain": False, "version_of_alpha": False,
        }  # fmt: skip
        assert called.code == 3
        assert "missing" in called.err

    def test_an_unknown_tool_or_age_is_a_clear_error(self, packages: Shell) -> None:
        assert "'plain'" in packages.refused("env", "build", "plane")
        for days in ("-1", "1e99", "nan"):
            done = packages.invoke("env", "prune", "--older-than", days)

            assert (done.code, done.out) == (2, "")


def wheel(folder: Path, version: int) -> None:
    """A wheel of a package alpha that knows its version."""
    info = f"alpha-{version}.dist-info"
    files = {
        "alpha.py": f"VERSION = {version}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: alpha\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"alpha.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    with zipfile.ZipFile(folder / f"alpha-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


CALLS = [
    ["call", "keep", "name=a"],
    ["call", "keep", "name=a", "--id", "x"],
    ["call", "keep", "name=a", "--background"],
    ["task", "list"],
]


class TestTrouble:
    @each_row("command", [["doctor"], ["output", "x"], ["env", "build"], *CALLS])
    def test_a_broken_configuration_is_a_clear_error(
        self, tmp_path: Path, command: list[str]
    ) -> None:
        (tmp_path / "toolkiln.toml").write_text("tools = [")

        error = Shell(tmp_path).refused(*command)

        assert "toolkiln.toml cannot be read: " in error
        assert "hint: " in error

    @each_row(
        "text",
        [
            "limits = {memory = inf}",
            "limits = {timeout = nan}",
            "limits = {memory = 0.5}",
            "limits = {cpu = -1}",
            "limits = {processes = true}",
            "limits = {speed = 1}",
            "limits = 3",
            "grants = {keep = {network = [1]}}",
            "grants = {keep = {network = 'example.com'}}",
            "grants = {keep = {workspace = 'all'}}",
            "grants = {keep = {everything = true}}",
            "grants = {keep = true}",
            "sandbox = 'D'",
            "workspace_bytes = -1",
            "private_networks = '10.0.0.0/8'",
            "show_exceptions = 'yes'",
        ],
    )
    def test_a_setting_that_makes_no_sense_is_a_clear_error(
        self, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "toolkiln.toml").write_text(text)

        assert text.partition(" ")[0] in Shell(tmp_path).refused("workspace", "list")

    @each_row("command", [["doctor"], ["output", "x"], ["task", "check", "x"], *CALLS])
    def test_a_state_folder_that_cannot_be_made_is_status_3(
        self, shell: Shell, command: list[str]
    ) -> None:
        for state in ("/proc/nowhere", "/dev/null"):
            assert state in shell.having(TOOLKILN_STATE=state).refused(*command, code=3)

    def test_a_damaged_store_is_status_3(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "store.db").write_bytes(b"nonsense" * 1000)

        damaged = shell.having(TOOLKILN_STATE=str(tmp_path))

        assert "hint: " in damaged.refused("task", "list", code=3)

    def test_a_group_alone_shows_its_commands(self, shell: Shell) -> None:
        for group in ("task", "env", "workspace"):
            done = shell.invoke(group)

            assert "list" in done.out + done.err
            assert done.code in (0, 2)
