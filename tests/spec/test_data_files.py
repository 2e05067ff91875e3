"""Data files that a tool declares: part of its version, whatever lies in its folder."""

import os
from pathlib import Path

from reading import findings, reading, rules

from tables import each_row
from toolkiln.model.source import Reading, Severity
from toolkiln.spec.local_imports import version_digest
from toolkiln.spec.reader import read

TOOL = '''
from toolkiln import tool

@tool(files={patterns})
def rates() -> str:
    """Return the exchange rates of the day, as the bank publishes them."""
    return ""
'''


def put(folder: Path, **files: bytes) -> None:
    """Write files: `data__rates_json` is `data/rates.json`."""
    for name, data in files.items():
        place = folder / name.replace("__", "/").replace("_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def declaring(folder: Path, *patterns: str) -> Reading:
    return read(TOOL.format(patterns=list(patterns)), folder / "rates.py")


def errors(found: Reading) -> list[tuple[str, str]]:
    return [(f.rule, f.message) for f in found.findings if f.severity is Severity.ERROR]


def test_declared_files_are_part_of_the_digest_byte_for_byte(tmp_path: Path) -> None:
    put(tmp_path, data__a_json=b"{}", data__b_json=b"\x00\xff", data__c_txt=b"")
    source = TOOL.format(patterns=["data/*.json"])

    found = declaring(tmp_path, "data/*.json")
    (tmp_path / "data" / "b.json").write_bytes(b"\x00\xfe")
    changed = declaring(tmp_path, "data/*.json")
    (tmp_path / "data" / "c.txt").write_bytes(b"not declared")
    same = declaring(tmp_path, "data/*.json")

    data = {"data/a.json": b"{}", "data/b.json": b"\x00\xff"}
    assert found.data_files == ("data/a.json", "data/b.json")
    assert found.file_patterns == ("data/*.json",)
    assert found.digest == found.tools[0].digest == version_digest(source.encode(), data)
    assert changed.digest != found.digest
    assert same.digest == changed.digest
    assert not errors(found)


def test_the_digest_of_a_version_without_data_files_is_the_same_as_ever(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("X = 1\n")

    alone = read("def f(): ...\n", tmp_path / "f.py")
    helped = read("import helper\ndef f(): ...\n", tmp_path / "f.py")

    # Golden values: manifests name versions by them.
    assert alone.digest == "b1a68332ee6c1635c7b32504d892bbf3b4a89bd4059b611c53747d1417e42432"
    assert helped.digest == "073ef0e647287ef352961d8b870b3044b55dac954c7a9dffcd1dda4c86797597"


@each_row(
    "pattern, expected",
    [
        ("rates.json", ["rates.json"]),
        ("*.json", ["rates.json"]),
        ("data/*", ["data/a.json", "data/b.csv"]),
        ("data/?.json", ["data/a.json"]),
        ("data/[ab].*", ["data/a.json", "data/b.csv"]),
        ("**/*.json", ["data/a.json", "data/deep/er/c.json", "rates.json"]),
        ("data/**", ["data/a.json", "data/b.csv", "data/deep/er/c.json"]),
        ("data/**/c.json", ["data/deep/er/c.json"]),
        ("*/*.csv", ["data/b.csv"]),
    ],
)
def test_a_pattern_means_files_below_the_tools_folder(
    tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    put(
        tmp_path,
        rates_json=b"1", data__a_json=b"2", data__b_csv=b"3", data__deep__er__c_json=b"4",
    )  # fmt: skip
    for name in (
        ".hidden.json", "data/.secret.json", "node_modules/x.json", "__pycache__/x.json",
        "helper.py", "data/x.so", "data/x.pyc", "_manifest.json", "toolkiln.toml",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no")

    found = declaring(tmp_path, pattern)

    assert list(found.data_files) == expected


def test_the_files_of_all_tools_and_of_the_table_count_together(tmp_path: Path) -> None:
    put(tmp_path, a_json=b"1", b_json=b"2", c_json=b"3")
    source = """
    # /// script
    # [tool.toolkiln]
    # files = ["c.json"]
    # ///
    from toolkiln import prompt, tool

    @tool(files=["a.json"])
    def one(): ...

    @prompt(files=("b.json", "a.json"))
    def two(): ...
    """

    found = reading(source, tmp_path / "t.py")

    assert found.data_files == ("a.json", "b.json", "c.json")
    assert {tool.digest for tool in found.tools} == {found.digest}


@each_row(
    "pattern, words",
    [
        ("/etc/passwd", "relative"),
        ("~/x", "relative"),
        ("../x.json", "leaves the tool's folder"),
        ("data/../../x.json", "leaves the tool's folder"),
        ("data/../*", "leaves the tool's folder"),
        ("./x.json", "empty part"),
        ("data//x.json", "empty part"),
        ("data\\x.json", "relative"),
        ("", "characters"),
        ("x" * 201, "characters"),
        ("data\0/*", "unprintable"),
        ("a\nb", "unprintable"),
        (".env", "hidden"),
        (".toolkiln/store.db", "hidden"),
        ("_manifest.json", "reserved for Toolkiln"),
        ("helper.py", "is a Python module"),
        ("rates.py", "is a Python module"),
        ("fast.so", "is a Python module"),
        ("__pycache__/helper.pyc", "never part"),
        ("data", "is a folder"),
        ("pipe", "not a regular file"),
        ("pip*", "not a regular file"),
        ("zero", "not a regular file"),
        ("out.json", "outside the tool's folder"),
        ("ou*.json", "outside the tool's folder"),
        ("away/passwd", "outside the tool's folder"),
        ("loop.json", "cannot be read"),
        ("**/a/**", "more than once"),
        ("a**.json", "more than once"),
    ],
)
def test_what_cannot_be_a_data_file_is_an_error_and_not_read(
    tmp_path: Path, pattern: str, words: str
) -> None:
    tools = tmp_path / "tools"
    put(tools, data__x_json=b"", helper_py=b"", fast_so=b"")
    (tools / ".env").write_text("KEY=1")
    (tools / "__pycache__").mkdir()
    (tools / "__pycache__" / "helper.pyc").write_bytes(b"")
    (tools / "_manifest.json").write_text("{}")
    (tmp_path / "x.json").write_text("outside")
    (tools / "out.json").symlink_to(tmp_path / "x.json")
    (tools / "away").symlink_to("/etc")
    (tools / "loop.json").symlink_to("loop.json")
    (tools / "zero").symlink_to("/dev/zero")
    os.mkfifo(tools / "pipe")

    found = declaring(tools, pattern)

    [(rule, message)] = errors(found)
    assert rule == "bad-file"
    assert words in message
    assert found.data_files == ()


def test_a_link_to_a_file_inside_is_a_data_file_and_a_linked_folder_is_not_followed(
    tmp_path: Path,
) -> None:
    put(tmp_path, tools__real__x_json=b"1", other__b_json=b"2")
    tools = tmp_path / "tools"
    (tools / "x.json").symlink_to("real/x.json")
    (tools / "linked").symlink_to(tmp_path / "other")

    named, matched = declaring(tools, "x.json"), declaring(tools, "**")

    assert (named.data_files, errors(named)) == (("x.json",), [])
    assert (matched.data_files, errors(matched)) == (("real/x.json", "x.json"), [])


def test_a_pattern_that_matches_nothing_is_an_error_at_its_line(tmp_path: Path) -> None:
    source = "from toolkiln import tool\n@tool(\n    files=['data/*.json'],\n)\ndef f(): ..."

    [finding] = findings(source, "missing-file", tmp_path / "t.py")

    assert (finding.severity, finding.line) == (Severity.ERROR, 3)
    assert "data/*.json" in finding.message


TOO_LARGE = "the data files have more than 10,000,000 bytes in total"


@each_row(
    "sizes, pattern, message",
    [
        ([0] * 101, "*.bin", "the file declares more than 100 data files"),
        ([0] * 10_001, "**/*.json", "'**/*.json' scans more than 10,000 files"),
        ([10_000_001], "*.bin", TOO_LARGE),
        ([6_000_000, 4_000_001], "*.bin", TOO_LARGE),
    ],
)
def test_files_that_are_too_many_or_too_large_are_an_error_that_names_the_bound(
    tmp_path: Path, sizes: list[int], pattern: str, message: str
) -> None:
    for number, size in enumerate(sizes):
        with (tmp_path / f"{number}.bin").open("wb") as file:
            file.truncate(size)

    assert errors(declaring(tmp_path, pattern)) == [("bad-file", message)]


def test_as_much_as_is_allowed_is_no_error(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.bin").write_bytes(b"x" * 100_000)

    found = declaring(tmp_path, "*.bin", "?.bin")

    assert (len(found.data_files), errors(found)) == (100, [])


@each_row("name", [b"a\nb.json", b"\xff.json", "a\u202eb.json".encode()])
def test_a_name_that_could_mislead_is_never_matched(tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).touch()

    assert errors(declaring(tmp_path, "*.json")) == [
        ("missing-file", "no file beside the tool matches '*.json'")
    ]


@each_row(
    "value, rule",
    [
        ("'x.json'", "bad-option"),
        ("[1]", "bad-option"),
        ("{'x.json': 1}", "bad-option"),
        ("names()", "unknown-value"),
        ("[name() for name in ()]", "unknown-value"),
        ("NAMES", None),
    ],
)
def test_names_of_files_are_literal_text(tmp_path: Path, value: str, rule: str | None) -> None:
    put(tmp_path, x_json=b"")
    source = f"from toolkiln import tool\nNAMES = ['x.json']\n@tool(files={value})\ndef f(): ..."

    found = rules(source, tmp_path / "t.py") & {"bad-option", "unknown-value", "missing-file"}

    assert found == ({rule} if rule else set())


def test_a_source_in_memory_has_no_data_files() -> None:
    found = read(TOOL.format(patterns=["data/*.json"]), "<memory>")

    assert (found.data_files, errors(found)) == ((), [])


OPENED = [
    'open(Path(__file__).parent / "data" / "x.json")',
    '(HERE / "data/x.json").read_text()',
    'HERE.joinpath("data", "x.json").read_bytes()',
    'Path(__file__).resolve().with_name("data/x.json").open()',
    'open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "x.json"))',
    'sqlite3.connect(str(HERE / "data" / "x.json"))',
    "open(FILE)",
    '(HERE / "data").glob("*")',
    'open(HERE / "data" / name)',
]


def opening(expression: str, patterns: str = "[]") -> str:
    constant = 'FILE: Path = HERE / "data/x.json"\n' if "FILE" in expression else ""
    return (
        "import os, sqlite3\nfrom pathlib import Path\nfrom toolkiln import tool\n"
        f"HERE = Path(__file__).parent\n{constant}"
        f"@tool(files={patterns})\ndef f(name: str):\n    {expression}\n"
    )


@each_row("expression", OPENED)
def test_a_file_beside_the_source_that_is_opened_and_not_declared_is_reported(
    tmp_path: Path, expression: str
) -> None:
    put(tmp_path, data__x_json=b"{}")

    found = findings(opening(expression), "undeclared-file", tmp_path / "t.py")
    declared = opening(expression, "['data/*.json']")

    assert found
    assert all(finding.severity is Severity.WARNING for finding in found)
    assert all("data/" in finding.fix for finding in found)
    assert not rules(declared, tmp_path / "t.py") & {"undeclared-file", "undeclared-capability"}


@each_row("expression", ["open('data/x.json')", "Path('data/x.json').read_text()"])
def test_a_file_that_is_sought_in_the_working_directory_is_reported(
    tmp_path: Path, expression: str
) -> None:
    put(tmp_path, data__x_json=b"{}")

    [bare] = findings(opening(expression), "undeclared-file", tmp_path / "t.py")
    [declared] = findings(opening(expression, "['data/*']"), "undeclared-file", tmp_path / "t.py")

    assert "working directory" in bare.message
    assert "__file__" in bare.fix
    assert "@tool(files=" in bare.fix
    assert "@tool(files=" not in declared.fix


@each_row(
    "expression",
    [
        "open('out.json', 'w')", "open('/etc/hosts')", "open(name)", "open('elsewhere.json')",
        "open('data/x.json', mode='wb')", "Path('data/x.json').exists()", "1 / 2",
        "open(HERE.parent / 'x.json')", "Path(__file__).read_text()", "len('data/x.json')",
        "__import__('t')", "open(HERE / 't.py')",
    ],
)  # fmt: skip
def test_other_files_are_not_reported(tmp_path: Path, expression: str) -> None:
    put(tmp_path, data__x_json=b"{}")

    assert not findings(opening(expression), "undeclared-file", tmp_path / "t.py")


def test_a_file_that_a_helper_opens_is_reported_there(tmp_path: Path) -> None:
    helper = b"from pathlib import Path\nX = (Path(__file__).parent / 'x.json').read_text()\n"
    put(tmp_path, pkg__x_json=b"{}", pkg__helper_py=helper)
    source = "from pkg import helper\ndef f(): ..."

    [finding] = findings(source, "undeclared-file", tmp_path / "t.py")

    assert (finding.path, finding.line) == (str(tmp_path / "pkg" / "helper.py"), 2)
    assert "pkg/x.json" in finding.fix
