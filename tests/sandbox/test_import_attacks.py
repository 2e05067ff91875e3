"""Imports: files and packages beside a tool affect only that tool."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from execution.conftest import write
from tables import each_row
from toolkiln.execution.executor import Invocation
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status

from .conftest import SECRET, settings, skip_without

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = {
    "json.py": '''
        def named_json(x: int) -> dict[str, int]:
            """A tool whose file is called like a module of the runtime."""
            return {"x": x}
        ''',
    **{
        f"{name}.py": f'''
        def named_{name}() -> str:
            """One whose file is called like a module that Python has imported."""
            return "ran"
        '''
        for name in ("socket", "os")
    },
    "relative.py": '''
        from .near import VALUE
        from . import near


        def relative() -> list[int]:
            """Import a helper in both ways."""
            return [VALUE, near.VALUE]
        ''',
    "near.py": "VALUE = 5\n",
    "poisons.py": '''
        import sys

        for name in list(sys.modules):
            if name.startswith("toolkiln.") or name in ("json", "socket"):
                sys.modules[name] = None


        def poisons() -> str:
            """Take the runtime's modules away."""
            return "ran"
        ''',
    "replaces.py": '''
        import toolkiln.define
        from toolkiln import ToolError, tool

        toolkiln.define.ToolError = toolkiln.define.ToolResult = 5


        @tool
        def replaces() -> str:
            """Replace what the runtime compares with."""
            raise ToolError("mine")
        ''',
    "hooks.py": '''
        import builtins
        import sys


        class Finder:
            """Answers every import with itself."""

            def find_spec(self, *_):
                raise RuntimeError("no imports today")


        sys.meta_path.insert(0, Finder())
        builtins.__import__ = None


        def hooks() -> str:
            """Spoil imports."""
            return "ran"
        ''',
    "exits.py": '''
        import os

        os._exit(0)


        def exits() -> str:
            """End at import."""
            return "never"
        ''',
    "hangs.py": '''
        from toolkiln import tool

        while True:
            pass


        @tool(timeout=1, cpu=9)
        def hangs() -> str:
            """Hang at import."""
            return "never"
        ''',
    "packaged.py": '''
        import sys


        def packaged(secret: str) -> list[object]:
            """Tell what code of the environment saw before the tool did."""
            return [getattr(sys, "pth", None), getattr(sys, "customized", None)]
        ''',
    "good.py": '''
        def good(number: int) -> int:
            """Add one."""
            return number + 1
        ''',
}


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["A", "B"])
async def kiln(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kiln]:
    folder = tmp_path_factory.mktemp("imports")
    write(folder / "tools", TOOLS)
    (folder / "secret").write_text(SECRET)
    async with Kiln(
        folder / "tools", settings=settings(folder / "state", request.param), dev=True
    ) as kiln:
        await skip_without(kiln, request.param, number=1)
        yield kiln


@each_row(
    "tool, arguments, value",
    [
        ("named_json", {"x": 1}, {"x": 1}), ("named_socket", {}, "ran"), ("named_os", {}, "ran"),
        ("relative", {}, [5, 5]),
    ],
)  # fmt: skip
async def test_names_of_files_do_not_matter(
    kiln: Kiln, tool: str, arguments: dict[str, int], value: object
) -> None:
    result = await kiln.call(tool, arguments)

    assert (result.status, result.value) == (Status.OK, value), result.error


@each_row("tool", ["poisons", "replaces", "hooks", "exits", "hangs"])
async def test_spoiling_the_runtime_ends_in_one_result(kiln: Kiln, tool: str) -> None:
    for _ in range(3):
        result = await kiln.call(tool, {})
        assert result.status in (Status.OK, Status.FAILED, Status.TIMEOUT), result.error

    after = await kiln.call("good", {"number": 1})
    assert after.value == 2


async def test_code_of_an_environment_runs_inside_only(kiln: Kiln) -> None:
    state = kiln.settings.state
    secret = state.parent / "secret"
    site = state / "envs" / "hostile"
    site.mkdir(parents=True, exist_ok=True)
    seen = f"os.path.exists({str(secret)!r}), os.path.exists('/etc/passwd'), os.getuid() > 0"
    (site / "hostile.pth").write_text(f"import os, sys; sys.pth = [{seen}]\n")
    (site / "sitecustomize.py").write_text("import sys\nsys.customized = True\n")
    (site / "json.py").write_text("raise SystemExit('not the real one')\n")
    admitted = kiln.services.registry.resolve("packaged", None)

    outcome = await kiln.engine.sandboxes.run(
        Invocation(admitted, {"secret": str(secret)}, site=Path(site))
    )

    assert outcome.value == [[False, False, True], None], outcome.error
    assert not hasattr(sys, "pth")
    assert secret.read_text() == SECRET
