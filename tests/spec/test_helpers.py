"""Helper modules beside a tool: part of its version, read for their types, never run."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from reading import files, findings, one, properties, reading, rules

from tables import each_row
from toolkiln.catalog.files import read_file
from toolkiln.model.source import Reading, Severity
from toolkiln.spec.reader import read

MODEL = """
from pydantic import BaseModel

class Place(BaseModel):
    name: str
    size: int = 3
"""
USE = "def f(where: {}): ..."


def is_place(folder: Path, source: str) -> bool:
    """Whether the only parameter was read as the helper's model."""
    tool = one(source, folder / "tool.py")
    return [*tool.parameters.get("$defs", {}).get("Place", {}).get("properties", {})] == [
        "name",
        "size",
    ]


def read_in(folder: Path, source: str) -> Reading:
    return reading(source, folder / "tool.py")


@each_row(
    "imports, annotation",
    [
        ("from places import Place", "Place"),
        ("from places import Place as P", "P"),
        ("from .places import Place", "Place"),
        ("from . import places", "places.Place"),
        ("from . import places as p", "p.Place"),
        ("import places", "places.Place"),
        ("import places as p", "p.Place"),
        ("from places import *", "Place"),
        ("from .places import *", "'Place'"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from places import Place",
            "'Place'",
        ),
        ("try:\n    from places import Place\nexcept ImportError:\n    Place = None", "Place"),
        ("from geo.places import Place", "Place"),
        ("from geo import places", "places.Place"),
        ("import geo.places", "geo.places.Place"),
        ("import geo.places as p", "p.Place"),
        ("from .geo.places import Place", "Place"),
        ("from geo import Place", "Place"),
        ("import geo", "geo.Place"),
        ("from geo import *", "Place"),
        ("from geo.deep.again import Place", "Place"),
        ("from bare.places import Place", "Place"),
        ("from via import Place", "Place"),
        ("from via import Renamed", "Renamed"),
        ("from via import places", "places.Place"),
        ("from star import Place", "Place"),
    ],
)
def test_types_are_found_in_helpers(tmp_path: Path, imports: str, annotation: str) -> None:
    files(
        tmp_path,
        places=MODEL,
        geo__x="",
        geo__places=MODEL,
        geo__deep__x="",
        geo__deep__again="from ..places import Place",
        bare__places=MODEL,
        via="import places\nfrom places import Place\nRenamed = Place",
        star="from places import *",
        geo__="from .places import Place",
    )

    assert is_place(tmp_path, f"{imports}\n{USE.format(annotation)}")
    assert not rules(f"{imports}\n{USE.format(annotation)}", tmp_path / "tool.py") & {
        "missing-helper", "unresolved-type", "import-leaves-folder", "unlisted-import",
    }  # fmt: skip


def test_the_tool_may_be_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, places=MODEL)
    monkeypatch.chdir(tmp_path)
    source = f"from places import Place\n{USE.format('Place')}"

    relative, absolute = (read(source, path) for path in ("tool.py", tmp_path / "tool.py"))

    assert relative.helpers == absolute.helpers == ("places.py",)
    assert relative.digest == absolute.digest


def test_values_of_helpers_are_known(tmp_path: Path) -> None:
    files(tmp_path, values="LIMIT = 7\nNAME = 'other'")
    source = "from values import LIMIT, NAME\n@tool(name=NAME)\ndef f(x: int = LIMIT): ..."

    tool = one(source, tmp_path / "tool.py")

    assert tool.name == "other"
    assert tool.parameters["properties"]["x"]["default"] == 7


def test_a_base_tool_may_be_in_a_helper(tmp_path: Path) -> None:
    base = "class Base(BaseTool):\n    description = 'From the base.'\n    def execute(args): ..."
    files(tmp_path, base=base)
    source = "from base import Base\nclass Leaf(Base):\n    def execute(args): ..."

    assert one(source, tmp_path / "tool.py").description == "From the base."


SOURCE_OF_A = "from a import x\ndef f(): ..."


