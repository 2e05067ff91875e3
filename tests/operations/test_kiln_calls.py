"""Kiln as programs use it: functions of this process, without a loop, with and without walls."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolkiln import Context, tool
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status

SOON = 60.0
SANDBOXED = '''
"""Tools of a file."""
import os, subprocess, sys, time
from pathlib import Path
from toolkiln import Context, tool

def add(left: int, right: int = 2) -> int:
    """Add."""
    return left + right
'''
MARKED = '''
"""Tools that want out."""
import os, subprocess, time
from pathlib import Path
from toolkiln import Context, tool

@tool(sandbox=False)
def see_host(path: str) -> str:
    """Read a file of the host."""
    return Path(path).read_text()

@tool(sandbox=False)
def linger(path: str) -> None:
    """Start a process that beats, and do not end."""
    beat = "n=0; while true; do n=$((n+1)); echo $n > $0; sleep 0.01; done"
    subprocess.Popen(["/bin/sh", "-c", beat, path], start_new_session=True)
    while True:
        time.sleep(1)

@tool(sandbox=False)
def tell_where(ctx: Context) -> list:
    """Tell what an unsandboxed call knows."""
    assert str(ctx.workdir) not in ("/", ".")
    (ctx.workdir / "note.txt").write_text("x")
    ctx.send_file("note.txt")
    return [ctx.user_id, sorted(name for name in os.environ if name.startswith("TOOLKILN"))]

@tool
def fail() -> None:
    """Fail."""
    raise ValueError("private words")
'''


@tool
def double(number: int, ctx: Context) -> int:
    """Double a number."""
    ctx.log("doubling")
    return number * 2


@tool
async def double_later(number: int) -> int:
    """Double a number, later."""
    await asyncio.sleep(0)
    return number * 2


@tool
def in_thread() -> bool:
    """Tell whether this is another thread."""
    return threading.current_thread() is not threading.main_thread()


@tool
async def on_loop() -> bool:
    """Tell whether this is the thread of the loop."""
    return threading.current_thread() is threading.main_thread()


@tool
def use_file_tool(ctx: Context, left: int) -> int:
    """Call a tool of a file from a function."""
    value: int = ctx.call("add", left=left)
    return value


@tool
def relay(ctx: Context, depth: int) -> int:
    """Call itself through the gateway, so many times."""
    return 1 + ctx.call("relay", depth=depth - 1) if depth else 0


@tool
def run_out(kind: str) -> None:
    """Run out of something, without any limit of ours."""
    if kind == "memory":
        raise MemoryError
    raise OSError(getattr(errno, kind), "of the machine")


@tool
def keep(items: list[int] = []) -> list[int]:  # noqa: B006
    """Change a default."""
    items.append(1)
    return items


@tool
def numbers() -> Any:
    """Give numbers of numpy."""
    import numpy as np

    return {"scalar": np.int64(1), "real": np.float32(0.5), "array": np.arange(4).reshape(2, 2)}


FUNCTIONS: list[Callable[..., Any]] = [
    double, double_later, in_thread, on_loop, use_file_tool, relay, run_out, keep, numbers,
]  # fmt: skip


def make(folder: Path, sources: dict[str, str] | None = None, **options: Any) -> Kiln:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, source in (sources or {"add.py": SANDBOXED, "marked.py": MARKED}).items():
        (tools / name).write_text(source)
    functions = options.pop("functions", ())
    settings = Settings(state=folder / "state", environ=dict(os.environ), **options)
    return Kiln(tools, settings=settings, functions=functions, dev=True)


async def until_still(file: Path) -> None:
    """Wait until nobody writes a file any more that was written every few milliseconds."""
    async with asyncio.timeout(SOON):
        seen = b"-"
        while seen != (seen := file.read_bytes()):
            await asyncio.sleep(0.3)


async def test_functions_that_wait_for_each_other_do_not_run_out_of_threads() -> None:
    async with Kiln(functions=FUNCTIONS) as kiln:
        calls = [kiln.call("relay", {"depth": 3}, timeout=SOON) for _ in range(40)]
        results = await asyncio.gather(*calls)

    assert [result.value for result in results] == [3] * 40


def test_tools_that_do_not_fit_a_prompt_are_deferred(tmp_path: Path) -> None:
    kiln = Kiln(functions=FUNCTIONS, settings=Settings(state=tmp_path))

    search, *tools = kiln.tools("anthropic", "call a tool of a file from a function", 1, defer=True)

    assert search["type"].startswith("tool_search_tool_")
    assert {tool["name"] for tool in tools} == set(kiln.services.registry.specs)
    assert [tool["name"] for tool in tools if "defer_loading" not in tool] == ["use_file_tool"]


async def test_authoring_that_is_set_to_nonsense_is_off(tmp_path: Path) -> None:
    async with make(tmp_path, authoring="perhaps") as kiln:
        refused = await kiln.call("write_python_tool", {"tool_code": "", "tool_name": "x"})

    assert refused.error
    assert "disabled" in refused.error.message


async def test_file_cannot_take_the_name_of_a_function(tmp_path: Path) -> None:
    source = 'def double(number: int) -> int:\n    """Double a number."""\n    return number\n'
    async with make(tmp_path, {"double.py": source}, functions=[double]) as kiln:
        result = await kiln.call("double", {"number": 2})
        draft = {"tool_code": source, "tool_name": "twice"}
        refused = await kiln.call("write_python_tool", draft)

    assert (result.value, result.sandbox) == (4, "none")
    assert refused.error
    assert "this program" in refused.error.message


async def test_functions_of_this_process_run_here() -> None:
    events: list[Event] = []
    async with Kiln(functions=FUNCTIONS) as kiln:
        result = await kiln.call("double", {"number": "21"}, observe=events.append)
        later = await kiln.call("double_later", {"number": 1})
        places = [(await kiln.call(name, {})).value for name in ("in_thread", "on_loop")]
        invalid = await kiln.call("double", {"number": "x"})

    assert (result.value, result.sandbox) == (42, "none")
    assert any("number" in note for note in result.notes)
    assert [(event.kind, event.text) for event in events] == [("log", "doubling")]
    assert later.value == 2
    assert places == [True, True]
    assert invalid.status is Status.INVALID


async def test_functions_and_files_are_one_set_of_tools(tmp_path: Path) -> None:
    async with make(tmp_path, functions=FUNCTIONS) as kiln:
        result = await kiln.call("use_file_tool", {"left": 40})

        assert {"double", "add", "see_host"} <= set(kiln.services.registry.specs)
    assert result.value == 42


@pytest.mark.parametrize("kind", ["memory", "ENOSPC", "ENOMEM", "EAGAIN"])
async def test_function_that_runs_out_of_something_hit_no_limit_of_ours(kind: str) -> None:
    async with Kiln(functions=FUNCTIONS) as kiln:
        result = await kiln.call("run_out", {"kind": kind})

    assert result.error
    assert (result.status, result.error.code) == (Status.FAILED, "exception")


async def test_default_of_a_function_is_fresh_for_each_call() -> None:
    async with Kiln(functions=FUNCTIONS) as kiln:
        values = [(await kiln.call("keep", {})).value for _ in range(3)]

    assert values == [[1], [1], [1]]
    assert keep() == [1]  # the function's own default was never touched


async def test_numbers_of_numpy_become_plain_json() -> None:
    pytest.importorskip("numpy")
    async with Kiln(functions=FUNCTIONS) as kiln:
        result = await kiln.call("numbers", {})

    assert result.value == {"scalar": 1, "real": 0.5, "array": [[0, 1], [2, 3]]}
    assert result.notes == ()


def test_program_without_a_loop_calls_tools(tmp_path: Path) -> None:
    with make(tmp_path) as kiln:
        results = [kiln.call_sync("add", {"left": n}) for n in range(3)]
        events: list[Event] = []
        remembered = kiln.call_sync("add", {"left": 1}, call_id="x", observe=events.append)

    assert [result.value for result in results] == [2, 3, 4]
    assert remembered.value == 3


def test_kiln_can_be_used_again_after_it_was_closed(tmp_path: Path) -> None:
    kiln = make(tmp_path)
    for _ in range(2):
        with kiln:
            assert kiln.call_sync("add", {"left": 1}).value == 3


async def test_closing_twice_or_unused_does_no_harm(tmp_path: Path) -> None:
    kiln = make(tmp_path)
    await kiln.close()
    await kiln.call("add", {"left": 1})
    await kiln.close()
    await kiln.close()


async def test_exception_of_a_file_on_disk_is_shown_in_dev(tmp_path: Path) -> None:
    async with make(tmp_path) as kiln:
        ann = kiln.security.sessions.create("ann").token
        shown = await kiln.call("fail", {}, session=ann)

    assert shown.error
    line = next(n for n, text in enumerate(MARKED.splitlines(), 1) if "private words" in text)
    assert shown.error.message == f"ValueError in line {line} of marked.py: private words"


def test_function_that_is_no_tool_is_refused() -> None:
    with pytest.raises(InputError, match="does not declare it as a tool"):
        assert Kiln(functions=[lambda: None]).specs()


async def test_unsandboxed_tool_is_denied_without_a_grant(tmp_path: Path) -> None:
    async with make(tmp_path) as kiln:
        result = await kiln.call("see_host", {"path": "/etc/hostname"})

    assert (result.status, result.sandbox) == (Status.DENIED, "")
    assert result.error
    assert "[grants.see_host] sandbox = false" in (result.error.hint or "")


async def test_unsandboxed_tool_runs_with_a_grant_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("of the host")
    async with make(tmp_path, grants={"*": {"sandbox": False}}) as kiln:
        result = await kiln.call("see_host", {"path": str(tmp_path / "host.txt")})
        ann = kiln.security.sessions.create("ann", privileges=["UNSANDBOXED_EXEC"]).token
        told = await kiln.call("tell_where", {}, session=ann)
        walled = await kiln.call("add", {"left": 1})

    assert (result.value, result.sandbox) == ("of the host", "none")
    assert told.error is None
    assert told.value[0] == "ann"
    assert [file.data for file in told.files] == [b"x"]
    assert walled.sandbox in ("A", "B")  # a grant is no wish


async def test_unsandboxed_tool_is_killed_at_its_timeout_with_all_it_started(
    tmp_path: Path,
) -> None:
    beat = tmp_path / "beat"
    async with make(tmp_path, grants={"linger": {"sandbox": False}}) as kiln:
        for seconds in (1, 5, 25):
            result = await kiln.call("linger", {"path": str(beat)}, timeout=seconds)
            if beat.exists():  # a busy machine may need longer to start it
                break

    assert result.status is Status.TIMEOUT
    await until_still(beat)


HINDERED = """
    import asyncio, json, os, resource, sys
    from pathlib import Path
    from toolkiln.runtime import linux

    how, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    user, group = os.geteuid(), os.getegid()
    if how != "descriptors":
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"1000 {user} 1")
        Path("/proc/self/gid_map").write_text(f"1000 {group} 1")

    from toolkiln.kiln import Kiln
    from toolkiln.config import Settings
    from toolkiln.sandbox.bubblewrap import find_bwrap

    if how == "no bwrap":
        while (bwrap := find_bwrap()) is not None:
            linux.mount("/dev/null", str(bwrap), None, linux.MS_BIND)
    if how == "no namespaces":
        Path("/proc/sys/user/max_user_namespaces").write_text("0")

    async def main():
        settings = Settings(state=folder / "state", environ=dict(os.environ), **options)
        async with Kiln(folder / "tools", settings=settings, dev=True) as kiln:
            results = [await kiln.call("add", {"left": 1})]
            if how == "descriptors":
                _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                few = len(os.listdir("/proc/self/fd")) + 8
                resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
                results += await asyncio.gather(*(kiln.call("add", {"left": 1}) for _ in range(8)))
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                results.append(await kiln.call("add", {"left": 1}))
        print(json.dumps([result.model_dump(mode="json") for result in results]))

    asyncio.run(main())
