"""Programs that do not close their Kiln: they end, leave no process behind, and are audited."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from operations.test_sync import BOUND, TOOLS, make, outcomes

pytestmark = pytest.mark.faults

HEADER = """
    import asyncio, sys, threading
    from pathlib import Path
    from toolkiln import Kiln
    from toolkiln.config import Settings

    def double(number: int) -> int:
        "Double a number."
        return number * 2

    blocked = threading.Event()

    async def block() -> None:
        "Block the event loop."
        blocked.set()
        threading.Event().wait()

    settings = Settings(state=Path("state"))
    kiln = Kiln("tools", functions=FUNCTIONS, settings=settings, dev=True)
"""
ALONE = dedent(HEADER).replace("FUNCTIONS", "[]")
SLOW = TOOLS + "\ntime.sleep(0.2)  # slow to import: a process with the tool imported is kept\n"
PROGRAMS = {
    "calls": """
        print(kiln.call_sync("add", {"left": 1}).value)
    """,
    "threads that are joined at exit": """
        def work():
            for number in range(5):
                assert kiln.call_sync("add", {"left": number}).value == number + 2
                assert kiln.call_sync("double", {"number": number}).value == number * 2

        kiln.call_sync("double", {"number": 1})
        kiln.call_sync("add", {"left": 1})
        for _ in range(3):
            threading.Thread(target=work).start()
    """,
    "a call in a daemon thread that never ends": """
        begun = threading.Event()
        options = {"observe": lambda _: begun.set()}
        call = lambda: kiln.call_sync("wait_long", **options)
        threading.Thread(target=call, daemon=True).start()
        begun.wait()
    """,
    "a function that blocks the loop": """
        kiln.call_sync("add", {"left": 1})
        call = lambda: kiln.call_sync("block")
        threading.Thread(target=call, daemon=True).start()
        blocked.wait()
    """,
    "a task in the background that never ends": """
        kiln.call_sync("add", {"left": 1})
        kiln.call_sync("wait_long", background=True)
    """,
    "a loop that has ended": """
        async def main():
            print((await kiln.call("add", {"left": 1})).value)

        asyncio.run(main())
    """,
    "a call in a loop that never ends": """
        async def main():
            begun = asyncio.Event()
            call = asyncio.create_task(kiln.call("wait_long", observe=lambda _: begun.set()))
            await begun.wait()

        asyncio.run(main())
    """,
    "a loop that still runs in a daemon thread": """
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(kiln.call("add", {"left": 1}), loop).result()
    """,
    "both": """
        async def main():
            await kiln.call("add", {"left": 1})
            await asyncio.to_thread(kiln.call_sync, "add", {"left": 1})

        asyncio.run(main())
    """,
    "an exit in the middle": """
        kiln.call_sync("add", {"left": 1})
        sys.exit(0)
    """,
}
CALLS = {
    "threads that are joined at exit": ["ok"] * 32,
    "a call in a daemon thread that never ends": ["cancelled"],
    "a task in the background that never ends": ["ok", "cancelled"],
    "a call in a loop that never ends": ["cancelled"],
    "both": ["ok"] * 2,
}


def run(folder: Path, program: str, how: str) -> tuple[int, str, set[int]]:
    """The exit status of a program, what it wrote to stderr, and the processes that it left.

    It is stopped when it is done, so that its processes can be counted, and then goes on.
    """
    make(folder)
    (folder / "tools" / "numbers.py").write_text(SLOW)
    done = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    header = HEADER.replace("FUNCTIONS", "[double, block]" if how == "script" else "[]")
    source = dedent(header) + dedent(program).replace("sys.exit", f"{done}; sys.exit") + done
    (folder / "program.py").write_text(source)
    command = ["program.py"] if how == "script" else ["-c", source]
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", *command],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        below = opened_below(process.pid)
        assert below
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    return process.returncode, err, not_ended(below)


def opened_below(pid: int) -> dict[int, int]:
    """The processes below one, with descriptors that tell of their end."""
    below = {}
    for child in descendants(pid):
        with suppress(OSError):  # it has just ended
            below[child] = os.pidfd_open(child)
    return below


def not_ended(below: dict[int, int]) -> set[int]:
    """Which of these processes do not end, and would stay behind."""
    left = {pid for pid, handle in below.items() if not select.select([handle], [], [], 10)[0]}
    for handle in below.values():
        os.close(handle)
    return left


def descendants(pid: int) -> Iterator[int]:
    """The processes below one."""
    for file in Path("/proc").glob(f"{pid}/task/*/children"):
        children = ""
        with suppress(OSError):  # the thread has just ended
            children = file.read_text()
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_ends_without_closing_its_kiln(tmp_path: Path, name: str) -> None:
    code, err, left = run(tmp_path, PROGRAMS[name], "script")

    complaints = [line for line in err.splitlines() if not line.startswith("Executing <")]
    assert (code, complaints, left) == (0, [], set())
    assert [outcome for _, outcome in outcomes(tmp_path)] == CALLS.get(name, ["ok"])


def test_python_c_ends_without_closing_its_kiln(tmp_path: Path) -> None:
    code, _, left = run(tmp_path, PROGRAMS["calls"], "-c")

    assert (code, left) == (0, set())
    assert [outcome for _, outcome in outcomes(tmp_path)] == ["ok"]


NOTEBOOK = """
import warnings; warnings.simplefilter("error")
from pathlib import Path
from toolkiln import Kiln
from toolkiln.config import Settings
kiln = Kiln("tools", settings=Settings(state=Path("state")), dev=True)
kiln.call_sync("add", {"left": 1})
(await kiln.call("add", {"left": 2})).value
(await asyncio.to_thread(kiln.call_sync, "add", {"left": 3})).value
"""


def ended(folder: Path, *command: str, program: str = "") -> "subprocess.CompletedProcess[str]":
    """A process that runs a program over the tools of a folder, after it has ended."""
    make(folder)
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder, input=program, capture_output=True, text=True, timeout=BOUND,
        start_new_session=True,
    )  # fmt: skip


def test_a_notebook_awaits_calls_and_ends_without_closing_its_kiln(tmp_path: Path) -> None:
    # As in a notebook, each line runs in an event loop that was there before.
    done = ended(tmp_path, "-m", "asyncio", program=NOTEBOOK)

    assert done.returncode == 0
    assert re.findall(r"^(?:>>> )*(\d+)$", done.stdout, re.MULTILINE) == ["4", "5"]
    assert "write `await kiln.call(…)`" in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert [outcome for _, outcome in outcomes(tmp_path)] == ["ok", "ok"]


def test_an_exception_ends_a_script_and_leaves_its_traceback_alone(tmp_path: Path) -> None:
    program = 'kiln.call_sync("add", {"left": 1})\nraise ValueError("mine")\n'

    done = ended(tmp_path, "-c", ALONE + program)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: mine"
    assert done.stderr.count("Traceback") == 1


def test_children_of_multiprocessing_write_their_audit(tmp_path: Path) -> None:
    program = """
        import multiprocessing

        def work(number):
            return kiln.call_sync("add", {"left": number}).value

        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(pool.map(work, range(9)))
            pool.close()
            pool.join()
    """

    done = ended(tmp_path, "-c", ALONE + dedent(program))

    assert (done.stdout, done.stderr) == (f"{list(range(2, 11))}\n", "")
    assert outcomes(tmp_path) == [("add", "ok")] * 9