def test_the_digest_changes_with_the_file_and_is_that_of_its_tools(tmp_path: Path) -> None:
    one, two = (read_in(tmp_path, f"def f(): ...\ndef g(): {body}") for body in ("...", "1"))

    assert one.digest != two.digest
    assert {tool.digest for tool in one.tools} == {one.digest}
    assert len(one.digest) == 64


@each_row(
    "source",
    [
        "import a\ndef f(): ...",
        "from a import x\ndef f(): ...",
        "from a import *\ndef f(): ...",
        "from . import a\ndef f(): ...",
        "def f():\n    import a",
        "def f():\n    from .a import x",
        "class K:\n    import a\ndef f(): ...",
        "if TYPE_CHECKING:\n    import a\ndef f(): ...",
        "try:\n    import a\nexcept ImportError:\n    pass\ndef f(): ...",
        "import b\ndef f(): ...",
        "import pkg\ndef f(): ...",
        "import pkg.mod\ndef f(): ...",
        "from pkg import mod\ndef f(): ...",
        "from pkg.mod import y\ndef f(): ...",
    ],
)
def test_the_digest_changes_with_a_helper_wherever_it_is_imported(
    tmp_path: Path, source: str
) -> None:
    files(tmp_path, a="x = 1", b="def g():\n    import a", pkg__mod="y = 1", pkg__="import a")
    before = read_in(tmp_path, source)
    files(tmp_path, a="x = 2")

    after = read_in(tmp_path, source)

    assert "a.py" in before.helpers
    assert before.digest != after.digest


@each_row(
    "source, before, after, changes",
    [
        pytest.param(
            SOURCE_OF_A, {}, {"a": "x = 1"}, True, id="a missing helper appears"
        ),
        pytest.param(
            SOURCE_OF_A, {"a": "def ("}, {"a": "def (("}, True, id="a broken helper changes"
        ),
        pytest.param(
            "import a, b\ndef f(): ...", {"a": "x = 1", "b": "x = 2"},
            {"a": "x = 2", "b": "x = 1"}, True, id="helpers swap contents",
        ),
        pytest.param(
            "from pkg.mod import y\ndef f(): ...", {"pkg__mod": "y = 1", "pkg__": "a = 1"},
            {"pkg__": "a = 2"}, True, id="the package of a helper changes",
        ),
        pytest.param(
            SOURCE_OF_A, {"a": "x = 1", "other": "y = 1", "pkg__mod": "z = 1"},
            {"other": "y = 2", "pkg__mod": "z = 2", "new": ""}, False,
            id="unrelated files change",
        ),
    ],
)  # fmt: skip
def test_the_digest_changes_with_the_helpers_and_nothing_else(
    tmp_path: Path,
    source: str,
    before: dict[str, str],
    after: dict[str, str],
    changes: bool,
) -> None:
    files(tmp_path, **before)
    first = read_in(tmp_path, source).digest
    files(tmp_path, **after)

    assert (read_in(tmp_path, source).digest != first) is changes


def test_the_digest_stays_when_the_folder_moves(tmp_path: Path) -> None:
    files(tmp_path / "one", a="x = 1", other="y = 1")
    before = read_in(tmp_path / "one", SOURCE_OF_A)
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    assert before.helpers == ("a.py",)
    assert before.digest == read_in(tmp_path / "two", SOURCE_OF_A).digest


def test_helpers_are_listed_by_name_in_whatever_order_they_are_imported(tmp_path: Path) -> None:
    files(tmp_path, a="x = 1", b="x = 1", c="import b, a")

    assert read_in(tmp_path, "import c\ndef f(): ...").helpers == ("a.py", "b.py", "c.py")


def test_two_helpers_that_import_each_other_are_a_finding(tmp_path: Path) -> None:
    files(tmp_path, a="import b", b="\nimport a")

    (found,) = findings("import a\ndef f(): ...", "import-cycle", tmp_path / "tool.py")

    assert found.path == str(tmp_path / "b.py")
    assert found.line == 2
    assert "a" in found.message
    assert found.fix


