"""Writing tools while things fail: at every stage, at every step on disk, by death, by full disks.

Whatever happens, a fresh Kiln serves the earlier version, or all of the one that was written,
and nothing is left lying about.
"""

import asyncio
import errno
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolkiln.catalog import manifest
from toolkiln.catalog.folder import ToolFolder
from toolkiln.errors import StoreError
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision, Stage, ToolDraft
from toolkiln.store.version_archive import VersionArchive

from .conftest import FIRST, NAME, SECOND, Forge, stop_at, write

pytestmark = pytest.mark.faults

SOON = 60.0
FILE = f"{NAME}.py"
BEFORE_WRITING = list(Stage)[: list(Stage).index(Stage.WRITE) + 1]
AFTER_WRITING = [stage for stage in Stage if stage not in BEFORE_WRITING]
FAULTS = [RuntimeError("oops"), OSError(errno.ENOSPC, "full"), asyncio.CancelledError()]


def ends(overwrite: bool) -> tuple[dict[str, str], dict[str, str]]:
    """What is served before and after the writing."""
    return ({NAME: FIRST} if overwrite else {}), {NAME: SECOND}


async def prepare(forge: Forge, *, overwrite: bool) -> Kiln:
    """A Kiln with an earlier version, or with none, about to write the second."""
    kiln = forge.kiln()
    await write(kiln, "def other() -> int:\n    'Give one.'\n    return 1\n", "other")
    if overwrite:
        await write(kiln, FIRST)
    return kiln


def look(forge: Forge, kiln: Kiln | None = None) -> dict[str, str]:
    """What is served, which is whole: files, manifest, store and folder agree."""
    served = forge.served()
    assert served.pop("other")
    files = {name: data.decode() for name, data in forge.files().items()}
    files.pop("other.py")
    assert files == ({FILE: served[NAME]} if served else {})
    fresh = forge.kiln().catalog
    assert {status.state for status in fresh.statuses()} == {"admitted"}
    for file, admission in fresh.manifest.files.items():
        assert fresh.version_sources(admission.sha256, file)
    if kiln is not None:
        catalog = kiln.catalog
        catalog.refresh([catalog.root / "_manifest.json", catalog.root / FILE])
        assert {name: s.admission for name, s in catalog.snapshot.served.items()} == {
            name: s.admission for name, s in fresh.snapshot.served.items()
        }
    return served


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_fault_at_any_stage_leaves_the_earlier_version_or_the_whole_next_one(
    forge: Forge, fault: BaseException, overwrite: bool
) -> None:
    before, after = ends(overwrite)
    kiln = await prepare(forge, overwrite=overwrite)
    is_there = overwrite

    def fail() -> None:
        raise fault

    for stage in Stage:
        with pytest.raises(type(fault)):
            await write(kiln, SECOND, observe=stop_at(stage, fail), overwrite=is_there)

        is_there = overwrite or stage in AFTER_WRITING
        assert look(forge, kiln) == (after if stage in AFTER_WRITING else before), stage


STEPS: list[tuple[Any, str]] = [
    (VersionArchive, "add_many"),
    (manifest, "encode"),
    (manifest, "commit"),
    (manifest, "_write_temporary"),
    (manifest, "_replace"),
    (Path, "replace"),
    (os, "fsync"),
    (Path, "chmod"),
]


def broken(
    patch: pytest.MonkeyPatch, owner: Any, name: str, at: int, stop: Callable[[], object]
) -> list[str]:
    """Lets the n-th use of something end otherwise; the uses that came."""
    real, uses = getattr(owner, name), list[str]()

    def step(*arguments: Any, **named: Any) -> Any:
        uses.append(name)
        if len(uses) == at:
            stop()
        return real(*arguments, **named)

    patch.setattr(owner, name, step)
    return uses


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
async def test_full_disk_at_any_step_of_writing_is_a_refusal(
    forge: Forge, owner: Any, name: str, overwrite: bool
) -> None:
    before, after = ends(overwrite)
    kiln = await prepare(forge, overwrite=overwrite)

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for at in range(1, 20):
        with pytest.MonkeyPatch.context() as patch:
            uses = broken(patch, owner, name, at, fail)
            written = await write(kiln, SECOND, overwrite=overwrite)

        if len(uses) < at:
            break
        assert look(forge, kiln) == (after if written.success else before)
        if written.success:
            break
        assert "No space left" in written.error
        assert written.stages[-1].stage is Stage.WRITE

    assert (await write(kiln, SECOND, overwrite=True)).success
    assert look(forge, kiln) == after


