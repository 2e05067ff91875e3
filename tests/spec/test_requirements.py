"""Requirements from every place they may be declared, and imports that no file lists."""

import re
import subprocess
import sys
import textwrap

from hypothesis import example, given
from hypothesis import strategies as st
from reading import findings

from properties import examples
from tables import each_row
from toolkiln.catalog.reports import repairs_for, report
from toolkiln.spec import requirements
from toolkiln.spec.reader import read
from toolkiln.spec.requirements import (
    Requirements,
    _blocks,
    distribution_of,
    read_requirements,
)
from toolkiln.spec.syntax import split_list

# The pattern of the specification, which `_blocks` must agree with.
PEP_723 = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def block(content: str) -> str:
    lines = textwrap.dedent(content).strip("\n").split("\n")
    return "\n".join(["# /// script", *(f"# {line}".rstrip() for line in lines), "# ///", ""])


SCRIPT = block("dependencies = ['a']")


def messages(found: Requirements) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in found.problems]


def test_all_sources_are_gathered_in_order_without_repetition() -> None:
    docstring = "\ntitle: X\nrequirements: lxml, attrs>=2\nversion: 1\n"
    source = (
        block('dependencies = ["HTTPX >= 0.27", "rich"]\nrequires-python = ">=3.11"')
        + f'"""{docstring}"""\n'
        + "#requirements: rich, numpy==2.0\n# requirements: lxml  # for pages\n"
    )

    found = read_requirements(source, docstring, [("orjson~=3.0", 9), ("rich", 9)])

    assert found == Requirements(
        ("httpx>=0.27", "rich", "orjson~=3.0", "lxml", "attrs>=2", "numpy==2.0"), {}, ">=3.11", ()
    )


@each_row("end", ["\n", "\r\n"])
def test_the_toolkiln_table_of_the_block_is_handed_over(end: str) -> None:
    source = block(
        """
        dependencies = ["httpx"]
        [tool.toolkiln]
        network = ["example.org"]
        [tool.other]
        x = 1
        """
    )

    found = read_requirements(source.replace("\n", end), None)

    assert (found.packages, found.table) == (("httpx",), {"network": ["example.org"]})