@each_row(
    "source, helpers, cycles",
    [
        ("import a", {"a": "from tool import f", "tool": "import a\ndef f(): ..."}, 1),
        ("from . import a", {"a": "from .tool import f", "tool": "from . import a"}, 1),
        ("import a", {"a": "import b", "b": "import c", "c": "import a"}, 1),
        ("import a, b", {"a": "import c", "b": "import c", "c": "x = 1"}, 0),
        (
            "import pkg",
            {"pkg__": "from .mod import x", "pkg__mod": "from . import other",
             "pkg__other": "x = 1"},
            0,
        ),
    ],
)  # fmt: skip
def test_a_ring_is_one_finding_and_a_diamond_or_a_package_is_none(
    tmp_path: Path, source: str, helpers: dict[str, str], cycles: int
) -> None:
    files(tmp_path, **helpers)

    found = findings(f"{source}\ndef f(): ...", "import-cycle", tmp_path / "tool.py")
    missing = findings(f"{source}\ndef f(): ...", "missing-helper", tmp_path / "tool.py")

    assert len(found) == cycles
    assert not [item for item in missing if "tool" in item.message]


def test_types_are_still_found_through_a_cycle_and_a_ring_of_names_is_no_crash(
    tmp_path: Path,
) -> None:
    files(tmp_path, a="from b import Place, X", b=f"from a import X\n{MODEL}")

    assert is_place(tmp_path, f"from a import Place\n{USE.format('Place')}")
    assert properties("from a import X\ndef f(x: X): ...", tmp_path / "tool.py") == {"x": {}}


@each_row(
    "imports",
    [
        "from .nope import x",
        "from . import nope",
        "from .pkg import nope",
        "from .pkg.nope import x",
        "from pkg.nope import x",
        "import pkg.nope",
        "from a import nope",
    ],
)
def test_a_missing_helper_is_an_error_with_its_line(tmp_path: Path, imports: str) -> None:
    files(tmp_path, a="x = 1", pkg__mod="")

    found = findings(f"\n{imports}\ndef f(): ...", "missing-helper", tmp_path / "tool.py")

    assert [(item.line, item.severity) for item in found] == [(2, Severity.ERROR)]
    assert "nope" in found[0].message
    assert found[0].fix


def test_a_package_from_elsewhere_is_not_called_missing(tmp_path: Path) -> None:
    assert "missing-helper" not in rules("import httpx.client\ndef f(): ...", tmp_path / "t.py")


def test_a_helper_missing_in_a_helper_is_reported_there(tmp_path: Path) -> None:
    files(tmp_path, a="\n\nfrom .nope import x")

    (found,) = findings("import a\ndef f(): ...", "missing-helper", tmp_path / "tool.py")

    assert (found.path, found.line) == (str(tmp_path / "a.py"), 3)


@each_row(
    "helper",
    [
        "def x(): ...", "class x: ...", "x = 1", "x: int = 1", "import json as x",
        "from json import loads as x", "if True:\n    x = 1", "for x in []: ...",
        "with open('a') as x: ...", "try:\n    x = 1\nexcept Exception:\n    x = 2",
        "(x := 1)", "x, y = 1, 2", "[x, *y] = 1, 2", "from other import *",
        "type x = int", "globals()['x'] = 1\ndef __getattr__(name): ...",
        "match 1:\n    case x: ...", "def g():\n    global x\n    x = 1", "import x",
        "while True:\n    x = 1\n    break", "async def x(): ...",
    ],
)  # fmt: skip
def test_a_name_that_a_helper_binds_in_any_way_is_not_missing(tmp_path: Path, helper: str) -> None:
    files(tmp_path, a=helper, other="x = 1")

    assert "missing-helper" not in rules("from a import x\ndef f(): ...", tmp_path / "t.py")


