"""What `import toolkiln` and the cold commands load, in a fresh interpreter."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

HEAVY = {
    "annotated_types", "asyncio", "click", "httpx", "inspect", "jsonschema", "jsonschema_rs", "mcp",
    "msgspec", "multiprocessing", "numpy", "packaging", "pydantic", "pydantic_core", "redis",
    "rich", "sphinx", "sqlalchemy", "starlette", "typer", "typing_extensions", "uvicorn",
    "watchfiles",
}  # fmt: skip


@cache
def loaded(code: str) -> frozenset[str]:
    """The modules in a fresh interpreter after some code."""
    script = f"{code}\nimport sys; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return frozenset(done.stdout.split("\n"))


def heavy(modules: frozenset[str]) -> frozenset[str]:
    bare = loaded("")
    return frozenset(name for name in modules - bare if name.partition(".")[0] in HEAVY)


def test_importing_toolkiln_loads_nothing_heavy_and_no_module_of_ours() -> None:
    modules = loaded("import toolkiln; dir(toolkiln); hasattr(toolkiln, 'x')")

    assert heavy(modules) == set()
    assert {name for name in modules if name.startswith("toolkiln")} == {"toolkiln"}


def test_what_authors_import_needs_the_standard_library_only() -> None:
    modules = loaded(
        "from toolkiln import tool, Context, BaseTool, ToolResult, ToolError, OutputKind, "
        "tool_metadata, method_metadata, openapi_schema"
    )

    assert heavy(modules) - {"inspect"} == set()
    assert {n for n in modules if n.startswith("toolkiln.")} == {"toolkiln.define"}
    third = {n.partition(".")[0] for n in modules - loaded("")} - set(sys.stdlib_module_names)
    assert third <= {"toolkiln"}


def test_the_errors_are_light() -> None:
    assert heavy(loaded("from toolkiln import ToolkilnError")) == set()


def after(*arguments: str) -> frozenset[str]:
    """What is loaded once a command has run."""
    code = (
        f"import sys; sys.argv = {['toolkiln', *arguments]!r}\n"
        "import io\nfrom contextlib import redirect_stderr, redirect_stdout\n"
        "from toolkiln.surfaces.cli import main\n"
        "with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):\n"
        "    try: main()\n"
        "    except SystemExit: pass"
    )

    return loaded(code)


def test_help_loads_neither_pydantic_nor_anything_behind_it() -> None:
    modules = after("--help")

    assert "toolkiln.surfaces.cli" in modules
    assert {n.partition(".")[0] for n in modules} & {
        "pydantic", "pydantic_core", "jsonschema_rs", "msgspec", "packaging", "numpy", "mcp",
        "starlette", "redis", "griffe", "sphinx", "sqlalchemy", "watchfiles",
    } == set()  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["version"], ["nonsense"]])
def test_no_part_of_ours_is_loaded_before_it_is_needed(arguments: list[str]) -> None:
    ours = {name for name in after(*arguments) if name.startswith("toolkiln")}

    commands = {name for name in ours if name.startswith("toolkiln.surfaces.cli.")}
    assert ours - commands <= {
        "toolkiln", "toolkiln.errors", "toolkiln.surfaces", "toolkiln.surfaces.cli",
    }  # fmt: skip
    assert commands.isdisjoint(f"toolkiln.surfaces.cli.{name}" for name in ("session", "prompts"))


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file with one tool that is admitted, and a state of its own."""
    folder = tmp_path_factory.mktemp("lone")
    file = folder / "lone.py"
    file.write_text('def lone(text: str = "") -> str:\n    "Be alone."\n    return text * 60_000\n')
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("TOOLKILN_STATE", str(folder / "state"))
        patches.delenv("TOOLKILN_DEV", raising=False)
        after("admit", "--yes", "--no-probe", "--tools", str(file))
        yield str(file)


@pytest.mark.parametrize("command", ["list", "status"])
def test_looking_at_tools_loads_nothing_that_calls_need(lone: str, command: str) -> None:
    modules = after(command, "--tools", lone)

    assert "toolkiln.kiln" in modules
    assert {
        name for name in modules if name.startswith(("toolkiln.exec", "toolkiln.store"))
    } == set()
    assert modules & {
        "asyncio", "multiprocessing", "numpy", "rich", "sqlalchemy", "ssl", "uv",
    } == set()  # fmt: skip


def test_a_call_loads_neither_servers_nor_the_store_nor_what_parses_requirements(lone: str) -> None:
    modules = after("call", "lone", "--tools", lone)

    assert "toolkiln.sandbox" in modules
    assert {name.partition(".")[0] for name in modules} & {
        "griffe", "httpx", "mcp", "multiprocessing", "numpy", "packaging", "redis", "rich",
        "sphinx", "sqlalchemy", "starlette", "uvicorn", "watchfiles",
    } == set()  # fmt: skip


@pytest.mark.parametrize("arguments", [["--id", "1"], ["text=x"]], ids=["id", "cut output"])
def test_the_store_is_loaded_when_something_is_to_be_remembered(
    arguments: list[str], lone: str
) -> None:
    assert "sqlalchemy" in after("call", "lone", *arguments, "--tools", lone)


def test_every_public_name_is_there_and_another_is_an_attribute_error() -> None:
    import toolkiln

    loaded("import toolkiln; [getattr(toolkiln, name) for name in toolkiln.__all__]")

    with pytest.raises(AttributeError, match="nonsense"):
        _ = getattr(toolkiln, "nonsense")  # noqa: B009 - mypy knows the name is wrong
