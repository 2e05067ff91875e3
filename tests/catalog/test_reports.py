"""Docstrings that are inserted, and repairs that are applied as an editor does."""

import ast
import copy
import inspect
import sysconfig
import textwrap
from itertools import islice
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.catalog.reports import repairs_for, report, with_docstrings
from toolkiln.model.source import Repair
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import decode

SAID = "Convert an amount."
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def mended(code: str, description: str = SAID) -> str:
    return with_docstrings(textwrap.dedent(code), description)


def docstrings(code: str) -> dict[str, str | None]:
    """What Python takes for the docstrings of functions and classes, by name."""
    nodes = ast.walk(ast.parse(code.removeprefix("\ufeff")))
    return {node.name: ast.get_docstring(node) for node in nodes if isinstance(node, Documented)}


def without_added(before: ast.Module, after: ast.Module) -> ast.Module:
    """The later tree with the docstrings taken out that the earlier one does not have."""
    after = copy.deepcopy(after)
    olds = [node for node in ast.walk(before) if isinstance(node, Documented | ast.Module)]
    news = [node for node in ast.walk(after) if isinstance(node, Documented | ast.Module)]
    for old, new in zip(olds, news, strict=True):
        assert len(new.body) - len(old.body) in (0, 1)
        if len(new.body) > len(old.body):
            assert ast.get_docstring(new) is not None
            del new.body[0]
    return after


def same_but_for_docstrings(before: str, after: str) -> bool:
    old, new = ast.parse(before.removeprefix("\ufeff")), ast.parse(after.removeprefix("\ufeff"))
    return ast.dump(without_added(old, new)) == ast.dump(old)


def test_a_function_without_a_docstring_gets_the_description() -> None:
    code = mended("""
        def convert(amount: float) -> float:
            # Rates of today.
            return amount  * 2   # not formatted
    """)

    assert code == textwrap.dedent('''
        def convert(amount: float) -> float:
            # Rates of today.
            """Convert an amount."""
            return amount  * 2   # not formatted
    ''')


def test_a_description_of_several_lines_is_indented_like_the_body() -> None:
    code = mended(
        "def convert(amount):\n  return amount\n", "Convert.\r\n\r\nArgs:\r    amount: x  "
    )

    assert code == (
        'def convert(amount):\n  """Convert.\n\n  Args:\n      amount: x\n  """\n  return amount\n'
    )


def test_a_body_on_the_line_of_the_signature_gets_lines_of_its_own() -> None:
    code = mended("def convert(x): y = x; return (y,\n    2)  # both\n")

    assert code == (
        'def convert(x):\n    """Convert an amount."""\n    y = x; return (y,\n    2)  # both\n'
    )


def test_a_file_that_ends_without_a_line_end_is_mended() -> None:
    assert mended("def f(x): return x") == f'def f(x):\n    """{SAID}"""\n    return x'


@each_row(
    "code",
    [
        "async def f(x):\n    return x\n",
        "@tool(\n    name='g',\n)\ndef f(\n    x: int,\n    y=':',\n) -> 'a:b':\n    return x\n",
        "def f(x):\n    @cache\n    def inner():\n        pass\n    return inner\n",
        "def f(x):\n    class Inner: pass\n    return Inner\n",
        "def f(x):\n\n\n    # far below\n\n    return x\n",
        "def f(x): return 'é', lambda y: y\n",
        "def f(é='ü', *, ñ='→'): return é\n",
        "\x0cdef f(x): return x\n",
        "x = 'a\x0cb\x1cc\u2028d'\ndef f(x):\n    return x\n",
        "if True:\n\tdef f(x):\n\t\treturn x\n",
        "if True:\n\tdef f(x): return x\n",
        "def f(x):\n    f'{x}'\n",
        "def f(x):\n    b'bytes'\n",
        "def f(x):\n    ''\n    return x\n",
        "def f(x):\n    if x:\n        return 1\n",
    ],
)
def test_wherever_the_body_starts_the_docstring_is_its_first_statement(code: str) -> None:
    result = mended(code)

    assert docstrings(result)["f"] == SAID
    assert same_but_for_docstrings(code, result)


def test_methods_are_indented_with_the_tabs_of_their_class() -> None:
    code = (
        "class Money:\n\t@tool\n\tdef f(self, x):\n\t\treturn x\n\t@tool\n\tdef g(self): return 1\n"
    )

    result = mended(code)

    assert f'\n\t\t"""{SAID}"""\n\t\treturn x\n' in result
    assert docstrings(result) == {"Money": None, "f": SAID, "g": SAID}


