"""`dev` serves and marks what is on disk, and writes neither the manifest nor the history."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.model.admission import ToolDraft
from written_tools import write_tool

from .conftest import ADMITTED, BOUND, GREET, KIT, POLITE, Shell, manifest, token, write

BROKEN = "def greet(:\n"
ASKING = '''from toolkiln import tool


@tool(workspace="write")
def keep(text: str) -> str:
    """Keep a text.

    Args:
        text: What to keep.
    """
    return text
'''

COMMANDS = (
    "list", "list --json --all", "show greet", "search greet", "status", "check",
    "diff open_drawer", "call greet name=Ada", "docs index",
)  # fmt: skip


def contents(desk: Shell) -> dict[str, bytes]:
    """Every file of the tools folder."""
    tools = desk.folder / "tools"
    return {
        str(path.relative_to(tools)): path.read_bytes()
        for path in sorted(tools.rglob("*"))
        if path.is_file()
    }


def versions(desk: Shell) -> int:
    """How many versions the history holds."""
    store = desk.folder / "state" / "store.db"
    if not store.exists():
        return 0
    with sqlite3.connect(store) as database:
        return int(database.execute("SELECT count(*) FROM toolkiln_versions").fetchone()[0])


@contextmanager
def nothing_written(desk: Shell) -> Iterator[None]:
    """Assert that the folder and the history are the same afterwards."""
    before = contents(desk), versions(desk)
    yield
    assert (contents(desk), versions(desk)) == before


@contextmanager
def running(desk: Shell, *arguments: str) -> Iterator[Callable[[str], str]]:
    """Start a command that serves; give a function that waits for a line of it."""
    process = desk.start(*arguments)

    def line(pattern: str) -> str:
        assert process.stderr is not None
        for said in process.stderr:
            if re.search(pattern, said):
                return said
        raise AssertionError(f"no {pattern!r}")

    try:
        yield line
    finally:
        process.terminate()
        process.communicate(timeout=BOUND)


def ask(url: str, body: object = None, method: str | None = None, **headers: str) -> Any:
    """The JSON of an answer, or of the problem."""
    data = None if body is None else json.dumps(body).encode()
    fields = {name.replace("_", "-"): text for name, text in headers.items()}
    request = Request(url, data, {"content-type": "application/json", **fields}, method=method)
    try:
        with urlopen(request) as answer:
            return json.load(answer)
    except HTTPError as problem:
        with problem:
            return json.load(problem)


def base_url(line: Callable[[str], str]) -> str:
    found = re.search(r"http://[0-9.]+:\d+", line("^MCP"))
    assert found
    return found[0]


def propose(desk: Shell, name: str, source: str) -> None:
    """Have a caller without privileges write a tool."""
    tools, settings = desk.folder / "tools", Settings(state=desk.folder / "state")
    with Kiln(tools, settings=settings) as kiln:
        bob = kiln.security.sessions.create("bob").token
        done = kiln.services.wait(write_tool(kiln, ToolDraft(source, name, overwrite=True), bob))
        assert done.proposed, done.error


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> Iterator[Shell]:
    """A folder in dev whose file differs from what was admitted, if anything was."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    desk = Shell(tmp_path)
    write(desk, "greet.py", POLITE)
    write(desk, "kit.py", KIT)
    if request.param == "never admitted":
        manifest(desk).unlink()
    if request.param == "damaged":
        manifest(desk).write_bytes(manifest(desk).read_bytes()[:-20])
    tools = tmp_path / "tools"
    if request.param != "read-only":
        yield desk
        return
    if os.geteuid() != 0:
        tools.chmod(0o500)
        yield desk
        tools.chmod(0o700)
        return
    for options in (["--bind", str(tools)], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, tools], capture_output=True).returncode:
            pytest.skip("no mounts here")
    yield desk
    subprocess.run(["umount", tools], check=True)


