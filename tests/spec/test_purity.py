"""Reading never runs what it reads, changes nothing, and says the same every time."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

from reading import files

from tables import each_row
from toolkiln.spec.reader import read

HOSTILE = {
    "writes": "open({trap!r}, 'w').write('x')",
    "exits": "import os\nos._exit(3)",
    "raises": "raise SystemExit(3)",
    "loops": "while True: pass",
    "forks": "import os\nos.system('touch ' + {trap!r})",
    "decorates": "@(lambda f: open({trap!r}, 'w'))\ndef g(): ...",
    "annotates": "def g(x: open({trap!r}, 'w')): ...",
    "quotes": "def g(x: \"open({trap!r}, 'w')\"): ...",
    "defaults": "def g(x=open({trap!r}, 'w')): ...",
    "subclasses": "class K(type('B', (), {{'x': open({trap!r}, 'w')}})): ...",
    "meta": "class M(type):\n    def __new__(*a): open({trap!r}, 'w')\nclass K(metaclass=M): ...",
    "enum": "from enum import Enum\nclass E(Enum):\n    A = open({trap!r}, 'w')\n"
    "def g(e: E = E.A): ...",
    "factory": "from pydantic import Field\n"
    "def g(x: list = Field(default_factory=lambda: open({trap!r}, 'w'))): ...",
    "f-string": 'def g(x: str = f"{{open({trap!r})}}"): ...',
    "mark": "@tool(name=open({trap!r}, 'w').name)\ndef g(): ...",
    "dunder": "def g(x: ().__class__.__base__.__subclasses__()[0]): ...",
}


@each_row("kind", HOSTILE)
def test_files_and_helpers_with_side_effects_are_read_unharmed(tmp_path: Path, kind: str) -> None:
    trap = tmp_path / "trap"
    hostile = HOSTILE[kind].format(trap=str(trap))
    files(tmp_path, helper=f"{hostile}\nX = int\n", pkg__=hostile)
    source = f"{hostile}\nimport pkg\nfrom helper import X\n@tool\ndef f(x: X): ..."

    result = read(source, tmp_path / "tool.py")

    tools = {tool.name: tool for tool in result.tools}
    assert tools["f"].parameters["properties"] == {"x": {"type": "integer"}}
    assert not trap.exists()


def test_nothing_that_a_file_imports_is_imported(tmp_path: Path) -> None:
    files(tmp_path, helper_of_purity="import this")
    source = "import this, antigravity, helper_of_purity, wave\ndef f(x: wave.Wave_read): ..."
    code = (
        "import sys; from toolkiln.spec.reader import read\n"
        f"read('def f(): ...', '<m>'); before = set(sys.modules), list(sys.path)\n"
        f"read({source!r}, {str(tmp_path / 'tool.py')!r})\n"
        "after = set(sys.modules), list(sys.path)\n"
        "print(sorted(after[0] - before[0]), after[1] == before[1])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stderr == ""
    added, same_path = done.stdout.strip().rsplit(" ", 1)
    assert same_path == "True"
    assert not {"this", "antigravity", "helper_of_purity", "wave"} & set(eval(added))


SOURCES = [
    "from enum import Enum\nclass E(Enum):\n    A = 1\n    B = 'x'\n"
    "def f(e: E, s: set[int] = {3, 1, 2}): ...",
    "import os, httpx, subprocess\nKEY = 'sk-' + 'x'\ndef f(x, y, z): ...\ndef g(x: Nope): ...",
    "@tool(wieght=1, colour=2, nme=3, network={'b', 'a'})\ndef f(): ...",
    "from toolkiln import tool\n"
    "@tool(wieght=1, colour=2, nme=3, network={'b', 'a', 'c'})\ndef f(): ...",
]


@each_row("source", SOURCES)
def test_reading_twice_gives_the_same(source: str) -> None:
    assert read(source, "<memory>") == read(source, "<memory>")


def test_reading_does_not_depend_on_the_hash_seed() -> None:
    # Each source is read in a fork of its own, which no earlier reading can have changed.
    code = (
        "import os\nfrom toolkiln.spec.reader import read\n"
        f"for source in {SOURCES!r}:\n"
        "    if child := os.fork():\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
        "    else:\n"
        "        print(read(source, '<m>').model_dump_json(), flush=True)\n"
        "        os._exit(0)"
    )

    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.splitlines()
        for seed in ("0", "1", "2", "3")
    ]

    assert len(outputs[0]) == len(SOURCES)
    assert outputs == [outputs[0]] * 4


def test_what_one_reading_returns_another_cannot_spoil() -> None:
    source = "X = {'a': [1]}\n@tool(parameters={'type': 'object', 'properties': {}})\ndef f(): ..."
    first = read(source, "<memory>")
    first.tools[0].parameters["properties"]["x"] = {}

    assert read(source, "<memory>").tools[0].parameters["properties"] == {}


@each_row("annotation", ["int", "list", "Any", "dict[str, Any]", "EmailStr", "datetime"])
def test_schemas_of_two_parameters_share_nothing(annotation: str) -> None:
    source = (
        "from typing import Any\nfrom pydantic import EmailStr\nfrom datetime import datetime\n"
        f"def f(a: {annotation}, b: {annotation}): ..."
    )
    found = read(source, "<memory>").tools[0].parameters["properties"]
    found["a"]["spoiled"] = True

    assert "spoiled" not in found["b"]
    again = read(source, "<memory>").tools[0].parameters["properties"]
    assert "spoiled" not in str(again)


def test_the_recursion_limit_and_warnings_are_left_alone() -> None:
    before = sys.getrecursionlimit(), list(warnings.filters)

    read("x = " + "(" * 10_000, "<memory>")
    read("x = '\\d'", "<memory>")

    assert (sys.getrecursionlimit(), list(warnings.filters)) == before


def test_reading_does_not_write_beside_the_file(tmp_path: Path) -> None:
    files(tmp_path, helper="X = int", pkg__mod="")

    read("import helper, pkg.mod\ndef f(): ...", tmp_path / "tool.py")

    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "helper.py",
        "pkg",
        "pkg/mod.py",
    ]
