"""Approval as a flag or as a function of the arguments, in every dialect that can say so."""

from reading import findings, one, reading

from tables import each_row
from toolkiln.model.source import Severity
from toolkiln.model.spec import Permissions, ToolSpec

DECORATED = """
    from toolkiln import tool
    from os.path import exists as imported
    ALWAYS = True
    NOT_CALLED = is_risky_later = lambda args: True
    class Policy:
        def ask(args): return True
    def is_risky(args): return "rm" in args["command"]
    async def is_risky_async(args): return False
    @tool(needs_approval={given})
    def shell(command: str):
        "Run a command in the shell and return its output."
"""


def asks(tool: ToolSpec) -> tuple[bool, str | None]:
    return tool.rights.needs_approval, tool.rights.approval_function


@each_row(
    "given, expected",
    [
        ("True", (True, None)),
        ("False", (False, None)),
        ("None", (False, None)),
        ("ALWAYS", (True, None)),
        ("is_risky", (True, "is_risky")),
        ("is_risky_async", (True, "is_risky_async")),
    ],
)
def test_a_decorator_says_always_never_or_names_a_function(
    given: str, expected: tuple[bool, str | None]
) -> None:
    source = DECORATED.format(given=given)

    assert asks(one(source)) == expected  # the function itself is no tool
    assert not [f for f in reading(source).findings if "approval" in f.message]


def test_a_lambda_is_refused_and_people_are_asked() -> None:
    source = DECORATED.format(given="lambda args: False")

    (finding,) = findings(source, "bad-option")

    assert finding.severity is Severity.ERROR
    assert finding.tool == "shell"
    assert "top level" in finding.fix
    assert asks(one(source)) == (True, None)


@each_row(
    "given, rule, words",
    [
        *((name, "unknown-value", repr(name))
          for name in ("missing", "imported", "NOT_CALLED", "Policy", "len")),
        ("Policy.ask", "unknown-value", ""),
        ("print('x') or is_risky", "unknown-value", ""),
        ("not is_risky", "unknown-value", ""),
        ("'no'", "bad-option", ""),
    ],
)  # fmt: skip
def test_anything_but_a_flag_or_a_function_of_the_file_means_always(
    given: str, rule: str, words: str
) -> None:
    source = DECORATED.format(given=given)

    (finding,) = findings(source, rule)

    assert words in finding.message
    assert asks(one(source)) == (True, None)


CONSTANTS = """
    TOOL_NAME = "shell"
    {given}
    def run(command: str):
        "Run a command in the shell and return its output."
"""


@each_row(
    "given, expected",
    [
        ("", (False, None)),
        ("def needs_permission(args): return True", (True, "needs_permission")),
        ("async def needs_permission(args): return True", (True, "needs_permission")),
        ("needs_permission = True", (True, None)),
        ("from policy import needs_permission", (True, None)),
    ],
)
def test_a_file_of_constants_may_have_a_function(
    given: str, expected: tuple[bool, str | None]
) -> None:
    source = CONSTANTS.format(given=given)

    assert asks(one(source)) == expected
    assert bool(findings(source, "unknown-value")) == (expected == (True, None))


@each_row(
    "members",
    [
        "def needs_permission(self, args): return False",
        "async def needs_permission(self, args): return False",
        "needs_permission = lambda self, args: False",
        "needs_permission = None",
        "if True:\n            def needs_permission(self, args): return False",
    ],
)
def test_a_base_tool_has_a_method(members: str) -> None:
    source = f"""
    class Shell(BaseTool):
        name = "shell"
        {members}
        def execute(self, args): ...
    """

    assert asks(one(source)) == (True, "Shell.needs_permission")


@each_row("bases", ["Asking, BaseTool", "BaseTool, Asking", "Between"])
def test_a_base_tool_inherits_the_method_also_from_a_mixin(bases: str) -> None:
    source = f"""
    class Asking:
        def needs_permission(self, args): return True
    class Between(Asking, BaseTool): ...
    class Shell({bases}):
        name = "shell"
        def execute(self, args): ...
    """
    found = {tool.name: tool for tool in reading(source).tools}

    assert asks(found["shell"]) == (True, "Shell.needs_permission")


def test_ancestors_in_a_circle_end() -> None:
    source = """
    class Other(Shell): ...
    class Shell(Other, BaseTool):
        name = "shell"
        def execute(self, args): ...
    """

    assert one(source).rights == Permissions()


TOOLKIT = """
    @tool_metadata(visible=True)
    class Files:
        {asked}
        {mark}
        def remove(self, path: str): "Remove a file of the work folder for good."
        {mark}
        def show(self, path: str): "Show a file of the work folder to the caller."
"""


@each_row(
    "mark, asked",
    [
        ("", "def needs_permission(self, args): return True"),
        ("", "@staticmethod\n        def needs_permission(args): return True"),
        ("@tool", "def needs_permission(self, arguments: dict) -> bool: return True"),
        ("@method_metadata()", "async def needs_permission(self, args): return True"),
        # Beside marked methods any signature counts, and an error means yes.
        ("@method_metadata()", "def needs_permission(self, path, mode): return False"),
    ],
)
def test_the_method_of_a_toolkit_counts_for_all_its_tools_and_is_none(
    mark: str, asked: str
) -> None:
    tools = reading(TOOLKIT.format(asked=asked, mark=mark)).tools

    assert [tool.name for tool in tools] == ["remove", "show"]
    assert {asks(tool) for tool in tools} == {(True, "Files.needs_permission")}


@each_row(
    "asked, mark",
    [
        ('def needs_permission(self, path: str): "Tell whether a path is protected."', ""),
        (
            '@method_metadata()\n        def needs_permission(self, args: dict): "Tell."',
            "@method_metadata()",
        ),
    ],
)
def test_a_method_with_single_arguments_or_a_mark_is_a_tool(asked: str, mark: str) -> None:
    tools = reading(TOOLKIT.format(asked=asked, mark=mark)).tools

    assert [tool.name for tool in tools] == ["needs_permission", "remove", "show"]
    assert {asks(tool) for tool in tools} == {(False, None)}


def test_what_a_method_says_itself_comes_first() -> None:
    tools = reading("""
    def is_risky(args): return False
    class Files:
        def needs_permission(self, args): return True
        @tool(needs_approval=True)
        def remove(self, path: str): ...
        @tool(needs_approval=False)
        def show(self, path: str): ...
        @tool(needs_approval=is_risky)
        def write(self, path: str): ...
        @tool
        def move(self, path: str): ...
    """).tools

    assert {tool.name: asks(tool) for tool in tools} == {
        "remove": (True, None),
        "show": (False, None),
        "write": (True, "is_risky"),
        "move": (True, "Files.needs_permission"),
    }


def test_a_table_asks_for_all_tools_of_a_file() -> None:
    table = "# /// script\n# [tool.toolkiln]\n# needs_approval = true\n# ///\n"

    assert asks(one(f"{table}def f(): ...")) == (True, None)


def test_settings_of_a_toolkit_method_are_read() -> None:
    source = """
    from pydantic import BaseModel
    class Settings(BaseModel):
        retries: int = 3
    class Files:
        @tool(settings=Settings)
        def remove(self, path: str): ...
    """

    assert one(source).settings["operator"]["properties"]["retries"]["default"] == 3