def of_a_folder(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", kinds, indirect=True)


class TestNothingIsWritten:
    @of_a_folder("never admitted", "changed", "damaged", "read-only")
    def test_by_commands(self, folder: Shell) -> None:
        with nothing_written(folder):
            done = {command: folder.invoke(*command.split()) for command in COMMANDS}

        assert {command: end.err for command, end in done.items() if end.code not in (0, 1)} == {}
        assert done["call greet name=Ada"].out == "Good day, Ada\n"

    @of_a_folder("damaged", "read-only")
    def test_by_python(self, folder: Shell) -> None:
        tools, settings = folder.folder / "tools", Settings(state=folder.folder / "state")

        with nothing_written(folder), Kiln(tools, settings=settings, dev=True) as kiln:
            names = set(kiln.services.registry.specs)
            compiled = kiln.tools("openai")
            hits = kiln.search("greet a person").hits
            result = kiln.call_sync("greet", {"name": "Ada"})

        assert names == {"greet", "open_drawer", "close_drawer"}
        assert len(compiled) == 3
        assert hits[0].key == "greet"
        assert (result.value, result.dev) == ("Good day, Ada", True)

    @of_a_folder("changed", "read-only")
    def test_by_a_server_in_dev(self, folder: Shell) -> None:
        with nothing_written(folder), running(folder, "serve", "--port", "0") as line:
            url = base_url(line)
            listed = ask(f"{url}/v1/tools")["items"]
            details = ask(f"{url}/v1/tools/greet")
            cards = ask(f"{url}/v1/catalog")["tools"]
            result = ask(f"{url}/v1/tools/greet/call", {"arguments": {"name": "Ada"}})

        assert {tool["name"]: tool["dev"] for tool in listed} == dict.fromkeys(
            ("close_drawer", "greet", "open_drawer"), True
        )
        assert (details["dev"], details["version"]) == (True, None)
        assert all(card["dev"] for card in cards)
        assert (result["value"], result["dev"]) == ("Good day, Ada", True)


class TestMarks:
    def test_what_is_served_without_admission_is_marked_in_lists(self, admitted: Shell) -> None:
        write(admitted, "kit.py", KIT)

        text = admitted.invoke("list", "--dev")
        listed = admitted.invoke("list", "--dev", "--json").json()
        shown = admitted.invoke("show", "open_drawer", "--dev")
        plain = admitted.invoke("show", "greet", "--dev")
        found = admitted.invoke("search", "open a drawer", "--dev")
        hits = admitted.invoke("search", "open a drawer", "--dev", "--json").json()["hits"]

        assert "open_drawer   Open a drawer of the desk. (dev)\n" in text.out
        assert "greet         Greet a person by name.\n" in text.out
        assert {tool["name"]: tool["dev"] for tool in listed} == {
            "greet": False, "close_drawer": True, "open_drawer": True,
        }  # fmt: skip
        assert shown.json()["dev"] is True
        assert "note: open_drawer is not admitted" in shown.err
        assert "dev" not in plain.json()
        assert plain.err == ""
        assert found.out.startswith("open_drawer   Open a drawer of the desk. (dev)\n")
        assert {hit["name"]: hit["dev"] for hit in hits}["open_drawer"] is True

    def test_results_and_the_audit_say_dev_and_which_version_ran(self, admitted: Shell) -> None:
        write(admitted, "kit.py", KIT)

        drawer = admitted.invoke("call", "--dev", "--json", "open_drawer", "number=1").json()
        greeting = admitted.invoke("call", "--dev", "--json", "greet", "name=Ada").json()
        wrong = admitted.invoke("call", "--dev", "--json", "open_drawer", "number=one").json()
        records = admitted.invoke("audit", "list", "--json").json()

        assert (drawer["dev"], greeting["dev"], wrong["dev"]) == (True, False, True)
        calls = {record["call_id"]: record for record in records if record["act"] == "call"}
        assert calls[drawer["call_id"]]["detail"] == "dev"
        assert calls[drawer["call_id"]]["digest"] == drawer["digest"]
        assert calls[greeting["call_id"]]["detail"] == ""
        assert calls[wrong["call_id"]]["detail"].startswith("dev; invalid_arguments")

    def test_admitting_a_version_removes_its_mark(self, desk: Shell) -> None:
        tools, settings = desk.folder / "tools", Settings(state=desk.folder / "state")
        with Kiln(tools, settings=settings, dev=True) as kiln:
            before = kiln.call_sync("greet", {"name": "Ada"})
            candidate = kiln.services.admissions.candidate("greet.py")
            kiln.services.admissions.admit([candidate], kiln.security.decision())
            after = kiln.call_sync("greet", {"name": "Ada"})

        assert (before.dev, after.dev) == (True, False)
        assert before.digest == after.digest
        assert desk.invoke("call", "greet", "name=Ada").out == "Hello Ada\n"


class TestDecisionsHoldInDev:
    def test_a_rejected_version_is_not_served(self, desk: Shell) -> None:
        desk.invoke("reject", "tools/greet.py")

        error = desk.refused("call", "--dev", "greet", "name=Ada")

        assert "greet is not admitted: tools/greet.py is rejected" in error

    def test_what_was_granted_to_the_admitted_version_is_not_granted_to_a_changed_one(
        self, desk: Shell
    ) -> None:
        write(desk, "keep.py", ASKING)
        assert desk.invoke(*ADMITTED, "--grant").code == 0
        granted = desk.invoke("call", "--dev", "keep", "text=a")
        write(desk, "keep.py", ASKING + "\n")
        changed = desk.invoke("call", "--dev", "keep", "text=a")
        (desk.folder / "toolkiln.toml").write_text('[grants.keep]\nworkspace = "write"\n')
        by_settings = desk.invoke("call", "--dev", "keep", "text=a")

        assert (granted.code, changed.code, by_settings.code) == (0, 2, 0)
        assert "workspace" in changed.err

    def test_over_http_an_unadmitted_version_is_read_refused_a_grant_and_replaced(
        self, desk: Shell
    ) -> None:
        write(desk, "keep.py", ASKING)
        privileges = ("--privilege", "ADMIN", "--privilege", "WRITE_TOOLS")
        ann = {"authorization": f"Bearer {token(desk, 'ann', *privileges)}"}
        newer = {"source": ASKING.replace("Keep a text", "Keep some text")}
        with running(desk.having(TOOLKILN_DEV="1"), "serve", "--port", "0") as line:
            tool = f"{base_url(line)}/v1/tools/keep"
            before = ask(tool, **ann)
            shown = ask(f"{tool}/versions/{before['digest']}", **ann)
            refused = ask(tool, {"granted": True}, "PATCH", **ann)
            outdated = ask(tool, newer, "PUT", if_match='"0000"', **ann)
            ask(tool, newer, "PUT", if_match=f'"{before["digest"]}"', **ann)
            after = ask(tool, **ann)

        assert (shown["sources"], shown["version"]) == ({"keep.py": ASKING}, 0)
        assert (refused["status"], "unadmitted changes" in refused["detail"]) == (409, True)
        assert outdated["status"] == 412
        assert (before["dev"], after["dev"], after["version"]) == (True, False, 1)

    def test_switching_a_tool_off_writes_the_manifest_and_holds_for_its_next_version(
        self, desk: Shell
    ) -> None:
        developing = desk.having(TOOLKILN_DEV="1")

        done = developing.invoke("disable", "greet")
        write(desk, "greet.py", POLITE)

        assert done.code == 0
        assert manifest(desk).exists()
        assert "greet is disabled" in developing.refused("call", "greet", "name=Ada")

    def test_a_damaged_manifest_is_reported_and_what_is_on_disk_is_served(
        self, admitted: Shell
    ) -> None:
        manifest(admitted).write_text("{}")

        called = admitted.invoke("call", "--dev", "greet", "name=Ada")
        status = admitted.having(TOOLKILN_DEV="1").invoke("status")
        listed = admitted.invoke("list", "--dev")

        assert called.out == "Hello Ada\n"
        assert "_manifest.json is damaged" in status.err
        assert "_manifest.json is damaged" in listed.err


class TestNotice:
    def test_a_call_of_a_changed_tool_names_both_ways_on(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE)

        done = admitted.invoke("call", "greet", "name=Ada")
        as_json = admitted.invoke("call", "--json", "greet", "name=Ada")

        assert (done.code, done.out) == (0, "Hello Ada\n")
        assert done.err == (
            "note: tools/greet.py differs from the admitted version (v1), which runs; "
            "`toolkiln admit tools/greet.py` admits the file, "
            "`toolkiln call --dev greet` runs it without admission\n"
        )
        assert as_json.json()["value"] == "Hello Ada"
        assert as_json.err == done.err
        in_dev = admitted.invoke("call", "--dev", "greet", "name=Ada")
        assert (in_dev.out, in_dev.err) == ("Good day, Ada\n", "")

    def test_a_broken_file_is_named_and_a_rejected_change_is_not(self, admitted: Shell) -> None:
        write(admitted, "greet.py", BROKEN)
        broken = admitted.invoke("call", "greet", "name=Ada")
        in_dev = admitted.invoke("call", "--dev", "--json", "greet", "name=Ada").json()
        write(admitted, "greet.py", POLITE)
        admitted.invoke("reject", "tools/greet.py")

        assert broken.out == "Hello Ada\n"
        assert "`toolkiln check tools/greet.py`" in broken.err
        assert "--dev" not in broken.err
        assert (in_dev["value"], in_dev["dev"]) == ("Hello Ada", False)
        assert admitted.invoke("call", "greet", "name=Ada").err == ""
        assert admitted.invoke("diff", "greet").err == "greet has no pending change\n"

    def test_a_call_in_the_background_gives_the_notice_and_honours_dev(
        self, admitted: Shell
    ) -> None:
        write(admitted, "greet.py", POLITE)

        strict = admitted.run("call", "--background", "greet", "name=Ada")
        lax = admitted.run("call", "--background", "--dev", "greet", "name=Ada")
        results = [
            admitted.run("task", "await", done.out.strip(), "--json").json()
            for done in (strict, lax)
        ]

        assert "differs from the admitted version" in strict.err
        assert "differs from the admitted version" not in lax.err
        found = [task.get("result") or task for task in results]
        assert [result["value"] for result in found] == ["Hello Ada", "Good day, Ada"]
        assert [result["dev"] for result in found] == [False, True]

    def test_dev_names_a_folder_and_redis_a_fleet(self, desk: Shell) -> None:
        assert "--dev" in desk.refused("list", "--dev", "--redis", "redis://127.0.0.1:1")


class TestDiff:
    def test_without_versions_it_shows_the_change_on_disk(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE)

        done = admitted.invoke("diff", "greet")
        as_json = admitted.invoke("diff", "greet", "--json").json()

        assert done.code == 0
        assert '-    return f"Hello {name}"\n' in done.out
        assert '+    return f"Good day, {name}"\n' in done.out
        assert "+from toolkiln" not in done.out
        assert as_json["diff"].strip() == done.out.strip()

    def test_it_shows_new_broken_and_deleted_files(self, admitted: Shell) -> None:
        write(admitted, "kit.py", KIT)
        new = admitted.invoke("diff", "open_drawer").out
        file = write(admitted, "greet.py", POLITE + "def (:\n")
        broken = admitted.invoke("diff", "greet").out
        file.unlink()
        deleted = admitted.invoke("diff", "greet").out

        assert all(f"+{line}\n" in new for line in KIT.splitlines())
        assert "+def (:\n" in broken
        assert "-from toolkiln" not in broken
        assert "-def greet(name: str) -> str:\n" in deleted

    def test_it_shows_a_whole_file_where_nothing_was_ever_admitted(self, desk: Shell) -> None:
        assert "+def greet(name: str) -> str:" in desk.invoke("diff", "greet").out

    def test_without_a_change_it_says_so_and_succeeds(self, admitted: Shell) -> None:
        done = admitted.invoke("diff", "greet")

        assert (done.code, done.out) == (0, "")
        assert done.err == "greet has no pending change\n"

    def test_proposals_are_shown_beside_a_change_on_disk(self, admitted: Shell) -> None:
        propose(admitted, "greet", POLITE)
        propose(admitted, "salute", GREET.replace("greet", "salute"))
        proposed, new = admitted.invoke("diff", "greet").out, admitted.invoke("diff", "salute").out
        write(admitted, "greet.py", GREET.replace("Hello", "Hi"))

        on_disk, _, beside = admitted.invoke("diff", "greet").out.partition("… proposed by bob\n")

        assert '-    return f"Hello {name}"\n' in proposed
        assert '+    return f"Good day, {name}"\n' in proposed
        assert "+def salute(name: str) -> str:\n" in new
        assert on_disk.startswith("… on disk\n")
        assert '+    return f"Hi {name}"\n' in on_disk
        assert '+    return f"Good day, {name}"\n' in beside

    def test_one_version_alone_or_a_damaged_manifest_is_an_error(self, admitted: Shell) -> None:
        assert "name two versions, or none" in admitted.refused("diff", "greet", "1")

        manifest(admitted).write_text("{}")
        assert "is damaged" in admitted.refused("diff", "greet")
