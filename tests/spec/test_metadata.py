"""Display names and metadata defaults, as FEATURES.md section C says, on real specs."""

from reading import findings, names, one, reading, rules

from tables import each_row
from toolkiln.model.spec import Hints, Limits, Permissions, Toolkit, ToolSpec

KIT = "class K:\n    @method_metadata()\n    def f(self): ..."
EVERY_DIALECT = {
    "function": "def f(): ...",
    "decorated": "@tool\ndef f(): ...",
    "constants": "TOOL_NAME = 'f'\ndef run(): ...",
    "toolkit": KIT,
    "base_tool": "class F(BaseTool):\n    def execute(self, args): ...",
    "open_webui": "class Tools:\n    def f(self): ...",
}


def kit(source: str) -> Toolkit:
    toolkit = one(source).toolkit

    assert toolkit is not None
    return toolkit


@each_row(
    "source",
    [
        "def {}(): ...",
        "@tool\ndef {}(): ...",
        "class K:\n    @method_metadata()\n    def {}(self): ...",
        "class Tools:\n    def {}(self): ...",
        "class {}(BaseTool):\n    def execute(self, args): ...",
    ],
)
def test_the_display_name_is_made_from_the_identifier(source: str) -> None:
    assert one(source.format("PDFToHTMLTool")).display_name == "PDF To HTML"
    assert kit(KIT.replace("class K", "class PDFToHTMLTool")).display_name == "PDF To HTML"


def test_the_display_name_is_made_from_the_function_not_from_the_given_name() -> None:
    assert one("@tool(name='convert_v2')\ndef currency_tool(): ...").display_name == "Currency"


@each_row(
    "decorator, docs, description",
    [
        ("@tool_metadata(description='Said.')", '"""Docs."""', "Said."),
        ("@tool_metadata(weight=3)", '"""Docs."""', "Docs."),
        ("@tool_metadata(description='')", '"""Docs."""', "Docs."),
        ("@tool_metadata()", "pass", "SandboxFilesTool functionality"),
        ("@tool_metadata", "pass", "SandboxFilesTool functionality"),
        ("@tool_metadata()", '""', "SandboxFilesTool functionality"),
        ("@other", '"""Docs.\n\n    At length.\n    """', "Docs.\n\nAt length."),
    ],
)
def test_a_toolkit_is_described_by_decorator_then_docstring_then_its_name(
    decorator: str, docs: str, description: str
) -> None:
    source = (
        f"{decorator}\nclass SandboxFilesTool:\n    {docs}\n    @method_metadata()\n"
        "    def f(self): ..."
    )

    assert kit(source).description == description


@each_row("dialect", EVERY_DIALECT)
def test_what_is_not_given_has_its_default(dialect: str) -> None:
    tool = one(EVERY_DIALECT[dialect])

    described: list[ToolSpec | Toolkit] = [tool, tool.toolkit or tool]
    for item in described:
        assert (item.icon, item.color, item.weight, item.is_core) == (None, None, 100, False)
    assert (tool.limits, tool.rights, tool.hints) == (Limits(), Permissions(), Hints())
    assert tool.requirements == ()


@each_row("dialect", ["function", "decorated", "constants", "toolkit"])
def test_tools_are_visible_by_default(dialect: str) -> None:
    assert one(EVERY_DIALECT[dialect]).visible


@each_row("decorator", ["", "@tool_metadata()\n", "@tool_metadata(weight=1)\n"])
def test_toolkits_are_hidden_by_default(decorator: str) -> None:
    assert not kit(decorator + KIT).visible
    assert kit("@tool_metadata(visible=True)\n" + KIT).visible


def test_a_core_toolkit_differs_from_a_core_method() -> None:
    source = """
    @tool_metadata(is_core=True)
    class A:
        @method_metadata()
        def a(self): ...
    class B:
        @method_metadata(is_core=True)
        def b(self): ...
    """

    a, b = reading(source).tools

    assert a.toolkit is not None
    assert b.toolkit is not None
    assert (a.toolkit.is_core, a.is_core) == (True, False)
    assert (b.toolkit.is_core, b.is_core) == (False, True)


@each_row(
    "source",
    [
        "@tool({})\ndef f(): ...",
        "@tool_metadata({})\n" + KIT,
        "@tool_metadata({})\nclass K:\n    @method_metadata()\n    def _f(self): ...",
        "@tool_metadata({})\n" + KIT + "\n    @method_metadata()\n    def g(self): ...",
    ],
)
def test_an_icon_and_a_color_are_checked_once(source: str) -> None:
    bad = source.format("icon='folder_open', color='ff00zz'")
    good = source.format("icon='folder-open', color='#ff0000'")

    (icon,) = findings(bad, "bad-icon")

    assert "folder-open" in icon.message
    assert len(findings(bad, "bad-color")) == 1
    assert not rules(good) & {"bad-icon", "bad-color"}


@each_row(
    "source, expected",
    [
        ("def _f(): ...\ndef g(): ...", ["g"]),
        ("@tool\ndef _f(): ...", ["_f"]),
        ("@tool(name='f')\ndef _f(): ...", ["f"]),
        ("class Tools:\n    def _f(self): ...\n    def g(self): ...", ["g"]),
        ("class K:\n    @openapi_schema({'parameters': {}})\n    def _f(self): ...", ["_f"]),
        ("class K:\n    @method_metadata()\n    def _f(self): ...\n    def g(self): ...", ["_f"]),
    ],
)
def test_a_private_name_is_a_tool_only_if_decorated(source: str, expected: list[str]) -> None:
    assert names(source) == expected


@each_row("visible", [True, False])
def test_a_private_decorated_tool_is_visible_as_declared(visible: bool) -> None:
    assert one(f"@tool(visible={visible})\ndef _f(): ...").visible is visible
    assert one("@tool\ndef _f(): ...").visible
