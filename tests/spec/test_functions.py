"""Plain functions: which of a file's functions are tools, and what is read of them.

`differential` compares the schemas of all kinds of parameters and results with pydantic's.
"""

from reading import names, one, reading

from tables import each_row
from toolkiln.model.spec import Dialect

CONVERT = '''
async def convert(amount: float, to: str = "EUR") -> float:
    """Convert an amount of money.

    Args:
        amount: How much.
        to: The currency.
    """
    return amount
'''


def test_a_typed_function_with_a_docstring_is_a_tool() -> None:
    tool = one(CONVERT)

    assert tool.dialect is Dialect.FUNCTION
    assert (tool.name, tool.entry, tool.line) == ("convert", "convert", 2)
    assert tool.description == "Convert an amount of money."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "description": "How much."},
            "to": {"type": "string", "default": "EUR", "description": "The currency."},
        },
        "required": ["amount"],
        "additionalProperties": False,
    }
    assert tool.returns == {"type": "number"}
    assert tool.is_async


@each_row(
    "source",
    [
        "def _private(): ...",
        "def __getattr__(name): ...",
        "def main(): ...",
        "async def main(): ...",
        "from os.path import join",
        "import json",
        "greet = lambda name: name",
        "class Greeter:\n    def greet(self, name: str): ...",
        "class _Greeter:\n    @staticmethod\n    def greet(name: str): ...",
        "def _outer():\n    def inner(): ...\n    return inner",
        "if __name__ == '__main__':\n    def helper(): ...",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    def helper(): ...",
        "if False:\n    def helper(): ...",
        "",
        "# nothing\n",
        '"""Only a docstring."""',
    ],
)
def test_what_is_no_public_function_of_the_file_is_no_tool(source: str) -> None:
    assert names(source) == []


@each_row(
    "source, expected",
    [
        ("def a(): ...\ndef b(): ...", ["a", "b"]),
        ("def b(): ...\ndef a(): ...", ["b", "a"]),
        ("def outer():\n    def inner(): ...", ["outer"]),
        ("def a(): ...\ndef main(): a()", ["a"]),
        ("def run(x: int): ...", ["run"]),
        ("def mainly(): ...", ["mainly"]),
        ("from functools import cache\n@cache\ndef a(): ...", ["a"]),
        ("import functools\n@functools.wraps(print)\ndef a(): ...", ["a"]),
        ("import nowhere\n@nowhere.traced(level=3)\ndef a(): ...", ["a"]),
        ("try:\n    import x\nexcept ImportError:\n    pass\ndef a(): ...", ["a"]),
        ("try:\n    def a(): ...\nexcept Exception:\n    pass", ["a"]),
        (
            "import sys\nif sys.version_info >= (3, 11):\n    def a(): ...\nelse:\n"
            "    def a(x): ...",
            ["a"],
        ),
        ("class C:\n    def m(self): ...\ndef a(): ...", ["a"]),
        ("def a(): yield 1", ["a"]),
        ("def a(): ...\na.cost = 3", ["a"]),
        ("tool = 3\ndef a(): ...", ["a"]),
        ("from toolkiln import tool\n@tool\ndef a(): ...\ndef b(): ...", ["a"]),
        ("class K:\n    @method_metadata()\n    def a(self): ...\ndef b(): ...", ["a"]),
    ],
)
def test_a_file_offers_its_public_functions_unless_some_are_marked(
    source: str, expected: list[str]
) -> None:
    assert names(source) == expected


def test_overloads_are_no_tools_of_their_own() -> None:
    tool = one(
        """
        from typing import overload
        @overload
        def double(x: int) -> int: ...
        @overload
        def double(x: str) -> str: ...
        def double(x: int | str) -> int | str:
            return x * 2
        """
    )

    assert tool.line == 7
    assert tool.parameters["properties"]["x"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]


def test_the_path_may_be_a_string_or_a_path_and_is_kept() -> None:
    assert reading("def f(): ...", "nowhere/f.py").path == "nowhere/f.py"
    assert one("def f(): ...", "nowhere/f.py").path == "nowhere/f.py"