async def test_store_that_fails_is_a_refusal(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    kiln = await prepare(forge, overwrite=True)

    def fail(*_: Any) -> Any:
        raise StoreError("the store is out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(VersionArchive, "add_many", fail)
        written = await write(kiln, SECOND, overwrite=True)

    assert written.error == "the store is out of reach"
    assert look(forge, kiln) == {NAME: FIRST}


async def test_looking_again_that_fails_leaves_all_that_was_written(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    kiln = await prepare(forge, overwrite=True)

    def fail() -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        broken(patch, ToolFolder, "reload", 2, fail)
        with suppress(MemoryError):
            await write(kiln, SECOND, overwrite=True)

    assert look(forge, kiln) == {NAME: SECOND}


async def test_cancelled_writing_ends_whole(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    kiln = await prepare(forge, overwrite=True)
    loop, reached = asyncio.get_running_loop(), asyncio.Event()
    broken(monkeypatch, manifest, "commit", 1, lambda: loop.call_soon_threadsafe(reached.set))

    task = asyncio.create_task(write(kiln, SECOND, overwrite=True))
    async with asyncio.timeout(SOON):
        await reached.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    with manifest.lock_folder(forge.tools):
        pass  # the writer has come to an end

    assert look(forge) in ends(overwrite=True)


async def test_probe_that_is_cancelled_leaves_nothing(forge: Forge) -> None:
    kiln = await prepare(forge, overwrite=True)
    probing = asyncio.Event()
    endless = SECOND + "while True:\n    pass\n"

    task = asyncio.create_task(
        kiln.services.pipeline.write(
            ToolDraft(endless, NAME, overwrite=True),
            AdmissionDecision("ann"),
            observe=stop_at(Stage.PROBE, probing.set),
        )
    )
    async with asyncio.timeout(SOON):
        await probing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert look(forge, kiln) == {NAME: FIRST}


# Death


def forked(work: Callable[[], object]) -> int:
    """How a process that does this ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  the child must not go on as a test
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("stage", Stage)
def test_death_at_any_stage_leaves_the_earlier_version_or_the_whole_next_one(
    tmp_path: Path, stage: Stage, overwrite: bool
) -> None:
    forge = Forge(tmp_path)
    forked(lambda: asyncio.run(prepare(forge, overwrite=overwrite)))

    async def doomed() -> None:
        draft = ToolDraft(SECOND, NAME, "", overwrite)
        die = stop_at(stage, lambda: os.kill(os.getpid(), signal.SIGKILL))
        await forge.kiln().services.pipeline.write(draft, AdmissionDecision("ann"), observe=die)

    async def write_again() -> bool:
        async with asyncio.timeout(SOON):
            return (await write(forge.kiln(), FIRST, overwrite=True)).success

    assert forked(lambda: asyncio.run(doomed())) == -signal.SIGKILL

    before, after = ends(overwrite)
    assert look(forge) == (after if stage in AFTER_WRITING else before)
    assert asyncio.run(write_again())
    assert look(forge) == {NAME: FIRST}
    asyncio.run(forge.close())


def start_python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start a program that may import these tests."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.getenv("PYTHONPATH")]))
    command = [sys.executable, "-c", dedent(code), *map(str, arguments)]
    environ = {**os.environ, "PYTHONPATH": path}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ)


TYPIST = """
    import asyncio, sys
    from itertools import count
    from pathlib import Path
    from operations.conftest import FIRST, Forge, write

    async def main():
        kiln = Forge(Path(sys.argv[1])).kiln()
        for n in count(int(sys.argv[2])):
            written = await write(kiln, f"{FIRST}# {n}\\n", overwrite=True)
            assert written.success, written
            print(n, flush=True)

    asyncio.run(main())
"""


async def test_deaths_at_any_moment_leave_the_last_version_or_the_next(forge: Forge) -> None:
    await prepare(forge, overwrite=True)
    chance = random.Random(4)
    last = 0
    for _ in range(8):
        process = start_python(TYPIST, forge.tools.parent, last + 1)
        assert process.stdout is not None
        try:
            for _ in range(chance.randint(1, 5)):
                last = int(process.stdout.readline())
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.random() * 0.03)  # somewhere in the next writing
        finally:
            process.kill()
        rest, _ = process.communicate(timeout=SOON)
        last = int(([str(last), *rest.split()])[-1])

        found = look(forge)[NAME]
        assert found in (f"{FIRST}# {last}\n", f"{FIRST}# {last + 1}\n")
        last += found.endswith(f"# {last + 1}\n")


# Disks and bounds


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 192 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Write to a disk until it is full; the file that fills it."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as handle:
        while True:
            handle.write(b"x" * 512)
    return filler


@pytest.mark.parametrize("overwrite", [False, True])
async def test_full_disk_of_tools_refuses_and_keeps_the_earlier_version(
    forge: Forge, small_disk: Path, overwrite: bool
) -> None:
    forge.tools = small_disk / "tools"
    kiln = await prepare(forge, overwrite=overwrite)
    filler = fill(small_disk)

    written = await write(kiln, SECOND + "#" * 5_000, overwrite=overwrite)
    refused = look(forge, kiln)
    filler.unlink()
    again = await write(kiln, SECOND, overwrite=overwrite)

    assert "No space left" in written.error
    assert refused == ends(overwrite)[0]
    assert again.success
    assert look(forge, kiln) == {NAME: SECOND}


@pytest.mark.parametrize("overwrite", [False, True])
async def test_full_disk_of_state_refuses_and_keeps_the_earlier_version(
    forge: Forge, small_disk: Path, overwrite: bool
) -> None:
    kiln = await prepare(forge, overwrite=overwrite)
    await kiln.close()
    small_disk.chmod(0o700)  # a state folder that others can write to is refused
    for file in forge.state.glob("store.db*"):
        (small_disk / file.name).write_bytes(file.read_bytes())
    full = forge.kiln(state=small_disk)
    fill(small_disk)

    code = SECOND + "".join(f"# {random.Random(n).random()}\n" for n in range(5_000))
    written = await write(full, code, overwrite=overwrite)
    await full.close()

    assert not written.success
    assert look(forge) == ends(overwrite)[0]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("overwrite", [False, True])
def test_file_size_limit_refuses_and_keeps_the_old_version(tmp_path: Path, overwrite: bool) -> None:
    forge = Forge(tmp_path)
    forked(lambda: asyncio.run(prepare(forge, overwrite=overwrite)))

    async def bounded() -> None:
        kiln = forge.kiln()
        _ = kiln.catalog.archive
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
        written = await write(kiln, SECOND + "#" * 5_000, overwrite=overwrite)
        assert not written.success
        assert written.stages[-1].stage is Stage.WRITE

    ended = forked(lambda: asyncio.run(bounded()))

    assert ended == 0
    assert look(forge) == ends(overwrite)[0]
    asyncio.run(forge.close())
