"""Every command where the manifest cannot be trusted or the machine refuses to do its part."""

import os
import subprocess

import pytest

from tables import each_row

from .conftest import ADMITTED, BOUND, COMMAND, GREET, KIT, POLITE, Shell, manifest, states, write

UNREADABLE = {
    "empty": b"",
    "no JSON": b"{",
    "no manifest": b"[]",
    "binary": b"\xff\x00",
    "another format": b'{"format": 99, "seal": ""}',
    "deep": b"[" * 100_000,
}

COMMANDS = [
    ["call", "greet", "name=Ada"],
    ["admit"],
    ["admit", "--yes"],
    ["add", "draft.py"],
    ["import", "draft.py"],
    ["reject", "tools/greet.py"],
    ["history", "greet"],
    ["diff", "greet", "1", "1"],
    ["rollback", "greet", "1"],
    ["enable", "greet"],
    ["disable", "greet"],
    ["search", "greet"],
    ["eval", "search", "queries.jsonl"],
    ["docs", "show", "greet"],
    ["docs", "guide", "greet"],
    ["docs", "index"],
    ["docs", "search", "greet"],
    ["docs", "build", "--no-html"],
    ["usages", "list"],
    ["env", "build"],
]
STARTING = (
    ["admit", "--yes"], ["add", "draft.py"], ["import", "draft.py"], ["reject", "tools/greet.py"]
)  # fmt: skip
"""Commands that write the first manifest, or need none."""


class TestAManifestThatCannotBeTrusted:
    @pytest.fixture
    def tampered(self, admitted: Shell) -> Shell:
        (admitted.folder / "queries.jsonl").write_text('{"query": "greet", "gold": ["greet"]}')
        (admitted.folder / "draft.py").write_text(GREET.replace("greet", "salute"))
        text = manifest(admitted).read_text()
        manifest(admitted).write_text(text.replace('"version": 1', '"version": 7'))
        return admitted

    @each_row("command", COMMANDS)
    def test_every_command_says_so_once_and_how_to_mend_it(
        self, tampered: Shell, command: list[str]
    ) -> None:
        before = manifest(tampered).read_bytes()

        error = tampered.refused(*command)

        assert error.startswith("error: nothing is served from tools: tools/_manifest.json")
        assert error.count("was changed since Toolkiln wrote it") == 1
        assert "`toolkiln admit --reset tools`" in error
        assert manifest(tampered).read_bytes() == before

    @each_row("command, code", [(["list"], 0), (["show", "greet"], 0), (["status"], 1)])
    def test_what_only_looks_shows_what_is_on_disk_and_says_so(
        self, tampered: Shell, command: list[str], code: int
    ) -> None:
        done = tampered.invoke(*command)

        assert done.code == code
        assert "greet" in done.out
        assert done.err.count("was changed since Toolkiln wrote it") == 1
        assert "--reset" in done.err

    @each_row("content", UNREADABLE.values())
    def test_unreadable_content_is_a_clear_error(self, admitted: Shell, content: bytes) -> None:
        manifest(admitted).write_bytes(content)

        error = admitted.refused("call", "greet", "name=Ada")

        assert error.startswith("error: nothing is served from tools")
        assert admitted.invoke("status").code == 1

    def test_a_folder_in_its_place_is_a_clear_error(self, admitted: Shell) -> None:
        manifest(admitted).unlink()
        manifest(admitted).mkdir()

        for command in (["call", "greet", "name=Ada"], ["admit", "--yes"]):
            assert "Is a directory" in admitted.refused(*command)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_one_that_may_not_be_read_is_a_clear_error(self, admitted: Shell) -> None:
        manifest(admitted).chmod(0)

        assert "Permission denied" in admitted.refused("call", "greet", "name=Ada")

    @each_row("command", [one for one in COMMANDS if one not in STARTING])
    def test_where_there_is_none_no_command_breaks(self, desk: Shell, command: list[str]) -> None:
        (desk.folder / "queries.jsonl").write_text('{"query": "greet", "gold": ["greet"]}')

        done = desk.invoke(*command)

        assert done.code == 2
        assert "error: " in done.err

    @pytest.mark.parametrize("option", ["--reset", "--afresh"])
    def test_everything_can_be_admitted_afresh(self, tampered: Shell, option: str) -> None:
        write(tampered, "kit.py", KIT)

        shown = tampered.invoke("admit", option, "--no-probe", stdin="n\nn\n")
        done = tampered.invoke(*ADMITTED, option, "tools")
        again = tampered.invoke("admit", option, "--no-probe", "tools/greet.py", stdin="y\n")

        assert shown.code == 1
        assert "+def greet(name: str) -> str:" in shown.out
        assert done.code == 0
        assert states(tampered) == {"greet.py": "admitted", "kit.py": "admitted"}
        assert tampered.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"
        assert again.out.endswith("admitted: tools/greet.py v1: greet\n")

    def test_another_manifest_key_is_an_error_that_says_so(self, desk: Shell) -> None:
        sealed = desk.having(TOOLKILN_MANIFEST_KEY="one")
        sealed.invoke(*ADMITTED)

        other = desk.having(TOOLKILN_MANIFEST_KEY="two").refused("call", "greet", "name=Ada")
        none = desk.refused("call", "greet", "name=Ada")

        assert "sealed without this manifest_key" in other
        assert "the setting manifest_key is empty" in none
        assert sealed.invoke("call", "greet", "name=Ada").code == 0


class TestThePlatform:
    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
    def test_a_folder_that_may_not_be_written_is_a_clear_error(self, desk: Shell) -> None:
        (desk.folder / "tools").chmod(0o555)

        done = desk.run(*ADMITTED)

        (desk.folder / "tools").chmod(0o755)
        assert done.code == 3
        assert "Permission denied" in done.err

    def test_a_state_folder_that_cannot_be_is_status_3(self, desk: Shell) -> None:
        (desk.folder / "file").write_text("")

        done = desk.having(TOOLKILN_STATE="file/state").run(*ADMITTED)

        assert done.code == 3
        assert done.err.startswith("error: ")

    def test_a_reader_that_leaves_early_is_no_error(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE + "# line\n" * 10_000)

        for command in ("admit --yes --no-probe", "status --json", "docs show greet"):
            done = subprocess.run(
                f"{COMMAND} {command} | head -c 1 >/dev/null",
                shell=True, cwd=admitted.folder, env=admitted.environ(), capture_output=True,
                timeout=BOUND,
            )  # fmt: skip

            assert b"Traceback" not in done.stderr
            assert b"error" not in done.stderr
