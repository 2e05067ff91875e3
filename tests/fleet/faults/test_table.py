"""The table of faults names tests that there are."""

import re
from pathlib import Path

from .. import faults

FLEET = Path(__file__).parents[1]


def test_every_fault_of_the_table_has_its_tests() -> None:
    rows = re.findall(r"^ {8}(\S+) (\S+)$", faults.__doc__ or "", re.M)
    sources = {module: (FLEET / f"{module.replace('.', '/')}.py").read_text() for module, _ in rows}

    assert len(rows) > 40
    assert [row for row in rows if f"def {row[1]}(" not in sources[row[0]]] == []


def test_every_test_of_this_package_is_in_the_table() -> None:
    tests = {
        name
        for file in Path(__file__).parent.glob("test_*.py")
        if file.name != Path(__file__).name
        for name in re.findall(r"^async def (test_\w+)", file.read_text(), re.M)
    }

    assert {name for name in tests if f" {name}\n" not in (faults.__doc__ or "")} == set()