@each_row(
    "text, parts",
    [
        ("a, b>=2", ["a", "b>=2"]),
        ("a[x,y]>=1,<2, b", ["a[x,y]>=1,<2", "b"]),
        ("a>=1 , != 1.5,b", ["a>=1 , != 1.5", "b"]),
        ("a (>=1,<2), b", ["a (>=1,<2)", "b"]),
        ("a; sys_platform in 'linux,darwin', b", ["a; sys_platform in 'linux,darwin'", "b"]),
        (" , a,, b ,", ["a", "b"]),
        ("a]], b", ["a]]", "b"]),
        ("", []),
    ],
)
def test_commas_inside_a_requirement_part_nothing(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


@each_row(
    "texts, words",
    [
        (["-r requirements.txt", "--index-url https://x", "-e ."], "pip option"),
        (["git+https://example.org/x.git", "git@example.org:x", "file:///x"], "direct URL"),
        (["https://example.org/x.whl", "x @ https://example.org/x.whl"], "direct URL"),
        (["x @ git+ssh://example.org/x", "x @ file:x"], "direct URL"),
        ([".", "./x", "/x", "~/x", "x/y", "C:\\x"], "path"),
        (["x-1.0-py3-none-any.whl", "x-1.0.tar.gz"], "path"),
        (["", "  "], "empty"),
        (["x" * 501], "501 characters"),
        (["x=1", "x y", "x>=", "x>=1 and y", "größe", "x["], "not a requirement"),
        (["x; nonsense == 1", "x\n--index-url y"], "not a requirement"),
    ],
)
def test_what_is_no_plain_requirement_is_refused(texts: list[str], words: str) -> None:
    for text in texts:
        found = read_requirements("", None, [(text, 7)])

        assert found.packages == (), text
        assert [problem.line for problem in found.problems] == [7], text
        assert words in found.problems[0].message
        assert found.problems[0].fix


@each_row(
    "text, fix",
    [("httpx=0.27", "write httpx==0.27"), ("httpx rich", "separate with commas: httpx, rich")],
)
def test_common_slips_come_with_the_right_spelling(text: str, fix: str) -> None:
    assert read_requirements("", None, [(text, 1)]).problems[0].fix == fix


@each_row(
    "one, other",
    [("x==1", "x==2"), ("X==1", "x==1.1"), ("x==1", "x>=2"), ("x!=1", "x==1"), ("x[a]==1", "x==2")],
)
def test_contradicting_pins_are_a_problem(one: str, other: str) -> None:
    found = read_requirements("", None, [(one, 3), (other, 4)])

    assert len(found.packages) == 1
    assert [(p.line, "contradicts" in p.message) for p in found.problems] == [(4, True)]


@each_row(
    "one, other",
    [
        ("x>=1", "x<2"),
        ("x==1", "x==1.0"),
        ("x==1.*", "x==1.2"),
        ("x", "x==1"),
        ("x==1a1", "x>=0"),
        ("x==1; python_version < '3.12'", "x==2; python_version >= '3.12'"),
        ("x==1", "y==2"),
    ],
)
def test_compatible_requirements_are_both_kept(one: str, other: str) -> None:
    found = read_requirements("", None, [(one, 3), (other, 4)])

    assert len(found.packages) == 2
    assert found.problems == ()


@each_row(
    "content, line, words",
    [
        ("dependencies = [\n'x',\n!]", 4, "not valid TOML"),
        ("dependencies = [", 2, "not valid TOML"),
        (f"x = {'[' * 5000}", 2, "not valid TOML"),
        (f"x = {'1' * 5000}", 2, "not valid TOML"),
        ("dependencies = 'x'", 2, "not a list of strings"),
        ("y = 1\ndependencies = {x = 1}", 3, "not a list of strings"),
        ("dependencies = [\n  'x',\n  1,\n]", 2, "1 is not a string"),
        ("dependencies = [\n  'x',\n  'y=1',\n]", 4, "'y=1' is not a requirement"),
        ("requires-python = 3.11", 2, "not a version range"),
        ("\nrequires-python = 'three'", 3, "not a version range"),
        ("tool = 1", 2, "not a table"),
        ("[tool]\ntoolkiln = 1", 3, "not a table"),
    ],
)
def test_faults_in_the_block_are_reported_with_their_line(
    content: str, line: int, words: str
) -> None:
    source = "\n".join(["# /// script", *(f"# {text}" for text in content.split("\n")), "# ///"])

    found = messages(read_requirements(source, None))

    assert [(at, words in message) for at, message in found] == [(line, True)]


@each_row(
    "source, packages, problem",
    [
        (SCRIPT + "\n" + block("y = 1"), ("a",), (5, "a second PEP 723 script block")),
        ("\n# /// script\n# x = 1\nimport x\n", (), (2, "the PEP 723 block has no closing line")),
    ],
)
def test_a_second_block_and_one_that_never_ends_are_problems(
    source: str, packages: tuple[str, ...], problem: tuple[int, str]
) -> None:
    found = read_requirements(source, None)

    assert (found.packages, messages(found)) == (packages, [problem])


def test_faults_in_docstring_and_comments_are_reported_with_their_line() -> None:
    docstring = "\ntitle: X\n  requirements: -e .\n"
    source = f'"""{docstring}"""\nx = 1\n# requirements: y=1\n'

    assert [problem.line for problem in read_requirements(source, docstring).problems] == [3, 6]


@each_row(
    "source, docstring",
    [
        ("import json\n", "Requires nothing."),
        ('def f():\n    """requirements: x"""\n    # requirements: y\n', "The requirements: none."),
        ('a = "# requirements: z"\n', None),
    ],
)
def test_requirements_in_other_places_are_not_taken(source: str, docstring: str | None) -> None:
    assert read_requirements(source, docstring) == Requirements((), {}, None, ())


def test_endless_requirements_and_openings_are_a_problem() -> None:
    found = read_requirements("# requirements: x\n" * 100_000, None)
    listed = read_requirements(f"# requirements: {', '.join(f'x{i}' for i in range(50_000))}", None)

    assert messages(found) == [(201, "more than 200 requirements")]
    assert messages(listed) == [(1, "more than 200 requirements")]
    assert len(listed.packages) == 200
    assert read_requirements("# /// script\n" * 100_000, None).problems


LINES = st.sampled_from(
    ["# /// script", "# /// script ", "# /// x", "# ///", " # ///", "#", "# x = 1", "#x", "", "y"]
)


@given(st.lists(LINES, max_size=12).map("\n".join))
@examples(500)
@example("# /// script\n#\n# ///")
def test_blocks_are_those_of_the_specification(source: str) -> None:
    theirs = [
        re.sub(r"(?m)^# ?", "", match["content"]).removesuffix("\n")
        for match in PEP_723.finditer(source)
        if match["type"] == "script"
    ]

    ours = [content for _, content in _blocks(source) if content is not None]

    assert list(filter(None, ours)) == list(filter(None, theirs))


@given(
    st.text(),
    st.lists(
        st.tuples(
            st.one_of(st.text(), st.from_regex(r"[a-z]+[=<>~!]=?[0-9.*]+")), st.integers(1, 9)
        )
    ),
)
def test_any_text_is_gathered(text: str, declared: list[tuple[str, int]]) -> None:
    source = f"# requirements: {text}\n# /// script\n# {text}\n# ///\n"

    found = read_requirements(source, f"requirements: {text}", declared)

    assert all(problem.line >= 1 and problem.fix for problem in found.problems)


def test_packaging_is_not_loaded_for_files_that_require_nothing() -> None:
    code = (
        "import sys; from toolkiln.spec import requirements;"
        "requirements.read_requirements('x = 1', None);"
        "sys.exit('packaging.requirements' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ADVICE = "put your own module next to the file, or list the distribution that provides it"


def fix(statement: str) -> str:
    [finding] = findings(f"{statement}\ndef f(): ...", "unlisted-import")
    return finding.fix


@each_row(
    "statement, distribution",
    [
        ("import bs4", "beautifulsoup4"),
        ("from PIL import Image", "pillow"),
        ("import yaml as y", "pyyaml"),
        ("from sklearn.linear_model import Ridge", "scikit-learn"),
        ("import cv2", "opencv-python"),
        ("import dateutil.parser", "python-dateutil"),
        ("from dotenv import load_dotenv", "python-dotenv"),
        ("import jwt", "pyjwt"),
        ("import numpy as np", "numpy"),
        ("from google.cloud import storage", "google-cloud-storage"),
        ("import google.cloud.bigquery", "google-cloud-bigquery"),
        ("from google.protobuf.message import Message", "protobuf"),
    ],
)
def test_the_distribution_of_a_well_known_import_is_suggested(
    statement: str, distribution: str
) -> None:
    assert f'["{distribution}"]' in fix(statement)


@each_row(
    "statement",
    ["import reqeusts", "import my_company", "from internal.tools import x", "import google",
     "from google.cloud import unheard_of", "import numpyy"],
)  # fmt: skip
def test_no_distribution_is_suggested_for_an_unknown_import(statement: str) -> None:
    assert fix(statement) == ADVICE


def test_an_unknown_import_gets_no_repair_that_would_install_it() -> None:
    source = 'import reqeusts\n\ndef one() -> int:\n    """Give the number one."""\n    return 1\n'

    found = report(read(source, "x.py"), {})

    rules = [finding.rule for finding in found.reading.findings]
    assert "unlisted-import" in rules
    assert set(repairs_for(source, found)) == {None}


@each_row("listed", ["python-dateutil", "Python_DateUtil>=2", "python.dateutil"])
def test_a_listed_distribution_covers_the_import_however_it_is_spelt(listed: str) -> None:
    source = f"# requirements: {listed}\nimport dateutil\ndef f(): ..."

    assert not findings(source, "unlisted-import")


def test_every_suggestion_is_a_valid_distribution_name() -> None:
    known = [*requirements._SAME_NAME, *requirements._OTHER_NAMES]

    assert len(known) >= 60
    for name in known:
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", str(distribution_of(name))), name
