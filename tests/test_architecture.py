"""The layer table of DESIGN.md, module docstrings and sizes, read off the source."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "toolkiln"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 450

_BELOW_APP = {
    "define", "errors", "model", "config", "spec", "schema", "catalog", "docs", "search",
    "execution", "runtime", "store", "fleet", "looks",
}  # fmt: skip
MAY_IMPORT: dict[str, set[str]] = {
    "define": set(),
    "errors": set(),
    "model": set(),
    "config": {"errors"},
    "looks": set(),
    "spec": {"errors", "model", "looks"},
    "schema": {"errors", "model"},
    "catalog": {"errors", "model", "spec", "schema", "store"},
    "docs": {"errors", "model"},
    "search": {"errors", "model"},
    "execution": {"define", "errors", "model", "schema", "runtime", "store"},
    "runtime": {"define"},
    "store": {"errors", "model"},
    # The store for its StoreError only: what is kept in Redis fails in the same way.
    "fleet": {"errors", "model", "execution", "catalog", "store"},
    "app": _BELOW_APP,
    "surfaces": {"errors", "model", "config", "app"},
    "__init__": {*_BELOW_APP, "app"},
}
SHARED = {"msgspec", "pydantic", "pydantic_core", "packaging"}
"""The language that values are written in, and that of requirements; the rest has one home."""


def layer(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module(file: Path) -> list[str]:
    parts = ["toolkiln", *file.relative_to(PACKAGE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(file: Path) -> Iterator[str]:
    """Every dotted name that a file imports: typing-only and function-local ones too."""
    package = module(file) if file.name == "__init__.py" else module(file)[:-1]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def named(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_layer_imports_downward_only(file: Path) -> None:
    own = layer(file)
    layers = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    used = {
        name.split(".")[1]
        for name in imports(file)
        if name.startswith("toolkiln.") and name.split(".")[1] in layers
    }

    assert own in MAY_IMPORT, f"the layer table does not know {own!r}"
    assert used - {own} <= MAY_IMPORT[own]


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_layer_that_is_a_package_is_used_through_its_front(file: Path) -> None:
    own = layer(file)
    deep = {
        name
        for name in imports(file)
        if name.startswith("toolkiln.") and name.split(".")[1] != own
        for parts in [name.split(".")]
        if PACKAGE.joinpath(*parts[1:3]).with_suffix(".py").is_file() and len(parts) > 3
    }

    # `runtime` has no front: its programs start with as little as they can.
    deep = {name for name in deep if not name.startswith("toolkiln.runtime.")}
    assert own == "__init__" or not deep


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_module_says_what_it_is(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text("utf-8")))

    assert docstring, "no docstring"
    assert docstring.partition("\n")[0].rstrip().endswith((".", ":", ",", "…")) or "\n" in docstring


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_module_fits_in_one_sitting(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("file", FILES, ids=named)
def test_no_module_is_a_grab_bag(file: Path) -> None:
    assert file.stem not in {"utils", "helpers", "common", "manager", "types", "misc"}


@pytest.mark.parametrize(
    "name", ["define.py", "errors.py", "config/__init__.py", "config/tables.py"]
)
def test_the_lowest_modules_need_the_standard_library_only(name: str) -> None:
    tops = {dotted.partition(".")[0] for dotted in imports(PACKAGE / name)}

    assert tops - set(sys.stdlib_module_names) <= {"toolkiln"}


def test_every_third_party_package_has_one_home() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for file in FILES:
        for name in imports(file):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in {"toolkiln", *SHARED}:
                homes[top].add(layer(file))

    assert {top: found for top, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize("file", FILES, ids=named)
def test_the_environment_is_read_by_config_and_handed_to_it_by_surfaces(file: Path) -> None:
    # The runtime's environment is the sandbox's own.
    if layer(file) not in {"config", "surfaces", "runtime"}:
        names = {
            ast.unparse(node)
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
        }
        assert not names & {"os.environ", "os.getenv", "os.environb"}


@pytest.mark.parametrize("file", FILES, ids=named)
def test_broad_excepts_give_their_reason(file: Path) -> None:
    lines = file.read_text("utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ExceptHandler):
            names = ast.unparse(node.type) if node.type else "bare"
            if names in {"bare", "Exception", "BaseException"}:
                assert "#" in lines[node.lineno - 1], f"line {node.lineno}"


def test_tests_mirror_the_package() -> None:
    tests = Path(__file__).parent
    folders = {p.name for p in tests.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))}
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}

    # Other people's clients are checks of the whole.
    assert folders - {"conformance"} <= packages
    assert {"spec", "schema", "surfaces"} <= folders


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_pattern_has_a_possessive_quantifier(file: Path) -> None:
    """Python 3.11.2, which Debian ships, miscounts with them (ADR 7)."""
    outside_classes = re.compile(r"\[\^?\]?[^\]]*\]|\\.")
    texts = [
        node.value
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert [t for t in texts if re.search(r"[*+?}]\+|\(\?>", outside_classes.sub("x", t))] == []
