"""Where descriptions come from: of tools and of parameters, in order of precedence."""

from reading import one, properties, rules

from tables import each_row

IMPORTS = "from typing import Annotated, Optional\nfrom pydantic import Field\n"
DOCS = '"""Do it.\n\n    Args:\n        x: From the docstring.\n    """'


@each_row(
    "parameter, text",
    [
        ("x: int", "From the docstring."),
        ("x", "From the docstring."),
        ("x: int = 3", "From the docstring."),
        ("x: Annotated[int, 'From Annotated.']", "From Annotated."),
        ("x: Annotated[int, 'From Annotated.'] = 3", "From Annotated."),
        ("x: Annotated[int, Field(ge=0)]", "From the docstring."),
        ("x: Annotated[int, Field(description='From Field.')]", "From Field."),
        ("x: Annotated[int, 'From Annotated.', Field(description='From Field.')]", "From Field."),
        ("x: Annotated[int, Field(description='From Field.'), 'From Annotated.']", "From Field."),
        ("x: Annotated[int, 'From Annotated.', Field(ge=0)]", "From Annotated."),
        ("x: int = Field(description='From Field.')", "From Field."),
        ("x: int = Field(3, description='From Field.')", "From Field."),
        (
            "x: Annotated[int, 'From Annotated.'] = Field(3, description='From Field.')",
            "From Field.",
        ),
        ("x: Annotated[int, 'From Annotated.'] = Field(3)", "From Annotated."),
        ("x: 'Annotated[int, \"From Annotated.\"]'", "From Annotated."),
        ("x: Annotated[int | None, 'From Annotated.'] = None", "From Annotated."),
        ("*, x: Annotated[list[int], 'From Annotated.']", "From Annotated."),
        ("x: Text", "From an alias."),
        ("x: Annotated[int, Field(description=TEXT)]", "From a constant."),
        ("x: Annotated[int, TEXT]", "From a constant."),
        ("x: Annotated[int, 'From ' 'Annotated.']", "From Annotated."),
    ],
)
def test_a_parameter_is_described_by_field_then_annotated_then_docstring(
    parameter: str, text: str
) -> None:
    source = (
        f"{IMPORTS}TEXT = 'From a constant.'\nText = Annotated[str, 'From an alias.']\n"
        f"def f({parameter}):\n    {DOCS}"
    )

    assert properties(source)["x"]["description"] == text


GOOGLE = """Do it.

    Args:
        path (str): The path,
            on several lines.
        limit (int, optional): How many.
        *rest: The rest.
        **more: And more.
    """


def test_the_docstring_describes_parameters_but_the_description_leaves_them_out() -> None:
    tool = one(f'def f(path: float, limit, *rest: int, **more: int):\n    """{GOOGLE}"""')

    found = tool.parameters["properties"]
    assert tool.description == "Do it."
    assert found["path"] == {"type": "number", "description": "The path,\non several lines."}
    assert found["limit"] == {"description": "How many."}
    assert found["rest"]["description"] == "The rest."


LONG = '''"""Convert money.

    Takes the rate of the day.

    **Important**: Never twice.

    **When to use**
    Often.

    Args:
        x: The amount.

    Returns:
        The money.

    Raises:
        ValueError: If negative.

    Examples:
        >>> f(3)
        4
    """'''


def test_sections_go_to_the_documentation_and_the_detailed_description() -> None:
    tool = one(f"def f(x: int):\n    {LONG}")

    documentation, detailed = tool.documentation, tool.detailed_description()
    assert tool.description == "Convert money.\n\nTakes the rate of the day."
    assert documentation.returns == "The money."
    assert [(item.type, item.text) for item in documentation.raises] == [
        ("ValueError", "If negative.")
    ]
    assert documentation.examples == ">>> f(3)\n4"
    assert [(item.title, item.body) for item in documentation.sections] == [
        ("Important", "Never twice."),
        ("When to use", "Often."),
    ]
    for part in ("Convert money.", "Never twice.", "Often.", "The amount.", ">>> f(3)"):
        assert part in detailed


