"""The layer table of DESIGN.md, module docstrings and sizes, read off the source."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "toolkiln"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 600
WIDEST = 100

_BELOW_OPERATIONS = {
    "define", "errors", "appearance", "config", "model", "store", "schema", "docs", "search",
    "spec", "catalog", "docstrings", "frameworks", "runtime", "security", "execution", "sandbox",
}  # fmt: skip
MAY_IMPORT: dict[str, set[str]] = {
    "docstrings": set(),
    "define": {"docstrings"},
    "errors": set(),
    "appearance": set(),
    "config": {"errors"},
    "model": {"errors", "docstrings"},
    "store": {"errors", "model"},
    "schema": {"errors", "model"},
    "docs": {"errors", "model"},
    "search": {"errors", "model"},
    "frameworks": {"define"},
    "spec": {"errors", "model", "appearance", "docstrings", "frameworks"},
    "catalog": {"errors", "model", "store", "spec", "schema", "docs"},
    "runtime": {"define", "frameworks"},
    "security": {"errors", "model", "config", "store", "schema"},
    "execution": {"define", "errors", "model", "schema", "runtime", "security"},
    "sandbox": {"errors", "model", "runtime", "execution"},
    "operations": _BELOW_OPERATIONS,
    "fleet": {*_BELOW_OPERATIONS, "operations"},
    "kiln": {*_BELOW_OPERATIONS, "operations", "fleet"},
    "surfaces": {
        "errors", "model", "config", "appearance", "operations", "kiln", "security", "fleet",
        "schema",
    },
    "__init__": {*_BELOW_OPERATIONS, "operations", "fleet", "kiln"},
    "__main__": {"surfaces"},
}  # fmt: skip
SURFACES_ALSO_IMPORT = {
    "toolkiln.execution.call_events.CallObserver",
    "toolkiln.execution.call_events.RunningCall",
    "toolkiln.execution.run_log.RunRecord",
}
"""Types of what subscribes to calls."""
SHARED = {"msgspec", "pydantic", "pydantic_core", "packaging"}
"""The language that values are written in, and that of requirements; the rest has one home."""


def layer(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module(file: Path) -> list[str]:
    parts = ["toolkiln", *file.relative_to(PACKAGE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All of a file's syntax, the module first."""
    return tuple(ast.walk(ast.parse(file.read_text("utf-8"))))


@cache
def imports(file: Path) -> tuple[str, ...]:
    """Every dotted name that a file imports: typing-only and function-local ones too."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    package = module(file) if file.name == "__init__.py" else module(file)[:-1]
    for node in nodes(file):
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


# One test for all files, each of which it names: hundreds of tests would take longer to hand out
# than to run.
def test_the_layer_table_knows_every_layer() -> None:
    assert {layer(file) for file in FILES} <= set(MAY_IMPORT)


def offending(is_wrong: Callable[[Path, str], bool]) -> dict[str, set[str]]:
    """What files import of ours and may not."""
    found = {
        named(file): {n for n in imports(file) if n.startswith("toolkiln.") and is_wrong(file, n)}
        for file in FILES
    }
    return {file: names for file, names in found.items() if names}


def test_a_layer_imports_downward_only() -> None:
    layers = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}

    def is_upward(file: Path, name: str) -> bool:
        if layer(file) == "surfaces" and name in SURFACES_ALSO_IMPORT:
            return False
        imported = name.split(".")[1]
        return imported in layers and imported not in {layer(file), *MAY_IMPORT[layer(file)]}

    assert offending(is_upward) == {}


def test_a_private_name_stays_in_its_module() -> None:
    assert offending(lambda file, name: name.rpartition(".")[2].startswith("_")) == {}


def test_the_map_for_contributors_names_existing_files() -> None:
    root = PACKAGE.parents[1]
    text = (root / "CONTRIBUTING.md").read_text("utf-8")
    layers = text.partition("## Layers")[2].partition("## Style")[0]
    named_paths = re.findall(r"`([\w/]+/[\w.]*)`", layers)

    missing = [
        path for path in named_paths if not ((PACKAGE / path).exists() or (root / path).exists())
    ]

    assert len(named_paths) > 30
    assert missing == []


def test_a_module_says_what_it_is() -> None:
    unsaid = []
    for file in FILES:
        (tree, *_) = nodes(file)
        assert isinstance(tree, ast.Module)
        docstring = ast.get_docstring(tree) or ""
        ends = docstring.partition("\n")[0].rstrip().endswith((".", ":", ",", "…"))
        if not docstring or not (ends or "\n" in docstring):
            unsaid.append(named(file))

    assert unsaid == []


def test_a_module_fits_in_one_sitting() -> None:
    lengths = {named(file): len(file.read_text("utf-8").splitlines()) for file in FILES}

    assert {file: length for file, length in lengths.items() if length > LONGEST} == {}


def test_a_module_of_the_page_fits_in_one_sitting_and_on_a_screen_and_closes_its_tags() -> None:
    static = PACKAGE / "surfaces" / "web" / "static"
    own = [file for file in static.rglob("*.js") if "vendor" not in file.parts]
    texts = {str(file.relative_to(static)): file.read_text("utf-8") for file in own}
    lines = {name: text.splitlines() for name, text in texts.items()}
    # htm takes what follows an end without its bracket for a part of the tag, and drops it.
    unclosed = re.compile(r"</\$\{\w+\}(?!>)")

    assert len(own) > 50
    assert [name for name, text in lines.items() if len(text) > LONGEST] == []
    assert [name for name, text in lines.items() if max(map(len, text)) > WIDEST] == []
    assert [name for name, text in texts.items() if unclosed.search(text)] == []


def test_no_module_is_a_grab_bag() -> None:
    bags = {"utils", "helpers", "common", "manager", "types", "misc"}

    assert [named(file) for file in FILES if file.stem in bags] == []


@pytest.mark.parametrize("name", ["define.py", "errors.py", "config.py"])
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


def test_the_environment_is_read_by_config_and_handed_to_it_by_surfaces() -> None:
    readers = {
        named(file): ast.unparse(node)
        for file in FILES
        # The runtime's environment is the sandbox's own.
        if layer(file) not in {"config", "surfaces", "runtime"}
        for node in nodes(file)
        if isinstance(node, ast.Attribute)
        if ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}
    }

    assert readers == {}


def test_broad_excepts_give_their_reason() -> None:
    bare = []
    for file in FILES:
        lines = file.read_text("utf-8").splitlines()
        for node in nodes(file):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "bare"
                is_broad = caught in {"bare", "Exception", "BaseException"}
                if is_broad and "#" not in lines[node.lineno - 1]:
                    bare.append(f"{named(file)}:{node.lineno}")

    assert bare == []


def test_tests_mirror_the_package() -> None:
    tests = Path(__file__).parent
    folders = {p.name for p in tests.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))}
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}

    # Three test the whole: one contract for every surface, other people's clients, and other
    # people's files. `snapshots` has data for a test beside it.
    assert folders - {"compat", "conformance", "contract", "snapshots"} <= packages
    assert {"spec", "schema", "surfaces"} <= folders


def test_no_pattern_has_a_possessive_quantifier() -> None:
    """Python 3.11.2, which Debian ships, miscounts with them (ADR 7)."""
    outside_classes = re.compile(r"\[\^?\]?[^\]]*\]|\\.")
    possessive = re.compile(r"[*+?}]\+|\(\?>")
    found = [
        (named(file), node.value)
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if possessive.search(outside_classes.sub("x", node.value))
    ]

    assert found == []
