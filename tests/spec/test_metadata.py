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


NAMES = [
    ("SandboxFilesTool", "Sandbox Files"),
    ("sb_shell_tool", "Sb Shell"),
    ("PDFToHTMLTool", "PDF To HTML"),
    ("Toolbox_tool", "Toolbox"),
    ("tool", "Tool"),
]
"""Names whose words `test_naming` does not repeat for every dialect."""


@each_row("identifier, shown", NAMES)
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
def test_the_display_name_is_made_from_the_identifier(
    source: str, identifier: str, shown: str
) -> None:
    assert one(source.format(identifier)).display_name == shown


@each_row("identifier, shown", NAMES)
def test_a_toolkits_display_name_is_made_from_its_class(identifier: str, shown: str) -> None:
    assert kit(KIT.replace("class K", f"class {identifier}")).display_name == shown


@each_row("identifier", ["_tool", "_Tool", "__tool", "_", "__", "Tool_tool"])
def test_the_display_name_is_never_empty(identifier: str) -> None:
    assert one(f"@tool\ndef {identifier}(): ...").display_name.strip()
    assert kit(KIT.replace("class K", f"class {identifier}")).display_name.strip()


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
        ("@other", '"""Docs."""', "Docs."),
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


def test_a_toolkits_docstring_is_dedented() -> None:
    source = (
        'class K:\n    """Looks.\n\n    At things.\n    """\n'
        "    @method_metadata()\n    def f(self): ..."
    )

    assert kit(source).description == "Looks.\n\nAt things."


@each_row("dialect", EVERY_DIALECT)
def test_what_is_not_given_has_its_default(dialect: str) -> None:
    tool = one(EVERY_DIALECT[dialect])

    described: list[ToolSpec | Toolkit] = [tool, tool.toolkit or tool]
    for item in described:
        assert (item.icon, item.color, item.weight, item.is_core) == (None, None, 100, False)
    assert (tool.limits, tool.rights, tool.hints) == (Limits(), Permissions(), Hints())
    assert tool.requirements == ()


@each_row("dialect", ["function", "decorated", "constants", "toolkit"])
def test_tools_are_visible_unless_said_otherwise(dialect: str) -> None:
    assert one(EVERY_DIALECT[dialect]).visible


@each_row("decorator", ["", "@tool_metadata()\n", "@tool_metadata(weight=1)\n"])
def test_toolkits_are_hidden_unless_said_otherwise(decorator: str) -> None:
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
        "@tool(icon='{}')\ndef f(): ...",
        "@tool_metadata(icon='{}')\n" + KIT,
        "@tool_metadata(icon='{}')\nclass K:\n    @method_metadata()\n    def _f(self): ...",
    ],
)
def test_icons_are_checked(source: str) -> None:
    (found,) = findings(source.format("FolderOpen"), "bad-icon")

    assert "folder-open" in found.message
    assert not findings(source.format("folder-open"), "bad-icon")


def test_an_icon_of_a_toolkit_with_many_methods_is_reported_once() -> None:
    source = """
    @tool_metadata(icon="FolderOpen", color="blurple")
    class K:
        @method_metadata()
        def a(self): ...
        @method_metadata()
        def b(self): ...
    """

    assert len(findings(source, "bad-icon")) == 1
    assert len(findings(source, "bad-color")) == 1


def test_colors_are_checked() -> None:
    assert "bad-color" in rules("@tool(color='ff00zz')\ndef f(): ...")
    assert "bad-color" not in rules("@tool(color='#ff0000')\ndef f(): ...")


@each_row(
    "source, expected",
    [
        ("def _f(): ...\ndef g(): ...", ["g"]),
        ("@tool\ndef _f(): ...", ["_f"]),
        ("@tool(name='f')\ndef _f(): ...", ["f"]),
        ("class Tools:\n    def _f(self): ...\n    def g(self): ...", ["g"]),
        ("class K:\n    @openapi_schema({'parameters': {}})\n    def _f(self): ...", ["_f"]),
    ],
)
def test_a_private_name_is_a_tool_only_if_decorated(source: str, expected: list[str]) -> None:
    assert names(source) == expected


@each_row("visible", [True, False])
def test_a_private_decorated_tool_is_visible_as_declared(visible: bool) -> None:
    assert one(f"@tool(visible={visible})\ndef _f(): ...").visible is visible
    assert one("@tool\ndef _f(): ...").visible