@each_row(
    "imports",
    ["from .. import x", "from ..x import y", "from ... import x", "from ..pkg import y"],
)
def test_a_relative_import_that_leaves_the_folder_is_an_error(tmp_path: Path, imports: str) -> None:
    files(tmp_path, x="y = 1", tools__pkg__mod="")

    found = findings(
        f"{imports}\ndef f(): ...", "import-leaves-folder", tmp_path / "tools" / "tool.py"
    )

    assert [(item.line, item.severity) for item in found] == [(1, Severity.ERROR)]


def test_a_helper_in_a_package_may_go_up_as_far_as_the_folder(tmp_path: Path) -> None:
    files(
        tmp_path,
        shared="x = 1",
        pkg__mod="from ..shared import x",
        pkg__bad="from ... import x",
    )

    inside = rules("import pkg.mod\ndef f(): ...", tmp_path / "tool.py")
    outside = rules("import pkg.bad\ndef f(): ...", tmp_path / "tool.py")

    assert "import-leaves-folder" not in inside
    assert "import-leaves-folder" in outside


@each_row("linked", ["a.py", "pkg"])
def test_a_link_out_of_the_folder_is_an_error_and_not_read(tmp_path: Path, linked: str) -> None:
    files(tmp_path / "out", a=MODEL, pkg__places=MODEL)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / linked).symlink_to(tmp_path / "out" / linked)
    module = "a" if linked == "a.py" else "pkg.places"

    result = read_in(tools, f"from {module} import Place\n{USE.format('Place')}")

    assert "import-leaves-folder" in {finding.rule for finding in result.findings}
    assert result.tools[0].parameters["properties"] == {"where": {}}


def test_a_link_within_the_folder_and_to_the_folder_is_a_helper(tmp_path: Path) -> None:
    files(tmp_path / "real", places=MODEL)
    (tmp_path / "real" / "linked.py").symlink_to(tmp_path / "real" / "places.py")
    (tmp_path / "linked").symlink_to(tmp_path / "real")

    assert is_place(tmp_path / "real", f"from linked import Place\n{USE.format('Place')}")
    assert is_place(tmp_path / "linked", f"from places import Place\n{USE.format('Place')}")


def test_a_loop_of_links_and_a_folder_called_like_a_module_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "b.py")
    (tmp_path / "b.py").symlink_to(tmp_path / "a.py")
    (tmp_path / "pkg").symlink_to(tmp_path)
    (tmp_path / "c.py").mkdir()

    assert read_in(tmp_path, "import a, c\nimport pkg.pkg.pkg.a\ndef f(): ...").tools


def test_a_syntax_error_is_reported_in_the_helper(tmp_path: Path) -> None:
    files(tmp_path, a="x = 1\ndef (:\n")

    result = read_in(tmp_path, "from a import X\ndef f(x: X): ...")

    found = next(finding for finding in result.findings if finding.rule == "syntax-error")
    assert (found.path, found.line) == (str(tmp_path / "a.py"), 2)
    assert result.tools[0].parameters["properties"] == {"x": {}}


@each_row(
    "content",
    [
        b"\x00\x01\x02",
        b"\xff\xfe\xfa",
        b"# coding: nonsense\n",
        b"x = '\xe9'\n",
        b"x = " + b"(" * 10_000,
        b"x = " + b"-" * 100_000 + b"1",
        b"x = 1\n" * 1_000_000,
    ],
)
def test_a_helper_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.py").write_bytes(content)

    result = read_in(tmp_path, "from a import X\ndef f(x: X): ...")

    errors = [item for item in result.findings if item.path == str(tmp_path / "a.py")]
    assert errors
    assert all(item.severity is Severity.ERROR and item.fix for item in errors)
    assert result.tools[0].parameters["properties"] == {"x": {}}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_helper_without_permission_is_an_error(tmp_path: Path) -> None:
    files(tmp_path, a="x = 1")
    (tmp_path / "a.py").chmod(0)

    assert "helper-unreadable" in rules("import a\ndef f(): ...", tmp_path / "tool.py")


def test_a_long_chain_of_helpers_is_followed(tmp_path: Path) -> None:
    files(tmp_path, **{f"m{n}": f"from m{n + 1} import Place" for n in range(100)}, m100=MODEL)

    assert is_place(tmp_path, f"from m0 import Place\n{USE.format('Place')}")
    assert len(read_in(tmp_path, "import m0\ndef f(): ...").helpers) == 101


