"""Repairs are tried on sources as an editor would, and what comes of it is read again."""

import ast
import sysconfig
from itertools import islice
from pathlib import Path
from textwrap import dedent

from tables import each_row
from toolkiln.catalog.reports import repairs_for, report
from toolkiln.model.source import Repair
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import decode


def found(source: str, rule: str) -> Repair | None:
    """What mends the first finding of a rule."""
    told = report(read(source, "x.py"), {})
    pairs = zip(told.reading.findings, repairs_for(source, told), strict=True)
    return next(repair for finding, repair in pairs if finding.rule == rule)


def applied(source: str, repair: Repair | None, words: str | None = None) -> str:
    """The source with a repair, and with words where the author is to write them."""
    assert repair is not None
    lines = source.split("\n")
    at = sum(len(line) + 1 for line in lines[: repair.line - 1]) + repair.column - 1
    text = repair.text
    if words is not None:
        assert repair.select is not None
        start, end = repair.select
        text = text[:start] + words + text[end:]
    return source[:at] + text + source[at:]


def rules(source: str) -> set[str]:
    return {finding.rule for finding in report(read(source, "x.py"), {}).reading.findings}


def test_a_docstring_gets_room_and_the_finding_stays_until_there_are_words() -> None:
    source = dedent("""
        from toolkiln import tool

        @tool
        def add(first: int, second: int = 0) -> int:
            return first + second
    """)

    repair = found(source, "missing-docstring")
    empty, written = applied(source, repair), applied(source, repair, "Add two whole numbers.")

    assert '    """\n\n    Args:\n        first: \n        second: \n    """\n    return' in empty
    assert rules(empty) == {"description-thin", "undescribed-parameter"}
    assert found(empty, "undescribed-parameter") is None
    assert rules(written) == {"undescribed-parameter"}


@each_row(
    "docstring",
    [
        '"""Add two whole numbers to each other."""',
        '"""Add two whole numbers to each other.\n\n    At once.\n    """',
        '"""Add two whole numbers to each other.\n\n    At once."""',
        '"""Add two whole numbers to each other.\n\n    Args:\n        second: The other.\n    """',
        '"""Add two whole numbers to each other.\n\n    Args:\n        second: The other."""',
        '"""Add two whole numbers to each other.\n\n'
        '    Args:\n        second: The other.\n\n    Returns:\n        The sum.\n    """',
        "'''Addiere zwei ganze Zahlen, größere auch.'''",
    ],
)
def test_a_parameter_gets_its_line_under_args(docstring: str) -> None:
    source = f"def add(first: int, second: int = 0) -> int:\n    {docstring}\n    return first\n"

    mended = applied(source, found(source, "undescribed-parameter"), "The one.")
    again = [] if "second: The" in docstring else ["second"]
    (spec,) = read(mended, "x.py").tools

    assert spec.parameters["properties"]["first"]["description"] == "The one."
    undescribed = [n for n, s in spec.parameters["properties"].items() if "description" not in s]
    assert undescribed == again
    assert mended.count("Args:") == 1


def test_parameters_that_gather_others_are_described_too() -> None:
    source = 'def add(*numbers: int) -> int:\n    """Add whole numbers to each other."""\n'

    mended = applied(source, found(source, "undescribed-parameter"), "The numbers.")

    assert rules(mended) == set()


def test_a_parameter_without_a_type_gets_one_to_be_written_over() -> None:
    source = 'def größe(ä, b=1):\n    """Tell how large both of them are together."""\n'

    first = applied(source, found(source, "missing-annotation"), "int")
    second = applied(first, found(first, "missing-annotation"))

    assert second.startswith("def größe(ä: int, b: str=1):")
    assert "missing-annotation" not in rules(second)


@each_row(
    "head",
    [
        "",
        "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n",
        '# /// script\n# requires-python = ">=3.11"\n# ///\n',
        "# /// script\n# dependencies = []\n# ///\n",
        '# /// script\n# dependencies = ["httpx>=0.27"]\n# ///\n',
        '# /// script\n# dependencies = [\n#     "httpx>=0.27",\n# ]\n# ///\n',
    ],
)
def test_a_package_is_listed_where_the_file_lists_what_it_needs(head: str) -> None:
    source = (
        f'{head}import yaml\n\ndef one() -> int:\n    """Give the number one."""\n    return 1\n'
    )

    mended = applied(source, found(source, "unlisted-import"))

    reading = read(mended, "x.py")
    assert "pyyaml" in reading.tools[0].requirements
    assert ("httpx>=0.27" in reading.tools[0].requirements) == ("httpx" in head)
    assert not rules(mended) & {"unlisted-import", "bad-requirement"}
    assert mended.startswith(head[:10])


@each_row(
    "source, rule",
    [
        ("from toolkiln import tool\n@tool\ndef one(): return 1\n", "missing-docstring"),
        ('def one(a: int):\n    r"""Give one of \\a."""\n', "undescribed-parameter"),
        ('def one(a: int):\n    """Give one """ "of them."\n', "undescribed-parameter"),
        ('def one(a: int, b: int):\n    """Give one.\n\n    :param b: B.\n    """\n',
         "undescribed-parameter"),
        ('import yaml, requests\ndef one():\n    """Give the one."""\n', "unlisted-import"),
        ("def (", "syntax-error"),
    ],
)  # fmt: skip
def test_what_cannot_be_mended_surely_is_left_to_the_author(source: str, rule: str) -> None:
    assert found(source, rule) is None


def test_no_repair_breaks_a_source_of_the_standard_library() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    tried = 0
    for path in islice(sorted(folder.glob("*.py")), 0, None, 24):
        source = decode(path.read_bytes())
        for repair in repairs_for(source, report(read(source, "x.py"), {})):
            if repair is not None and tried < 60:
                tried += 1
                ast.parse(applied(source, repair))

    assert tried > 20
