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

from execution.observers import code, until_still
from toolkiln import Context, tool
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status

SOON = 60.0
SANDBOXED = '''
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
'''


@tool
def double(number: int, ctx: Context) -> list[object]:
    """Double a number, and say whether this is another thread."""
    ctx.log("doubling")
    return [number * 2, threading.current_thread() is not threading.main_thread()]


@tool
async def double_later(number: int) -> list[object]:
    """Double a number, later, and say whether this is the thread of the loop."""
    await asyncio.sleep(0)
    return [number * 2, threading.current_thread() is threading.main_thread()]


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


FUNCTIONS: list[Callable[..., Any]] = [double, double_later, use_file_tool, relay, run_out]


def make(folder: Path, **options: Any) -> Kiln:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "add.py").write_text(SANDBOXED)
    (tools / "marked.py").write_text(MARKED)
    functions = options.pop("functions", ())
    settings = Settings(state=folder / "state", environ=dict(os.environ), **options)
    return Kiln(tools, settings=settings, functions=functions, dev=True)


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


async def test_file_cannot_take_the_name_of_a_function(tmp_path: Path) -> None:
    source = 'def double(number: int) -> int:\n    """Double a number."""\n    return number\n'
    async with make(tmp_path, functions=[double]) as kiln:
        draft = {"tool_code": source, "tool_name": "twice"}
        refused = await kiln.call("write_python_tool", draft)

    assert refused.error
    assert "this program" in refused.error.message


async def test_functions_of_this_process_run_here() -> None:
    events: list[Event] = []
    async with Kiln(functions=FUNCTIONS) as kiln:
        result = await kiln.call("double", {"number": "21"}, observe=events.append)
        later = await kiln.call("double_later", {"number": 1})
        invalid = await kiln.call("double", {"number": "x"})

    assert (result.value, result.sandbox) == ([42, True], "none")
    assert any("number" in note for note in result.notes)
    assert [(event.kind, event.text) for event in events] == [("log", "doubling")]
    assert later.value == [2, True]
    assert invalid.status is Status.INVALID


async def test_functions_and_files_are_one_set_of_tools(tmp_path: Path) -> None:
    async with make(tmp_path, functions=FUNCTIONS) as kiln:
        result = await kiln.call("use_file_tool", {"left": 40})

        assert {"double", "add", "see_host"} <= set(kiln.services.registry.specs)
    assert result.value == 42


async def test_function_that_runs_out_of_something_hit_no_limit_of_ours() -> None:
    kinds = ["memory", "ENOSPC", "ENOMEM", "EAGAIN"]
    async with Kiln(functions=FUNCTIONS) as kiln:
        results = [await kiln.call("run_out", {"kind": kind}) for kind in kinds]

    assert [code(result) for result in results] == [(Status.FAILED, "exception")] * 4


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
        seen = await kiln.call("tell_where", {}, session=ann)
        walled = await kiln.call("add", {"left": 1})

    assert (result.value, result.sandbox) == ("of the host", "none")
    assert seen.error is None
    assert seen.value[0] == "ann"
    assert [file.data for file in seen.files] == [b"x"]
    assert walled.sandbox in ("A", "B")  # a grant is no wish


async def test_unsandboxed_tool_is_killed_on_timeout_with_all_it_started(tmp_path: Path) -> None:
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

    how, folder, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
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

    async def call(**options):
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
        return [result.model_dump(mode="json") for result in results]

    print(json.dumps([result for each in settings for result in asyncio.run(call(**each))]))
"""
Hindered = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def hindered(tmp_path: Path) -> Hindered:
    """Calls a tool, under each of some settings, in a process whose surroundings lack something."""

    def call(how: str, *settings: dict[str, Any]) -> list[dict[str, Any]]:
        make(tmp_path)
        given = json.dumps(settings or [{}])
        command = [sys.executable, "-c", dedent(HINDERED), how, str(tmp_path), given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=False)
        assert done.returncode == 0, done.stderr
        results: list[dict[str, Any]] = json.loads(done.stdout)
        return results

    return call


def test_without_bwrap_calls_are_refused_unless_reduced_is_allowed(hindered: Hindered) -> None:
    modes = [{"sandbox": mode} for mode in ("auto", "A", "B")]

    *refused, reduced = hindered("no bwrap", *modes, {"allow_reduced": True})

    for result in refused:
        assert (result["status"], result["sandbox"]) == ("unavailable", "")
        assert result["error"]["code"] == "backend_failed"
        assert "bwrap is not installed" in result["error"]["message"]
        assert "toolkiln doctor" in result["error"]["hint"]
    if reduced["status"] == "unavailable":  # it was tried, and something got through
        assert "C: " in reduced["error"]["message"]
    else:
        assert (reduced["value"], reduced["sandbox"]) == (3, "C")


def test_without_namespaces_calls_are_refused(hindered: Hindered) -> None:
    (result,) = hindered("no namespaces")

    assert (result["status"], result["sandbox"]) == ("unavailable", "")
    assert "no sandbox works here" in result["error"]["message"]


def test_process_without_descriptors_refuses_calls_and_recovers(hindered: Hindered) -> None:
    first, *many, last = hindered("descriptors")

    assert (first["value"], last["value"]) == (3, 3)
    assert {result["status"] for result in many} <= {"ok", "unavailable"}
    assert "unavailable" in {result["status"] for result in many}