@each_row(
    "source, description",
    [
        ("@tool(description='Said.')\ndef f():\n    'Docs.'", "Said."),
        ("@tool(description='')\ndef f():\n    'Docs.'", "Docs."),
        ("@tool(description=None)\ndef f():\n    'Docs.'", "Docs."),
        ("@tool(description='  ')\ndef f():\n    'Docs.'", "Docs."),
        ("@tool\ndef f():\n    'Docs.'", "Docs."),
        ("@tool\ndef f(): ...", "f function"),
        ("def f(): ...", "f function"),
        ("def f():\n    ''", "f function"),
        ("def f():\n    '   '", "f function"),
        ("def f():\n    f'Docs.'", "f function"),
        ("def f():\n    b'Docs.'", "f function"),
        ("def f():\n    3", "f function"),
        ("def f():\n    x = 1\n    'Docs.'", "f function"),
        ("def f():\n    'Do' ' it.'", "Do it."),
        ("def f():\n    r'Do \\d.'", "Do \\d."),
        ("def f():\n    '''\n    Do it.\n    '''", "Do it."),
        ("def f():\n    '''Do:\n\n      - a\n        - b\n    '''", "Do:\n\n- a\n  - b"),
        ('def f(x):\n    """\n    Args:\n        x: The x.\n    """', "f function"),
        ('def f():\n    """Returns:\n        The x.\n    """', "f function"),
        ("class K:\n    @method_metadata()\n    def f(self): ...", "f function"),
        (
            "class K:\n    @method_metadata(description='Said.')\n"
            "    @openapi_schema({'description': 'Schema.', 'parameters': {}})\n"
            "    def f(self):\n        'Docs.'",
            "Said.",
        ),
        (
            "class K:\n    @openapi_schema({'description': 'Schema.', 'parameters': {}})\n"
            "    def f(self):\n        'Docs.'",
            "Schema.",
        ),
        (
            "class K:\n    @openapi_schema({'name': 'f', 'parameters': {}})\n"
            "    def f(self):\n        'Docs.'",
            "Docs.",
        ),
        ("class K(BaseTool):\n    def execute(self, args): ...", "K functionality"),
        ("class K(BaseTool):\n    'Docs.'\n    def execute(self, args): ...", "Docs."),
        (
            "class K(BaseTool):\n    'Docs.'\n    description = 'Said.'\n"
            "    def execute(self, args): ...",
            "Said.",
        ),
        ("TOOL_NAME = 'f'\nTOOL_DESCRIPTION = 'Said.'\ndef run():\n    'Docs.'", "Said."),
        ("TOOL_NAME = 'f'\nTOOL_DESCRIPTION = ''\ndef run():\n    'Docs.'", "Docs."),
        ("TOOL_NAME = 'f'\ndef run():\n    'Docs.'", "Docs."),
        ("TOOL_NAME = 'f'\ndef run(): ...", "f function"),
        ("class Tools:\n    def f(self): ...", "f function"),
    ],
)
def test_the_tool_is_described_by_decorator_then_docstring_then_the_fallback(
    source: str, description: str
) -> None:
    assert one(source).description == description


@each_row("docs", ["''", "'   '", "'''\n    '''", "f'Docs.'"])
def test_an_empty_docstring_is_none(docs: str) -> None:
    assert "missing-docstring" in rules(f"def f():\n    {docs}")


def test_a_description_of_a_hidden_parameter_reaches_no_model() -> None:
    source = '''
    def f(x: int, ctx=None):
        """Do it.

        Args:
            x: The x.
            ctx: The context.
        """
    '''

    tool = one(source)

    assert "ctx" not in str(tool.parameters)
    assert "ctx" not in tool.detailed_description()


def test_a_described_model_keeps_the_parameters_own_description() -> None:
    source = '''
    from pydantic import BaseModel
    class Place(BaseModel):
        """A place on Earth."""
        name: str
    def f(where: Place):
        """Do it.

        Args:
            where: Where to go.
        """
    '''

    assert properties(source)["where"]["description"] == "Where to go."
