"""`BaseTool` subclasses: attributes or properties, `execute(args)`, semantic types."""

from reading import findings, names, one, reading, rules

from tables import each_row
from toolkiln.model.spec import Dialect

SHELL = '''
from agents.base import BaseTool, ToolResult, SemanticType

class ShellTool(BaseTool):
    """Docs of the class."""

    name = "shell"
    description = "Run a command."
    parameters = {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    }
    output_semantic_type = SemanticType.EXECUTION_RESULT
    stdout_semantic_type = "file_view"
    stderr_semantic_type = SemanticType.ERROR

    def needs_permission(self, args): return "rm" in args["command"]

    def validate_args(self, args): return True, ""

    async def execute(self, args: dict) -> ToolResult: ...
'''


def test_a_subclass_with_execute_is_a_tool() -> None:
    tool = one(SHELL)

    assert tool.dialect is Dialect.BASE_TOOL
    assert (tool.name, tool.entry) == ("shell", "ShellTool.execute")
    assert tool.description == "Run a command."
    assert tool.parameters["properties"] == {"command": {"type": "string"}}
    assert (tool.output_kind, tool.stdout_kind) == ("execution_result", "file_view")
    assert tool.stderr_kind == "error"
    assert tool.rights.needs_approval
    assert (tool.display_name, tool.is_async) == ("Shell", True)


def test_attributes_may_be_properties() -> None:
    tool = one(
        '''
        class A(BaseTool):
            @property
            def description(self) -> str:
                """The description."""
                return (
                    "Run a "
                    "command."
                )
            @property
            def parameters(self) -> dict:
                return {"type": "object", "properties": {"x": {"type": "string"}}}
            @property
            def output_semantic_type(self):
                return SemanticType.FILE
            def execute(self, args): ...
        '''
    )

    assert (tool.description, tool.output_kind) == ("Run a command.", "file")
    assert tool.parameters["properties"] == {"x": {"type": "string"}}


@each_row(
    "attribute",
    [
        'name: str = "shell"',
        'name: ClassVar[str] = "shell"',
        "name = NAME",
        'name = f"{NAME}"',
        'name = other = "shell"',
        "@property\n    def name(self): return NAME",
        "@functools.cached_property\n    def name(self): return NAME",
        "_N = 'shell'\n    name = _N",
        "_N = 'shell'\n    @property\n    def name(self): return self._N",
        "def __init__(self):\n        self.name = 'shell'",
    ],
)
def test_the_name_is_found_however_it_is_written(attribute: str) -> None:
    source = f"""
NAME = "shell"
class A(BaseTool):
    {attribute}
    def execute(self, args): ...
"""

    assert one(source).name == "shell"


@each_row(
    "base",
    [
        "from toolkiln import BaseTool\nclass A(BaseTool):",
        "import toolkiln\nclass A(toolkiln.BaseTool):",
        "from toolkiln import BaseTool as B\nclass A(B):",
        "from a.b.c import BaseTool\nclass A(BaseTool):",
        "from . import base\nclass A(base.BaseTool):",
        "class A(Mixin, BaseTool):",
        "class A(BaseTool[Args]):",
        "class A(BaseTool, metaclass=Meta):",
        "class BaseTool: ...\nclass A(BaseTool):",
        "from abc import ABC\nclass BaseTool(ABC):\n    name = ''\n"
        "    def execute(self, args): ...\n"
        "class A(BaseTool):",
    ],
)
def test_a_base_class_counts_by_its_name(base: str) -> None:
    assert names(f"{base}\n    name = 'a'\n    def execute(self, args): ...") == ["a"]


def test_a_name_that_cannot_be_known_is_reported_and_made_from_the_class() -> None:
    source = """
    class WebSearchTool(BaseTool):
        @property
        def name(self):
            return compute()
        def execute(self, args): ...
    """

    assert one(source).name == "web_search"
    assert [item.line for item in findings(source, "unknown-value")] == [5]


def test_what_a_base_class_says_is_inherited() -> None:
    source = """
    class Base(BaseTool):
        description = "From the base."
        parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
        def needs_permission(self, args): return True
    class Middle(Base):
        output_semantic_type = "status"
    class Leaf(Middle):
        name = "leaf"
        def execute(self, args): ...
    """

    tool = one(source)

    assert (tool.name, tool.description) == ("leaf", "From the base.")
    assert tool.parameters["properties"] == {"x": {"type": "integer"}}
    assert tool.rights.needs_approval
    assert tool.output_kind == "status"
    assert "missing-execute" not in rules(source)


