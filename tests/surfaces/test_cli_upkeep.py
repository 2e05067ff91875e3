"""The commands that look after what calls leave, and what they say when it cannot be had."""

import zipfile
from pathlib import Path

import pytest

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
    """Tell which version of alpha there is.

    Examples:
        >>> version_of_alpha() in (1, 2)
        True
    """
    return alpha.VERSION
'''


class TestDoctor:
    def test_the_mode_in_use_and_every_layer_are_told(self, shell: Shell) -> None:
        done = shell.run("doctor")

        assert done.code == 0, done
        assert "in use: " in done.out
        assert all(f"\nmode {mode}: " in done.out for mode in "ABC")
        assert "seccomp" in done.out

    def test_json_says_the_same(self, shell: Shell) -> None:
        done = shell.run("doctor", "--json")

        report = done.json()
        assert (done.code, done.err) == (0, "")
        assert report["mode"] in ("A", "B")
        assert [trial["mode"] for trial in report["trials"]] == ["A", "B", "C"]


class TestTasks:
    @pytest.mark.parametrize("command", ["check", "await", "cancel"])
    def test_an_unknown_task_is_a_clear_error(self, shell: Shell, command: str) -> None:
        done = shell.invoke("task", command, "nonsense")

        assert (done.code, done.out) == (2, "")
        assert "there is no task 'nonsense'" in done.err
        assert "hint: " in done.err

    def test_without_tasks_the_list_is_empty(self, shell: Shell, tmp_path: Path) -> None:
        fresh = shell.having(TOOLKILN_STATE=str(tmp_path))

        assert (fresh.invoke("task", "list").out, fresh.invoke("task", "list").code) == ("", 0)
        assert fresh.invoke("task", "list", "--json").json() == []

    def test_a_timeout_below_zero_is_refused(self, shell: Shell) -> None:
        assert shell.invoke("task", "await", "x", "--timeout", "-1").code == 2


class TestWorkspaces:
    def test_a_workspace_is_listed_exported_and_cleared(self, shell: Shell, tmp_path: Path) -> None:
        shell.invoke("call", "keep", "name=a.txt", "text=kept", "--session", "one")
        shell.invoke("call", "link", "--session", "one")
        listed = shell.invoke("workspace", "list")
        exported = shell.invoke("workspace", "export", "one", str(tmp_path / "out"))
        again = shell.invoke("workspace", "export", "one", str(tmp_path / "out"))
        cleared = shell.invoke("workspace", "clear", "one")
        after = shell.invoke("workspace", "list", "--json")

        assert "one  2 files" in listed.out
        assert (exported.code, exported.out) == (0, f"1 file to {tmp_path / 'out'}\n")
        assert "skipped: 'link'" in exported.err
        assert (tmp_path / "out" / "a.txt").read_text() == "kept"
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["a.txt"]
        assert again.code == 2
        assert "not empty" in again.err
        assert (cleared.code, cleared.err) == (0, "cleared: one\n")
        assert "one" not in [item["session"] for item in after.json()]

    def test_json_says_what_is_there_and_what_stayed_behind(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        shell.invoke("call", "keep", "name=a.txt", "text=kept", "--session", "two")
        shell.invoke("call", "link", "--session", "two")

        listed = shell.invoke("workspace", "list", "--json").json()
        exported = shell.invoke("workspace", "export", "two", str(tmp_path / "out"), "--json")

        assert [item["files"] for item in listed if item["session"] == "two"] == [2]
        assert exported.json()["files"] == 1
        assert len(exported.json()["left_out"]) == 1

    @pytest.mark.parametrize("arguments", [["clear", "tow"], ["export", "tow", "out"]])
    def test_an_unknown_session_is_a_clear_error(self, shell: Shell, arguments: list[str]) -> None:
        done = shell.invoke("workspace", *arguments)

        assert (done.code, done.out) == (2, "")
        assert "session 'tow' has no workspace" in done.err


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

    def test_one_tool_that_cannot_be_built_keeps_no_other_from_it(self, packages: Shell) -> None:
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

    def test_an_unknown_tool_is_a_clear_error(self, packages: Shell) -> None:
        done = packages.invoke("env", "build", "plane")

        assert done.code == 2
        assert "'plain'" in done.err

    @pytest.mark.parametrize("days", ["-1", "1e99", "nan"])
    def test_days_that_make_no_sense_are_refused(self, packages: Shell, days: str) -> None:
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


COMMANDS = [
    ["doctor"],
    ["call", "keep", "name=a"],
    ["call", "keep", "name=a", "--background"],
    ["task", "list"],
    ["output", "x"],
    ["env", "build"],
    ["workspace", "export", "a", "b"],
]


class TestTrouble:
    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_a_broken_configuration_is_a_clear_error(
        self, shell: Shell, tmp_path: Path, command: list[str]
    ) -> None:
        (tmp_path / "toolkiln.toml").write_text("tools = [")

        done = Shell(tmp_path).invoke(*command)

        assert (done.code, done.out) == (2, "")
        assert "toolkiln.toml cannot be read: " in done.err
        assert "hint: " in done.err

    @pytest.mark.parametrize(
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

        done = Shell(tmp_path).invoke("workspace", "list")

        assert (done.code, done.out) == (2, "")
        assert text.partition(" ")[0] in done.err

    @pytest.mark.parametrize(
        "command",
        [
            ["doctor"],
            ["call", "keep", "name=a"],
            ["call", "keep", "name=a", "--id", "x"],
            ["call", "keep", "name=a", "--background"],
            ["task", "list"],
            ["task", "check", "x"],
            ["output", "x"],
        ],
        ids=" ".join,
    )
    @pytest.mark.parametrize("state", ["/proc/nowhere", "/dev/null"])
    def test_a_state_folder_that_cannot_be_had_is_status_3(
        self, shell: Shell, command: list[str], state: str
    ) -> None:
        done = shell.having(TOOLKILN_STATE=state).invoke(*command)

        assert (done.code, done.out) == (3, "")
        assert done.err.startswith("error: ")
        assert state in done.err

    def test_a_damaged_store_is_status_3(self, shell: Shell, tmp_path: Path) -> None:
        (tmp_path / "store.db").write_bytes(b"nonsense" * 1000)

        done = shell.having(TOOLKILN_STATE=str(tmp_path)).invoke("task", "list")

        assert (done.code, done.out) == (3, "")
        assert "hint: " in done.err

    @pytest.mark.parametrize("group", ["task", "env", "workspace"])
    def test_a_group_alone_shows_its_commands(self, shell: Shell, group: str) -> None:
        done = shell.invoke(group)

        assert "list" in done.out + done.err
        assert done.code in (0, 2)
