"""Every command where the manifest cannot be trusted, or the machine does not play along."""

import os
import subprocess

import pytest

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


class TestAManifestThatCannotBeTrusted:
    @pytest.fixture
    def tampered(self, admitted: Shell) -> Shell:
        (admitted.folder / "queries.jsonl").write_text('{"query": "greet", "gold": ["greet"]}')
        (admitted.folder / "draft.py").write_text(GREET.replace("greet", "salute"))
        text = manifest(admitted).read_text()
        manifest(admitted).write_text(text.replace('"version": 1', '"version": 7'))
        return admitted

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_every_command_says_so_once_and_how_to_mend_it(
        self, tampered: Shell, command: list[str]
    ) -> None:
        before = manifest(tampered).read_bytes()

        done = tampered.invoke(*command)

        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: nothing is served from tools: tools/_manifest.json")
        assert done.err.count("was changed since Toolkiln wrote it") == 1
        assert "`toolkiln admit --reset tools`" in done.err
        assert manifest(tampered).read_bytes() == before

    @pytest.mark.parametrize("command", [["list"], ["show", "greet"], ["status"]], ids=" ".join)
    def test_what_only_looks_shows_what_is_on_disk_and_says_so(
        self, tampered: Shell, command: list[str]
    ) -> None:
        done = tampered.invoke(*command)

        assert done.code == (1 if command == ["status"] else 0)
        assert "greet" in done.out
        assert done.err.count("was changed since Toolkiln wrote it") == 1
        assert "--reset" in done.err

    @pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
    def test_whatever_is_in_it_is_a_clear_error(self, admitted: Shell, content: bytes) -> None:
        manifest(admitted).write_bytes(content)

        called, told = admitted.invoke("call", "greet", "name=Ada"), admitted.run("status")

        assert called.code == 2
        assert called.err.startswith("error: nothing is served from tools")
        assert told.code == 1

    def test_a_folder_in_its_place_is_a_clear_error(self, admitted: Shell) -> None:
        manifest(admitted).unlink()
        manifest(admitted).mkdir()

        for command in (["call", "greet", "name=Ada"], ["admit", "--yes"]):
            done = admitted.invoke(*command)

            assert done.code == 2
            assert "Is a directory" in done.err

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_one_that_may_not_be_read_is_a_clear_error(self, admitted: Shell) -> None:
        manifest(admitted).chmod(0)

        done = admitted.invoke("call", "greet", "name=Ada")

        assert done.code == 2
        assert "Permission denied" in done.err

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_where_there_is_none_no_command_breaks(self, desk: Shell, command: list[str]) -> None:
        (desk.folder / "queries.jsonl").write_text('{"query": "greet", "gold": ["greet"]}')
        (desk.folder / "draft.py").write_text(GREET.replace("greet", "salute"))
        starts = command[0] in ("add", "reject") or command == ["admit", "--yes"]

        done = desk.invoke(*command)

        assert done.code == (0 if starts else 2)
        assert starts or "error: " in done.err

    @pytest.mark.parametrize("option", ["--reset", "--afresh"])
    def test_everything_can_be_admitted_afresh(self, tampered: Shell, option: str) -> None:
        write(tampered, "kit.py", KIT)

        done = tampered.invoke(*ADMITTED, option, "tools")

        assert done.code == 0
        assert states(tampered) == {"greet.py": "admitted", "kit.py": "admitted"}
        assert tampered.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"

    def test_admitting_afresh_shows_everything_again(self, tampered: Shell) -> None:
        done = tampered.invoke("admit", "--reset", "--no-probe", stdin="n\n")

        assert done.code == 1
        assert "+def greet(name: str) -> str:" in done.out

    def test_afresh_looks_again_at_what_a_sound_manifest_admits(self, admitted: Shell) -> None:
        done = admitted.invoke("admit", "--reset", "--no-probe", stdin="y\n")

        assert done.out.endswith("admitted: tools/greet.py v1: greet\n")

    def test_a_key_that_is_not_the_right_one_is_told(self, desk: Shell) -> None:
        sealed = desk.having(TOOLKILN_MANIFEST_KEY="one")
        sealed.invoke(*ADMITTED)

        other = desk.having(TOOLKILN_MANIFEST_KEY="two").invoke("call", "greet", "name=Ada")
        none = desk.invoke("call", "greet", "name=Ada")

        assert (other.code, none.code) == (2, 2)
        assert "sealed without this manifest_key" in other.err
        assert "the setting manifest_key is empty" in none.err
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
        write(admitted, "greet.py", POLITE + "# line\n" * 20_000)

        for command in ("admit --yes --no-probe", "status --json", "docs show greet"):
            done = subprocess.run(
                f"{COMMAND} {command} | head -c 1 >/dev/null",
                shell=True, cwd=admitted.folder, env=admitted.environ(), capture_output=True,
                timeout=BOUND,
            )  # fmt: skip

            assert b"Traceback" not in done.stderr
            assert b"error" not in done.stderr