def test_a_very_long_chain_of_helpers_is_no_crash(tmp_path: Path) -> None:
    files(tmp_path, **{f"m{n}": f"from m{n + 1} import X" for n in range(1_000)}, m1000="X = int")

    result = read_in(tmp_path, "from m0 import X\ndef f(x: X): ...")

    assert len(result.helpers) == 1_001 or "too-deep" in {f.rule for f in result.findings}


@each_row("name", ["json", "typing", "enum", "dataclasses", "pydantic"])
def test_a_file_named_like_the_standard_library_is_not_taken_for_it(
    tmp_path: Path, name: str
) -> None:
    files(tmp_path, **{name: "def (broken"})

    result = read_in(tmp_path, f"import {name}\ndef f(x: int): ...")

    assert result.helpers == ()
    assert result.tools[0].parameters["properties"] == {"x": {"type": "integer"}}


def test_a_package_goes_before_a_module_of_the_same_name(tmp_path: Path) -> None:
    files(tmp_path, a="X = 1", a__other="", a__="X = 2")
    source = "from a import X\ndef f(x: int = X): ..."

    assert properties(source, tmp_path / "tool.py")["x"]["default"] == 2


def test_a_helper_that_takes_types_from_elsewhere_leaves_them_open(tmp_path: Path) -> None:
    files(tmp_path, a="from pandas import DataFrame\nFrame = DataFrame | None")
    source = "from a import Frame\ndef f(x: Frame, y: int): ..."

    assert properties(source, tmp_path / "tool.py") == {"x": {}, "y": {"type": "integer"}}
    assert "unresolved-type" in rules(source, tmp_path / "tool.py")


def test_what_a_helper_can_touch_is_reported_and_its_functions_are_no_tools(
    tmp_path: Path,
) -> None:
    files(tmp_path, a="import subprocess\ndef g(): subprocess.run(['ls'])")

    result = read_in(tmp_path, "from a import g\ndef f(): g()")

    (tool,) = result.tools
    assert "subprocess" in tool.uses
    found = [item for item in result.findings if item.rule == "undeclared-capability"]
    assert [(item.path, item.line) for item in found] == [(str(tmp_path / "a.py"), 1)]


def test_memory_has_no_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, a="X = 1")
    monkeypatch.chdir(tmp_path)

    assert reading("import a\ndef f(): ...", "<memory>").helpers == ()


def test_an_unknown_type_in_a_helper_is_reported_there(tmp_path: Path) -> None:
    model = "from pydantic import BaseModel\nfrom pandas import DataFrame\n\n\n"
    files(tmp_path, shapes=f"{model}class Box(BaseModel):\n    content: DataFrame\n")

    found = findings(
        "from shapes import Box\ndef f(x: Box): ...", "unresolved-type", tmp_path / "tool.py"
    )

    assert [(item.path, item.line) for item in found] == [(str(tmp_path / "shapes.py"), 6)]


@each_row("data", [b"def f(): ...\r\n", b"\xef\xbb\xbfdef f(): ...\n"])
def test_the_digest_is_of_the_bytes_on_disk(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "tool.py"
    file.write_bytes(data)

    assert read_file(file).digest == hashlib.sha256(data).hexdigest()


def test_a_file_that_imports_its_own_name_means_a_package_also_for_those_beside_it(
    tmp_path: Path,
) -> None:
    files(
        tmp_path,
        docker="from docker.errors import NotFound\n\n\ndef ps(): ...\n",
        compose="import docker\nfrom docker.errors import NotFound\n\n\ndef up(): ...\n",
    )

    for name in ("docker.py", "compose.py"):
        found = read_file(tmp_path / name)

        assert found.helpers == ()
        assert [f.rule for f in found.findings if f.severity is Severity.ERROR] == []
        assert "'docker' is neither in" in " ".join(f.message for f in found.findings)
