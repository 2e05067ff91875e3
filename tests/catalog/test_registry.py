"""The tools that can be called: which version, with which permissions, and why not."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from toolkiln import tool
from toolkiln.catalog.manifest import MANIFEST, ManifestError
from toolkiln.config import Settings
from toolkiln.errors import InputError, UnknownTool
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Grant, Status
from toolkiln.model.spec import BUILTIN_NAMES

from .conftest import tool as source

SOON = 60.0
ANN = AdmissionDecision("ann")
ASKING = '''
from toolkiln import tool

@tool(network=["example.org"], workspace="write")
def fetch() -> str:
    """Fetch."""
    return ""
'''


def make(folder: Path, files: dict[str, str] | None = None, **options: Any) -> Kiln:
    tools = folder / "tools"
    for name, text in (files or {}).items():
        (tools / name).parent.mkdir(parents=True, exist_ok=True)
        (tools / name).write_text(text)
    functions, dev = options.pop("functions", ()), options.pop("dev", False)
    place = options.pop("place", tools)
    settings = Settings(state=folder / "state", environ=dict(os.environ), **options)
    return Kiln(place, settings=settings, functions=functions, dev=dev)


def admit(kiln: Kiln, *files: str, grant: bool = False) -> None:
    candidates = [kiln.services.admissions.candidate(file) for file in files]
    kiln.services.admissions.admit(candidates, AdmissionDecision("ann", grant=grant))


def grant_of(kiln: Kiln, name: str) -> Grant:
    return kiln.services.registry.resolve(name, None).grant


async def test_folder_without_a_manifest_offers_only_what_is_not_in_it(tmp_path: Path) -> None:
    async with make(tmp_path, {"a.py": source("a", 1)}, functions=[double]) as kiln:
        refused = await kiln.call("a", {})
        own = await kiln.call("double", {"number": 2})

        assert refused.error
        assert (refused.status, refused.error.code) == (Status.INVALID, "manifest_unusable")
        assert "toolkiln admit" in (refused.error.hint or "")
        assert own.value == 4
        assert kiln.tool("check_task")
        with pytest.raises(ManifestError):
            _ = kiln.services.registry.specs


async def test_admitted_version_runs_whatever_is_on_disk(tmp_path: Path) -> None:
    async with make(tmp_path, {"a.py": source("a", 1)}) as kiln:
        admit(kiln, "a.py")
        (tmp_path / "tools" / "a.py").write_text(source("a", "smuggled in"))
        first = await kiln.call("a", {})
    async with make(tmp_path) as kiln:
        second = await kiln.call("a", {})
        admit(kiln, "a.py")
        third = await kiln.call("a", {})

    assert [first.value, second.value, third.value] == [1, 1, "smuggled in"]


def test_a_tool_that_is_not_admitted_is_refused_with_its_state(tmp_path: Path) -> None:
    states = ("new", "changed", "proposed", "rejected")
    kiln = make(tmp_path, {f"{state}.py": source(state, 1) for state in states})
    admissions = kiln.services.admissions
    admit(kiln, "changed.py")
    (tmp_path / "tools" / "changed.py").write_text(source("added", 1))
    admissions.propose(admissions.candidate("proposed.py"), "bot", 20)
    admissions.reject("rejected.py", "ann")

    for state in states:
        name = "added" if state == "changed" else state
        with pytest.raises(InputError, match=f"{name} is not admitted.*{state}") as caught:
            kiln.tool(name)

        assert caught.value.code == "not_admitted"
        assert "toolkiln admit" in (caught.value.hint or "")


def test_disabled_tool_is_refused(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("a", 1)})
    admit(kiln, "a.py")

    kiln.services.admissions.switch("a", False)

    with pytest.raises(InputError, match="a is disabled") as caught:
        kiln.tool("a")
    assert caught.value.code == "disabled"
    assert "a" not in kiln.services.registry.specs


def test_unknown_tool_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("convert", 1)})
    admit(kiln, "a.py")

    for name, nearest in (("konvert", "convert"), ("chek_task", "check_task")):
        with pytest.raises(UnknownTool) as caught:
            kiln.tool(name)
        assert nearest in (caught.value.hint or "")


def test_builtin_names_are_those_of_the_tools_that_come_along(tmp_path: Path) -> None:
    assert set(make(tmp_path).services.registry.builtin) == BUILTIN_NAMES


def test_file_cannot_take_the_name_of_a_builtin_tool(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("check_task", "stolen") + source("b", 1)})
    admit(kiln, "a.py")

    assert list(kiln.services.registry.specs) == ["b"]
    assert kiln.tool("check_task") is kiln.services.registry.builtin["check_task"]
    assert kiln.services.registry.resolve("check_task", None).function


def test_function_of_this_process_comes_before_a_file(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("double", "stolen")}, functions=[double])
    admit(kiln, "a.py")

    assert kiln.services.registry.specs["double"].path == __file__
    assert kiln.services.registry.resolve("double", None).function


def test_settings_of_the_operator_come_before_the_permissions_of_the_admission(
    tmp_path: Path,
) -> None:
    kiln = make(tmp_path, {"a.py": ASKING})
    admit(kiln, "a.py")
    without = grant_of(kiln, "fetch")
    admit(kiln, "a.py", grant=True)

    assert without == Grant()
    assert grant_of(kiln, "fetch") == Grant(network=("example.org",), workspace="write")
    for grants in ({"fetch": {"workspace": "read"}}, {"*": {"workspace": "read"}}):
        assert grant_of(make(tmp_path, grants=grants), "fetch") == Grant(workspace="read")


def test_tampered_permissions_are_not_used(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": ASKING}, manifest_key="secret")
    admit(kiln, "a.py", grant=True)
    manifest = tmp_path / "tools" / MANIFEST
    manifest.write_bytes(manifest.read_bytes().replace(b"example.org", b"evil.org"))

    with pytest.raises(ManifestError):
        grant_of(make(tmp_path, manifest_key="secret"), "fetch")


def test_pinned_version_is_refused_once_it_is_another(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("a", 1)})
    admit(kiln, "a.py")
    pinned = kiln.tool("a").digest
    first = kiln.services.registry.resolve("a", pinned)
    (tmp_path / "tools" / "a.py").write_text(source("a", 2))
    unchanged = kiln.services.registry.resolve("a", pinned)

    admit(kiln, "a.py")

    assert first is unchanged
    with pytest.raises(InputError, match="no longer at version"):
        kiln.services.registry.resolve("a", pinned)


def test_spec_and_sources_are_of_one_version_while_the_catalog_changes(tmp_path: Path) -> None:
    kiln = make(tmp_path, {"a.py": source("a", 0)})
    admit(kiln, "a.py")
    is_over = threading.Event()
    mixed: list[str] = []

    def resolve() -> None:
        from toolkiln.spec.local_imports import version_digest

        while not is_over.is_set():
            found = kiln.services.registry.resolve("a", None)
            if version_digest(found.sources()["a.py"], {}) != found.spec.digest:
                mixed.append(found.spec.digest)

    thread = threading.Thread(target=resolve)
    thread.start()
    try:
        for value in range(1, 25):
            (tmp_path / "tools" / "a.py").write_text(source("a", value))
            admit(kiln, "a.py")
    finally:
        is_over.set()
        thread.join(SOON)

    assert mixed == []


@tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


ENTERED, MAY_GO_ON = threading.Event(), threading.Event()


@tool
def gate() -> str:
    """Wait until the test lets it go on."""
    ENTERED.set()
    assert MAY_GO_ON.wait(SOON)
    return "passed"


WAITING = '''
from toolkiln import Context, tool
import _words

@tool
def slow(ctx: Context) -> list:
    """Pass a gate."""
    passed = ctx.call("gate")
    import _late
    return [VERSION, passed, _words.WORD, _late.WORD]
'''


async def test_call_in_flight_keeps_its_version(tmp_path: Path) -> None:
    files = {"a.py": WAITING + "\nVERSION = 1\n", "_words.py": "WORD = 'one'\n",
             "_late.py": "WORD = 'one'\n"}  # fmt: skip
    async with make(tmp_path, files, functions=[gate]) as kiln:
        admit(kiln, "a.py")
        call = asyncio.create_task(kiln.call("slow", {}))
        assert await asyncio.to_thread(ENTERED.wait, SOON)

        for name, text in files.items():
            changed = text.replace("VERSION = 1", "VERSION = 2").replace("one", "two")
            (tmp_path / "tools" / name).write_text(changed)
        admit(kiln, "a.py")
        MAY_GO_ON.set()
        first = await asyncio.wait_for(call, SOON)
        second = await kiln.call("slow", {})

    assert first.value == [1, "passed", "one", "one"]
    assert second.value == [2, "passed", "two", "two"]


def test_one_file_is_a_kiln(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {"a.py": source("a", 1), "b.py": source("b", 1)})
    monkeypatch.chdir(tmp_path / "tools")
    kiln = make(tmp_path, place="a.py")
    admit(kiln, "a.py")

    assert list(make(tmp_path, place="a.py").specs()) == ["a"]
    assert list(make(tmp_path, place=tmp_path / "tools" / "a.py").specs()) == ["a"]
    with pytest.raises(InputError):
        make(tmp_path, place="a.py").tool("b")


def test_functions_alone_are_not_admitted() -> None:
    kiln = Kiln(functions=[double])

    assert list(kiln.services.registry.specs) == ["double"]
    with pytest.raises(InputError, match=r"no folder|not admitted"):
        _ = kiln.services.admissions