@each_row(
    "code, documented",
    [
        # A base tool is described by its class.
        ("class Shell(BaseTool):\n    name = 'shell'\n\n    def execute(self, args):\n"
         "        return args\n", {"Shell": SAID, "execute": None}),
        # Two docstrings can belong to one line.
        ("class Tools(BaseTool):\n    def execute(self, x): return x\n",
         {"Tools": SAID, "execute": SAID}),
        # Only tools without words of their own are mended.
        ("@tool\ndef silent(x): return x\n"
         "@tool\ndef spoken(x):\n    'Has one.'\n"
         "@tool(description='Given outright.')\ndef given(x):\n    return x\n"
         "def no_tool(x):\n    return x\n"
         "class Plain:\n    def method(self):\n        return 1\n",
         {"silent": SAID, "spoken": "Has one.", "given": None, "no_tool": None, "Plain": None,
          "method": None}),
        # Private functions and main are no tools.
        ("def f(x): return x\ndef _g(x): return x\ndef main(): return 1\n",
         {"f": SAID, "_g": None, "main": None}),
    ],
)  # fmt: skip
def test_only_tools_without_a_description_are_mended(
    code: str, documented: dict[str, str | None]
) -> None:
    result = mended(code)

    assert docstrings(result) == documented
    assert same_but_for_docstrings(code, result)


@each_row(
    "code, start",
    [
        ("TOOL_NAME = 'x'\nTOOL_DESCRIPTION = 'D.'\ndef run(): return 1\n",
         f'"""{SAID}"""\n\nTOOL_NAME'),
        ("#!/usr/bin/env python\n\n@late\nasync def run(): return 1\nTOOL_NAME = 'x'\n",
         f'#!/usr/bin/env python\n\n"""{SAID}"""\n\n@late\nasync def run():'),
        ("from __future__ import annotations\nTOOL_NAME = 'x'\ndef run(): 'Has one.'\n",
         f'"""{SAID}"""\n\nfrom __future__'),
        ("'Of the module.'\nTOOL_NAME = 'x'\ndef run(): 'Has one.'\n", "'Of the module.'\nTOOL"),
    ],
)  # fmt: skip
def test_a_module_with_constants_is_documented_too(code: str, start: str) -> None:
    result = mended(code)

    assert result.startswith(start)
    assert same_but_for_docstrings(code, result)


def test_of_two_definitions_the_one_that_counts_is_mended() -> None:
    result = mended("def f(x):\n    return 1\n\ndef f(x):\n    return 2\n")

    assert result.count(SAID) == 1
    assert result.index(SAID) > result.index("return 1")


def test_what_a_tool_is_can_depend_on_a_helper_beside_the_file(tmp_path: Path) -> None:
    tmp_path.joinpath("base.py").write_text("class Ours(BaseTool):\n    pass\n", "utf-8")
    code = "from base import Ours\n\nclass Shell(Ours):\n    def execute(self, args): return 1\n"

    result = with_docstrings(code, SAID, tmp_path / "shell.py")

    assert docstrings(result) == {"Shell": SAID, "execute": None}


@each_row("newline", ["\r\n", "\r"])
def test_the_line_ends_of_the_file_are_kept(newline: str) -> None:
    code = newline.join(["x = 1", "def f(x):", "    return x", "def g(y): return y", ""])

    result = mended(code, "One.\n\nTwo.")

    assert "\n" not in result.replace(newline, "")
    assert docstrings(result) == {"f": "One.\n\nTwo.", "g": "One.\n\nTwo."}


def test_a_byte_order_mark_stays_in_front() -> None:
    result = mended("\ufeffdef f(x): return x\n")

    assert result.startswith("\ufeffdef f(x):\n")
    assert docstrings(result) == {"f": SAID}


@each_row("encoding", ["latin-1", "ascii", "cp1252"])
def test_a_file_in_another_encoding_gets_ascii_only(encoding: str) -> None:
    code = f"# -*- coding: {encoding} -*-\ndef f(x): return x\n"

    result = mended(code, "Für 10 € — 日本")

    assert docstrings(decode(result.encode(encoding)))["f"] == "Für 10 € — 日本"


def test_only_utf_8_has_letters_of_any_script_as_they_are() -> None:
    source = "# coding: {}\ndef f(x): return x\n"

    assert mended(source.format("no-such"), "Für 10 €").isascii()
    assert '"""Für 10 € — 日本"""' in mended(source.format("utf-8"), "Für 10 € — 日本")


