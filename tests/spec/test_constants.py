"""`TOOL_NAME`, `TOOL_DESCRIPTION`, `TOOL_PARAMETERS` with `run(…)`."""

from reading import findings, one, reading, rules

from tables import each_row
from toolkiln.model.source import Severity
from toolkiln.model.spec import Dialect

SCHEMA = """{
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}},
    "required": ["city"],
}"""
WEATHER = f'''
TOOL_NAME = "weather"
TOOL_DESCRIPTION = "Tell the weather of a city."
TOOL_PARAMETERS = {SCHEMA}

async def run(city, ctx=None):
    """Ask the service."""

def helper(): ...
'''


def test_the_constants_and_run_are_one_tool() -> None:
    tool = one(WEATHER)

    assert (tool.dialect, tool.name, tool.entry) == (Dialect.CONSTANTS, "weather", "run")
    assert tool.description == "Tell the weather of a city."
    assert tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}},
        "required": ["city"],
    }
    assert tool.injected == {"ctx": "context"}
    assert (tool.display_name, tool.is_async) == ("Weather", True)


def test_a_schema_written_by_hand_that_fits_has_nothing_to_report() -> None:
    assert not rules(WEATHER) & {"schema-mismatch", "missing-annotation", "undescribed-parameter"}


@each_row(
    "assignment",
    [
        'TOOL_NAME: str = "weather"',
        'TOOL_NAME: Final = "weather"',
        'PREFIX = "wea"\nTOOL_NAME = PREFIX + "ther"',
        'PREFIX = "wea"\nTOOL_NAME = f"{PREFIX}ther"',
        'TOOL_NAME = NAME = "weather"',
        'TOOL_NAME, OTHER = "weather", 3',
        'try:\n    import x\nexcept ImportError:\n    x = None\nTOOL_NAME = "weather"',
        'if True:\n    TOOL_NAME = "weather"',
    ],
)
def test_the_name_may_be_any_constant_expression(assignment: str) -> None:
    assert one(f"{assignment}\ndef run(): ...").name == "weather"


@each_row(
    "value",
    [
        '{"type": "object", "properties": {**CITY}}',
        '{"type": "object", "properties": dict(city={"type": "string"})}',
        '{"type": "object", "properties": CITY | {}}',
        'dict(type="object", properties=CITY)',
    ],
)
def test_the_schema_may_be_put_together_from_constants(value: str) -> None:
    source = (
        f'CITY = {{"city": {{"type": "string"}}}}\nTOOL_PARAMETERS = {value}\ndef run(**a): ...'
    )

    assert one(source).parameters == {"type": "object", "properties": {"city": {"type": "string"}}}


def test_constants_without_run_are_an_error_and_no_tool() -> None:
    result = reading('\nTOOL_NAME = "f"\ndef helper(): ...\n')

    assert result.tools == ()
    assert [(f.rule, f.line, f.severity) for f in result.findings] == [
        ("missing-run", 2, Severity.ERROR)
    ]


@each_row(
    "signature, about",
    [
        ("", "city"),
        ("city, country", "country"),
        ("town", "town"),
    ],
)
def test_a_schema_that_disagrees_with_run_is_a_finding(signature: str, about: str) -> None:
    found = findings(WEATHER.replace("city, ctx=None", signature), "schema-mismatch")

    assert any(about in item.message for item in found)
    assert {item.line for item in found} == {4}


@each_row("signature", ["city='Bonn', ctx=None", "**arguments"])
def test_run_may_need_less_than_the_schema_requires(signature: str) -> None:
    assert "schema-mismatch" not in rules(WEATHER.replace("city, ctx=None", signature))


@each_row("value", ["3", "None", "['a']", "b'weather'"])
def test_a_name_that_is_no_text_is_reported(value: str) -> None:
    result = reading(f"TOOL_NAME = {value}\nTOOL_DESCRIPTION = 'd'\ndef run(): ...")

    assert [tool.name for tool in result.tools] == ["run"]
    assert any(item.line == 1 and item.fix for item in result.findings)


@each_row("value", ["3", "[]", "'object'"])
def test_a_schema_that_is_no_object_is_reported(value: str) -> None:
    result = reading(f"TOOL_NAME = 'f'\nTOOL_PARAMETERS = {value}\ndef run(a: int): ...")

    assert result.tools[0].parameters["properties"] == {"a": {"type": "integer"}}
    assert any(item.line == 2 and item.fix for item in result.findings)


def test_properties_alone_are_made_a_whole_schema() -> None:
    source = """
    TOOL_NAME = "f"
    TOOL_PARAMETERS = {"a": {"type": "integer"}, "b": {"type": "string"}}
    def run(a, b="x", ctx=None): ...
    """

    assert one(source).parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
    }


def test_a_property_called_type_does_not_confuse_the_reader() -> None:
    source = """
    TOOL_NAME = "f"
    TOOL_PARAMETERS = {"type": {"type": "string"}, "size": {"type": "integer"}}
    def run(type, size): ...
    """

    assert set(one(source).parameters["properties"]) == {"type", "size"}