"""
Hindered = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def hindered(tmp_path: Path) -> Hindered:
    """Calls a tool in a process whose surroundings lack something."""

    def call(how: str, **options: Any) -> list[dict[str, Any]]:
        make(tmp_path)
        command = [sys.executable, "-c", dedent(HINDERED), how, str(tmp_path), json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)
        assert done.returncode == 0, done.stderr
        results: list[dict[str, Any]] = json.loads(done.stdout)
        return results

    return call


@pytest.mark.parametrize("wanted", ["auto", "A", "B"])
def test_without_bwrap_calls_are_refused(hindered: Hindered, wanted: str) -> None:
    (result,) = hindered("no bwrap", sandbox=wanted)

    assert (result["status"], result["sandbox"]) == ("unavailable", "")
    assert result["error"]["code"] == "backend_failed"
    assert "bwrap is not installed" in result["error"]["message"]
    assert "toolkiln doctor" in result["error"]["hint"]


def test_without_namespaces_calls_are_refused(hindered: Hindered) -> None:
    (result,) = hindered("no namespaces")

    assert (result["status"], result["sandbox"]) == ("unavailable", "")
    assert "no sandbox works here" in result["error"]["message"]


def test_reduced_sandbox_serves_where_it_is_allowed_and_holds(hindered: Hindered) -> None:
    (result,) = hindered("no bwrap", allow_reduced=True)

    if result["status"] == "unavailable":  # it was tried, and something got through
        assert "C: " in result["error"]["message"]
    else:
        assert (result["value"], result["sandbox"]) == (3, "C")


def test_process_without_descriptors_refuses_calls_and_recovers(hindered: Hindered) -> None:
    first, *many, last = hindered("descriptors")

    assert (first["value"], last["value"]) == (3, 3)
    assert {result["status"] for result in many} <= {"ok", "unavailable"}
    assert "unavailable" in {result["status"] for result in many}
