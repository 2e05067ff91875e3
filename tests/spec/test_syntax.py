"""Files that are not what they should be: one finding with its place, never an exception."""

import json
import subprocess
import sys
import warnings

from reading import one, properties, reading

from tables import each_row
from toolkiln.model.source import Finding, Severity
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import decode


def problem(source: str) -> Finding:
    """The one finding of a file that cannot be read."""
    result = read(source, "<memory>")

    assert result.tools == ()
    (found,) = result.findings
    assert found.severity is Severity.ERROR
    assert found.fix
    assert found.path == "<memory>"
    return found


@each_row(
    "source, line, column",
    [
        ("def f(:\n    pass", 1, 7),
        ("x = 1\ny = = 2\n", 2, 5),
        ("def f():\npass", 2, 1),
        ("x = 'abc", 1, 5),
        ("x = (1,\n", 1, 5),
        ("print 'hello'", 1, 1),
        ("def f():\n    return 1\n  x = 2", 3, None),
        ("if True:\n\tx = 1\n        y = 2\n", 3, None),
        ("ä = = 1", 1, 5),
        ("x = 0777", 1, None),
        ("f(**a, *b)", 1, None),
        ("nonlocal x\n\nx = )", 3, 5),
        ("'''abc\n\n\n", 1, None),
        ("type X = int\ndef f[T](x: T): ...\ny = = 3\n", 3, None),
    ],
)
def test_a_syntax_error_has_line_and_column(source: str, line: int, column: int | None) -> None:
    found = problem(source)

    assert (found.rule, found.line) == ("syntax-error", line)
    assert found.column is not None
    assert found.column == column or column is None


@each_row("source", ["\0", "x = 1\n\0", "def f(): ...\n# \0\n"])
def test_null_bytes_are_reported_with_their_line(source: str) -> None:
    assert problem(source).line == source[: source.index("\0")].count("\n") + 1


@each_row(
    "source",
    [
        "x = " + "(" * 10_000 + ")" * 10_000,
        "x = " + "[" * 10_000 + "]" * 10_000,
        "x = " + "{" * 10_000,
        "x = " + "(" * 10_000,
        "(" * 150 + "1" + ")" * 150,
        "x = " + "-" * 100_000 + "1",
        "x = " + "not " * 50_000 + "1",
        "x = " + "+".join(["1"] * 50_000),
        "x = a" + ".b" * 50_000,
        "x = a" + "()" * 20_000,
        "x = " + "lambda: " * 20_000 + "1",
        "def f(x: " + "list[" * 5_000 + "int" + "]" * 5_000 + "): ...",
        "def f(x: " + "list[" * 150 + "int" + "]" * 150 + "): ...",
        "def f(x: '" + "list[" * 5_000 + "int" + "]" * 5_000 + "'): ...",
        "def f(x: " + " | ".join(["int"] * 20_000) + "): ...",
        "def f(x: int = " + "-" * 3_000 + "1): ...",
        "\n".join(" " * n + "if x:" for n in range(99)) + "\n" + " " * 100 + "pass",
        "\n".join(" " * n + "if x:" for n in range(3_000)),
        "\n".join(" " * n + "class A:" for n in range(99)) + "\n" + " " * 100 + "x = 1",
        "if x: pass\n" + "elif x: pass\n" * 5_000,
        "x = " + " if a else ".join(["b"] * 20_000),
        "@a" + "(b)" * 5_000 + "\ndef f(): ...",
        "A0 = int\n" + "".join(f"A{n + 1} = list[A{n}]\n" for n in range(2_000))
        + "def f(x: A2000): ...",
        "class A0: ...\n" + "".join(f"class A{n + 1}(A{n}): ...\n" for n in range(2_000))
        + "def f(x: A2000): ...",
        "X = X\ndef f(x: X): ...",
        "X = Y\nY = X\ndef f(x: X, y: int = X): ...",
        "X = list[X]\ndef f(x: X): ...",
        "X = 'X'\ndef f(x: X): ...",
        "class A(A): ...\ndef f(x: A): ...",
        "from pydantic import BaseModel\nclass A(B): ...\nclass B(A, BaseModel): ...\n"
        "def f(x: A): ...",
        "A0 = 'x' * 10\n" + "".join(f"A{n + 1} = A{n} + A{n}\n" for n in range(60))
        + "def f(x: str = A60): ...",
        "def f(x: int = 10 ** 10 ** 10): ...",
        "def f(x: int = 1 << 10 ** 10): ...",
        "def f(x: str = 'a' * 10 ** 10): ...",
        "def f(x: str = '%1000000000d' % 1): ...",
        "def f(x: str = f'{1:1000000000}'): ...",
        "A0 = int | str\n" + "".join(f"A{n + 1} = tuple[A{n}, A{n}]\n" for n in range(60))
        + "def f(x: A60): ...",
    ],
)  # fmt: skip
def test_what_is_too_deep_or_too_much_is_survived(source: str) -> None:
    result = read(source, "<memory>")

    assert result.tools or result.findings or "def f" not in source
    assert len(result.model_dump_json()) < 5_000_000


def test_a_value_that_grows_without_bound_is_left_alone() -> None:
    lines = ["A0 = ['x'] * 1000", *(f"A{n + 1} = [A{n}] * 1000" for n in range(9))]
    source = "\n".join([*lines, "def f(x: list = A9): ..."])
    code = f"from toolkiln.spec.reader import read; print(len(read({source!r}, '<m>').tools))"

    # In a process of its own, because a reader that gets this wrong takes all memory there is.
    bounded = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); {code}"
    done = subprocess.run([sys.executable, "-c", bounded], capture_output=True, timeout=60)

    assert done.stdout.strip() == b"1"