def test_execute_may_be_inherited() -> None:
    source = """
    class Base(BaseTool):
        name = "base"
        def execute(self, args): ...
    class Leaf(Base):
        name = "leaf"
    """

    assert "leaf" in names(source)
    assert "missing-execute" not in rules(source)


def test_a_subclass_without_execute_is_an_error() -> None:
    result = reading("\nclass A(BaseTool):\n    name = 'a'\n")

    assert result.tools == ()
    assert [(item.rule, item.line) for item in result.findings] == [("missing-execute", 2)]


GOOGLE = """
        Args:
            path (str): The path.
            limit (int, optional): How many. Defaults to 10.
            tags (list[str]): The tags.
"""
NUMPY = """
        Parameters
        ----------
        path : str
            The path.
        limit : int, optional
            How many. Defaults to 10.
        tags : list[str]
            The tags.
"""
SPHINX = """
        :param str path: The path.
        :param limit: How many. Defaults to 10.
        :type limit: int, optional
        :param tags: The tags.
        :type tags: list[str]
"""


@each_row("listed", [GOOGLE, NUMPY, SPHINX])
@each_row("on_class", [True, False])
def test_without_parameters_the_docstring_lists_the_arguments(listed: str, on_class: bool) -> None:
    docstring = f'"""Do it.\n{listed}        """'
    on_execute = "" if on_class else docstring
    tool = one(
        f"""
class A(BaseTool):
        {docstring if on_class else '"Do it."'}
        name = "a"
        def execute(self, args):
                {on_execute.replace("        ", "                ") or "..."}
"""
    )

    assert tool.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The path."},
            "limit": {
                "type": "integer", "default": 10, "description": "How many. Defaults to 10."
            },
            "tags": {"type": "array", "items": {"type": "string"}, "description": "The tags."},
        },
        "required": ["path", "tags"],
        "additionalProperties": False,
    }  # fmt: skip


def test_without_any_argument_list_anything_goes_in_an_object() -> None:
    tool = one("class A(BaseTool):\n    def execute(self, args): ...")

    assert tool.parameters["type"] == "object"
    assert tool.parameters["properties"] == {}


def test_an_argument_list_that_only_names_the_dict_is_not_the_schema() -> None:
    tool = one(
        f'''
class A(BaseTool):
        """Do it.\n{GOOGLE}        """
        def execute(self, args: dict) -> ToolResult:
                """Run it.

                Args:
                    args: The arguments.
                """
'''
    )

    assert list(tool.parameters["properties"]) == ["path", "limit", "tags"]


def test_the_dict_may_list_its_keys() -> None:
    tool = one(
        '''
class A(BaseTool):
    """Do it."""
    def execute(self, args: dict) -> ToolResult:
        """
        Do it.

        **Args:**
            args: Tool arguments dictionary
                - edits (list, required): List of edits, each with:
                  - path (str, required): The file.
                  - all (bool, optional): Replace all. Default: False.
                - -A (int, optional): Number of lines
                  after each match.

        **Returns:**
            Nothing.
        """
        '''
    )

    assert tool.parameters["required"] == ["edits"]
    assert tool.parameters["properties"] == {
        "edits": {
            "type": "array",
            "items": {},
            "description": "List of edits, each with:\n- path (str, required): The file.\n"
            "- all (bool, optional): Replace all. Default: False.",
        },
        "-A": {"type": "integer", "description": "Number of lines\nafter each match."},
    }


@each_row(
    "declared, kinds",
    [
        ("", ("status", "status", "error")),
        ("output_semantic_type = OutputSemanticType.KNOWLEDGE_CONTENT",
         ("knowledge", "knowledge", "error")),
        ("output_semantic_type = 'file_content'", ("file", "file", "error")),
        ("output_semantic_type = Kind.FILE_VIEW_RESULT", ("file_view", "file_view", "error")),
        ("stdout_semantic_type = 'execution_result'", ("status", "execution_result", "error")),
        ("stdout_semantic_type = 'ERROR_MESSAGE'", ("status", "error", "error")),
        ("stderr_semantic_type = 'status_message'", ("status", "status", "status")),
    ],
)  # fmt: skip
def test_kinds_have_the_defaults_and_the_names_of_atloop(
    declared: str, kinds: tuple[str, ...]
) -> None:
    source = f"class A(BaseTool):\n    {declared}\n    def execute(self, args): ..."

    tool = one(source)

    assert (tool.output_kind, tool.stdout_kind, tool.stderr_kind) == kinds
    assert "bad-option" not in rules(source)


def test_a_semantic_type_that_does_not_exist_is_a_finding() -> None:
    source = """
    class A(BaseTool):
        stdout_semantic_type = "poem"
        def execute(self, args): ...
    """

    assert one(source).stdout_kind is None
    assert "bad-option" in rules(source)
