"""Data files of tools, from admission to a call in the real sandbox, in all of its modes."""

import hashlib
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from toolkiln import Kiln
from toolkiln.catalog.watch import watch
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Status
from toolkiln.model.catalog import FileState
from toolkiln.sandbox.sandbox import try_mode

from .conftest import Forge, admit, authoring, call_writer, write

BINARY = bytes(range(256)) * 40 + b"\r\n\x00\xff"
READER = '''
import hashlib
from pathlib import Path

from toolkiln import tool

HERE = Path(__file__).parent


@tool(files=["data/*.json", "logo.bin"]{more})
def rates(name: str) -> dict[str, object]:
    """Read a data file and try to change it.

    Args:
        name: The path of the file.
    """
    file = HERE / name
    data = file.read_bytes()
    try:
        file.write_bytes(b"changed")
    except OSError:
        return {{"sha256": hashlib.sha256(data).hexdigest(), "writable": False}}
    return {{"sha256": hashlib.sha256(data).hexdigest(), "writable": True}}
'''
PLAIN = READER.format(more="")


def read_only(data: bytes) -> dict[str, object]:
    """What the tool says of a file that it can read and not change."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "writable": False}


EURO = b'{"usd": 1.1}'


def filled(forge: Forge, source: str = PLAIN) -> Forge:
    """A folder with the reader and its data, and a file that it does not declare."""
    forge.put("rates.py", source)
    forge.put("data/euro.json", EURO.decode())
    (forge.tools / "data" / "notes.txt").write_text("private")
    (forge.tools / "logo.bin").write_bytes(BINARY)
    return forge


def admitted(forge: Forge, *, grant: bool = False, **settings: Any) -> Kiln:
    """A Kiln that serves the tool, of which a person has admitted what is on disk."""
    kiln = forge.kiln(**settings)
    admit(kiln, "rates.py", AdmissionDecision("ann", grant=grant, unsandboxed=True))
    return kiln


async def value(kiln: Kiln, name: str) -> object:
    result = await kiln.call("rates", {"name": name})
    return result.value if result.status is Status.OK else result.error and result.error.type


@pytest.mark.parametrize(
    ("mode", "more"), [("A", ""), ("B", ""), ("C", ""), ("auto", ', isolation="call"')]
)
async def test_a_call_reads_declared_files_byte_for_byte_and_cannot_change_them(
    forge: Forge, mode: str, more: str
) -> None:
    if mode != "auto" and not (trial := await try_mode(mode, forge.state)).works:
        pytest.skip(trial.reason)
    forge = filled(forge, READER.format(more=more))
    kiln = admitted(forge, sandbox=mode, allow_reduced=True)

    for _ in range(2):  # the second call may run in a template
        assert await value(kiln, "logo.bin") == read_only(BINARY)
        assert await value(kiln, "data/euro.json") == read_only(EURO)
        assert await value(kiln, "data/notes.txt") == "FileNotFoundError"


async def test_an_unsandboxed_call_reads_the_files_of_its_version(forge: Forge) -> None:
    kiln = admitted(filled(forge, READER.format(more=", sandbox=False")), grant=True)
    forge.put("data/euro.json", "changed since")

    found = await value(kiln, "data/euro.json")

    assert isinstance(found, dict)
    assert found["sha256"] == hashlib.sha256(EURO).hexdigest()


@pytest.mark.parametrize("change", ["changed", "added", "removed", "made a link", "made a pipe"])
async def test_a_data_file_that_comes_goes_or_changes_is_a_change_of_the_tool_and_not_served(
    forge: Forge, change: str
) -> None:
    admitted(filled(forge))
    place = forge.tools / "data" / "euro.json"
    if change == "added":
        forge.put("data/yen.json", "1")
    else:
        place.unlink()
    if change == "changed":
        place.write_text('{"usd": 666}')
    if change == "made a link":
        place.symlink_to("/etc/passwd")
    if change == "made a pipe":
        os.mkfifo(place)

    after = forge.kiln()
    [status] = after.catalog.statuses()

    assert status.state is FileState.CHANGED
    assert await value(after, "data/euro.json") == read_only(EURO)


async def test_rolling_back_serves_the_earlier_data_again_even_of_a_removed_tool(
    forge: Forge,
) -> None:
    kiln = admitted(filled(forge))
    (forge.tools / "logo.bin").write_bytes(b"\x00other")
    forge.put("data/yen.json", "2")
    admit(kiln, "rates.py")
    admissions, by = kiln.services.admissions, AdmissionDecision("ann", unsandboxed=True)

    changed = await value(kiln, "logo.bin")
    diff = admissions.diff("rates", "1", "2")
    admissions.rollback("rates", "1", by)
    back, gone = await value(kiln, "logo.bin"), await value(kiln, "data/yen.json")
    admissions.remove("rates", "ann")
    (forge.tools / "logo.bin").unlink()
    admissions.rollback("rates", "1", by)

    assert changed == read_only(b"\x00other")
    assert "diff a/logo.bin b/logo.bin" in diff
    assert f"{len(BINARY):,} bytes → 6 bytes" in diff
    assert "+++ b/data/yen.json" in diff
    assert back == await value(kiln, "logo.bin") == read_only(BINARY)
    assert gone == "FileNotFoundError"


async def test_a_watching_kiln_follows_changed_new_and_removed_data_files(forge: Forge) -> None:
    filled(forge, PLAIN.replace('"data/*.json"', '"data/**/*.json"'))
    kiln = forge.kiln(dev=True)

    def digest(kiln: Kiln = kiln) -> str:
        return str(kiln.catalog.snapshot.served["rates"].read.digest)

    async with aclosing(watch(kiln.catalog)) as changes:
        await anext(changes)
        seen = {digest()}
        for act in (
            lambda: forge.put("data/euro.json", "2"),
            lambda: forge.put("data/deep/er/yen.json", "3"),
            lambda: (forge.tools / "data/deep/er/yen.json").unlink(),
            lambda: (forge.tools / "logo.bin").write_bytes(b"4"),
        ):
            before = digest()
            act()
            async for _ in changes:
                if digest() != before:
                    break
            seen.add(digest())
            assert digest(forge.kiln(dev=True)) == digest()  # as the cache of readings has it

    assert len(seen) == 4  # removing what was added gives the version before
    assert kiln.catalog.snapshot.served["rates"].sources["logo.bin"] == b"4"


async def test_an_agent_can_declare_files_of_the_folder_and_no_others(forge: Forge) -> None:
    filled(forge)
    (forge.tools.parent / "secret.txt").write_text("secret")
    (forge.tools / "link.txt").symlink_to(forge.tools.parent / "secret.txt")
    kiln = forge.kiln()
    refused = [
        await write(kiln, PLAIN.replace('"logo.bin"', f'"{pattern}"'), "thief")
        for pattern in ("../secret.txt", "/etc/passwd", "link.txt", "_manifest.json", ".env")
    ]

    written = await call_writer(kiln, PLAIN, "rates", overwrite=True)

    assert {one.success for one in refused} == {False}
    assert {problem.rule for one in refused for problem in one.validation_errors} <= {
        "bad-file",
        "missing-file",
    }
    assert written["success"], written
    assert await value(kiln, "logo.bin") == read_only(BINARY)


async def test_a_data_file_changed_while_it_is_read_is_never_half_a_version(forge: Forge) -> None:
    kiln = filled(forge).kiln()
    candidate = kiln.services.admissions.candidate("rates.py")
    forge.put("data/euro.json", "meanwhile")

    await authoring(kiln).admit([candidate], AdmissionDecision("ann"), probe=False)

    assert await value(kiln, "data/euro.json") == read_only(EURO)


async def test_a_catalog_of_one_file_has_its_data(tmp_path: Path) -> None:
    forge = filled(Forge(tmp_path))
    forge.tools = forge.tools / "rates.py"
    kiln = admitted(forge)

    assert await value(kiln, "logo.bin") == read_only(BINARY)
    await forge.close()