@each_row("source", ["x = '\ud800'", "# \udfff", "def f():\n    '\udcff'"])
def test_lone_surrogates_are_a_finding(source: str) -> None:
    result = read(source, "<memory>")

    assert [found.severity for found in result.findings] == [Severity.ERROR]


def test_an_escaped_surrogate_in_visible_text_does_not_break_the_output() -> None:
    result = read("def f(x: str = '\\ud800'):\n    'Do it \\udfff.'", "<memory>")

    result.model_dump_json()


@each_row(
    "data, default",
    [
        (b"\xef\xbb\xbfdef f(x: str = '\xc3\xa9'): ...", "é"),
        (b"# -*- coding: latin-1 -*-\ndef f(x: str = '\xe9'): ...", "é"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\ndef f(x: str = '\x80'): ...", "€"),
        (b"# coding: utf-8\r\ndef f(x: str = '\xc3\xa9'): ...\r\n", "é"),
        (b"def f(x: str = 'a'): ...\r", "a"),
        (b"\x0cdef f(x: str = 'a'): ...\n\x0c", "a"),
        (b"# coding: utf-7\ndef f(x: str = 'a'): ...", "a"),
    ],
)
def test_encodings_and_line_ends_of_python_are_understood(data: bytes, default: str) -> None:
    (tool,) = read(decode(data), "<memory>").tools

    assert tool.parameters["properties"]["x"]["default"] == default


@each_row("prefix", ["\ufeff", "\f", "\n\n", "#!/usr/bin/env python3\n", "\\\n"])
def test_what_python_allows_before_code_is_read(prefix: str) -> None:
    assert one(f"{prefix}def f(x: int): ...").name == "f"


@each_row("newline", ["\r\n", "\r"])
def test_lines_are_counted_the_same_with_every_line_end(newline: str) -> None:
    source = "x = 1\n\ndef f(x: int):\n    'Do it.'\n"

    assert one(source.replace("\n", newline)).line == 3


def test_lines_of_pep_695_stay_where_they_are() -> None:
    source = "type X = (\n    int\n)\n\nclass Box[T]:\n    pass\n\ndef f[T](\n    x: X,\n): ...\n"

    assert one(source).line == 8


@each_row("value", ["1e999", "-1e999", "float('nan')", "1e999 - 1e999", "1j"])
def test_a_default_that_json_has_no_word_for_is_no_invalid_json(value: str) -> None:
    tool = one(f"def f(x: float = {value}): ...")

    json.dumps(tool.parameters, allow_nan=False)
    assert "required" not in tool.parameters


def test_a_long_integer_is_kept_and_one_beyond_reason_is_a_finding() -> None:
    result = reading(f"def f(x: int = {'9' * 5_000}): ...")

    assert result.findings
    result.model_dump_json()
    assert properties(f"def f(x: int = {'9' * 1_000}): ...")["x"]["default"] == int("9" * 1_000)


def test_invalid_escapes_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert one("def f():\n    'Do \\d.'\n    return 1 is 1").name == "f"


INTEGER = {"type": "integer"}
INTEGERS = {"type": "array", "items": INTEGER}
EITHER = {"anyOf": [INTEGER, {"type": "string"}]}


@each_row(
    "source, schema",
    [
        ("type X = int\ndef f(x: X): ...", INTEGER),
        ("type X = list[int]\ndef f(x: X): ...", INTEGERS),
        ("type X = (\n    int\n    | str\n)\ndef f(x: X): ...", EITHER),
        ("type X = Y\ntype Y = int\ndef f(x: X): ...", INTEGER),
        ("type X[T] = list[T]\ndef f(x: X[int]): ...", INTEGERS),
        ("def f[T](x: T): ...", {}),
        ("def f[T: int](x: T): ...", INTEGER),
        ("def f[T: (int, str)](x: T): ...", EITHER),
        ("def f[**P, *Ts](x: int): ...", INTEGER),
        ("async def f[T](x: list[T]): ...", {"type": "array", "items": {}}),
        ("def f[\n    T,\n](\n    x: list[int],\n): ...", INTEGERS),
    ],
)
def test_aliases_and_functions_of_pep_695(source: str, schema: dict[str, object]) -> None:
    tool = one(source)
    found = tool.parameters["properties"]["x"]
    while "$ref" in found:
        found = tool.parameters["$defs"][found["$ref"].removeprefix("#/$defs/")]

    assert found == schema


def test_generic_models_of_pep_695() -> None:
    source = """
    from pydantic import BaseModel
    class Box[T](BaseModel):
        content: T
    def f(box: Box[int]): ...
    """

    (definition,) = one(source).parameters["$defs"].values()

    assert definition["properties"]["content"]["type"] == "integer"


def test_type_is_still_an_ordinary_name() -> None:
    uses = ["type = 3", "type.x = 4", "print(type)", "type (3)", "type[0] = 1", "type X = int"]

    assert one("\n".join([*uses, "def f(x: X): ..."])).name == "f"


def test_what_looks_like_it_in_a_string_is_left_alone() -> None:
    text = "\ntype X = int\ndef g[T](x): ...\n"
    source = f"TEXT = '''{text}'''\ntype Y = int\ndef f(x: str = TEXT): ..."

    assert properties(source)["x"]["default"] == text


def test_the_syntax_of_later_versions_is_at_least_a_finding() -> None:
    sources = [
        "def f(x: str = f'{'a'}'): ...",
        "try:\n    pass\nexcept ValueError, TypeError:\n    pass\ndef f(): ...",
        "x = t'{1}'\ndef f(): ...",
        "class C[T = int]: ...\ndef f(): ...",
    ]

    for source in sources:
        result = reading(source)
        assert result.tools or [found.rule for found in result.findings] == ["syntax-error"]