@each_row(
    "description",
    [
        *('He said "no"', '"""', 'a """" b', '"', "'''", "ends in a backslash \\", '\\"'),
        *('"""\nos.system("rm")\n"""', "\\N{DASH} \\x00 \\u1234 {x} %s", "tab\there"),
        "nul \0 bell \a escape \x1b[2J",
        "bidi \u202e zero\u200bwidth \u2028 \x85 \xa0 \ufeff",
        *("form\x0cfeed \x0b \x1c", "\ud800 half", "# coding: latin-1", ">>> f(1)\n1"),
        "  leading\n    deeper\n  back",
    ],
)
def test_a_docstring_means_the_description_and_hides_nothing(description: str) -> None:
    result = mended("def f(x):\n    return x\n", description)

    assert docstrings(result)["f"] == inspect.cleandoc(description).strip()
    assert all(char.isprintable() or char == "\n" for char in result)


@each_row("description", ["", "  \n\t ", "\u2028\xa0", "\x1c"])
def test_a_blank_description_adds_nothing(description: str) -> None:
    assert mended("def f(x): return x", description) == "def f(x): return x"


@each_row(
    "code", ["def f(x:", "\0", "\ud800", "", "(" * 500, "def f(x):\nreturn x", "x = 1\n", "\ufeff"]
)
def test_source_without_readable_tools_is_left_alone(code: str) -> None:
    assert with_docstrings(code, SAID) == code


def test_source_that_cannot_be_mended_for_sure_is_left_alone() -> None:
    code = "def f(x): \\\n    return x\n"

    assert with_docstrings(code, SAID) == code


@each_row("terms", [300, 1_000, 2_000, 30_000])
def test_deeply_nested_source_is_mended_or_left_alone(terms: int) -> None:
    code = f"def f(x):\n    return {'+'.join(['x'] * terms)}\n"

    assert with_docstrings(code, SAID).replace(f'    """{SAID}"""\n', "") == code


def test_type_parameters_are_mended_on_every_interpreter() -> None:
    result = mended("def f[T](x: T) -> T:\n    return x\n")

    assert result == f'def f[T](x: T) -> T:\n    """{SAID}"""\n    return x\n'


INDENTS = st.sampled_from(["  ", "    ", "\t", " \t"])
SIGNATURES = st.sampled_from(
    [
        "def {}(x):",
        "async def {}(x, *, y=lambda z: z) -> 'a: b':",
        "@tool\n{i}def {}(x: int = 1):",
        "@tool(\n{i}  name='n{}'\n{i})\n{i}def {}(\n{i} x,  # why\n{i}):  # because",
        "def {}(é: 'ü: →' = {{1: 2}}[1]):",
        "class {}(BaseTool):",
        "@tool_metadata()\n{i}class {}:",
        "class {}:",
        "if True:",
    ]
)
LINES = st.sampled_from(
    ["return 1", "x = 'é'; y = 2  # c", "pass", '"doc"', "'''two\n lines'''", "x = (1,\n2)", "''"]
)


@st.composite
def blocks(draw: st.DrawFn, indent: str = "", depth: int = 0) -> str:
    """Some definitions below each other, with comments, blank lines and nested ones."""
    text = ""
    for number in range(draw(st.integers(1, 3))):
        name = f"f{depth}{number}"
        text += indent + draw(SIGNATURES).replace("{i}", indent).replace("{}", name)
        line = draw(LINES)
        if draw(st.booleans()):
            text += f" {line}\n"
            continue
        inner = indent + draw(INDENTS)
        text += "\n" + draw(st.sampled_from(["", "\n", f"{inner}# comment\n", "# outside\n\n"]))
        nested = depth < 2 and draw(st.booleans())
        text += draw(blocks(inner, depth + 1)) if nested else f"{inner}{line}\n"
    return text


@given(
    blocks(),
    st.text(),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\ufeff", "# coding: latin-1\n", "'module'\n"]),
)
def test_the_program_stays_the_same_and_twice_changes_nothing(
    code: str, description: str, newline: str, start: str
) -> None:
    code = (start + code).replace("\n", newline)
    try:
        ast.parse(code.removeprefix("\ufeff"))
    except SyntaxError:
        assert with_docstrings(code, description) == code
        return

    result = with_docstrings(code, description)

    assert same_but_for_docstrings(code, result)
    assert with_docstrings(result, description) == result
    if inspect.cleandoc(description).strip():
        assert "missing-docstring" not in {f.rule for f in read(result, "<memory>").findings}


def test_the_standard_library_stays_the_same_program() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    changed = 0
    for file in sorted(folder.glob("[c-p]*.py"))[::6]:
        code = decode(file.read_bytes())

        result = with_docstrings(code, 'Say "x".\n\nMore \\ words.')

        changed += result != code
        assert same_but_for_docstrings(code, result)
        assert with_docstrings(result, SAID) == result

    assert changed


# Repairs


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
    source = textwrap.dedent("""
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
