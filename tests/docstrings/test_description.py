"""The description of a tool for a model that has chosen it, made of its docstrings."""

from typing import Any

from tables import each_row
from toolkiln import BaseTool, ToolResult
from toolkiln.docstrings.description import class_docstring, describe
from toolkiln.docstrings.parser import Docstring


def shown(*titles: str) -> str:
    sections = tuple((title, f"({title})") for title in titles)
    return describe(Docstring(text="Do it.", sections=sections), "", {})


def test_parts_come_once_each_in_a_fixed_order() -> None:
    docstring = Docstring(
        text="Do it.",
        sections=(
            ("Key differences", "Faster than y."),
            ("See Also", "y"),
            ("When to use", "Often."),
            ("Use cases", "- one\n- two"),
            ("Warning", "It is slow."),
            ("Important", "**Never** twice."),
        ),
        parameters=(("a", "One of:\n- x\n- y"), ("b", "")),
        returns="What was done.",
        raises=(("OSError", "The disk is full."),),
        examples=">>> f()",
    )
    schema = {"a": {"description": "Not this."}, "c": {"description": "From the schema."}, "d": {}}

    assert describe(docstring, "Fallback.", schema) == (
        "Do it.\n\n"
        "⚠️ **Important**: Never twice.\n\n"
        "**Use cases**\n- one\n- two\n\n"
        "**Key differences**\nFaster than y.\n\n"
        "**Parameters**\n- a: One of:\n  - x\n  - y\n- b\n- c: From the schema.\n\n"
        "**Returns**\nWhat was done.\n\n"
        "**Errors**\n- OSError: The disk is full.\n\n"
        "**Examples**\n```\n>>> f()\n```"
    )


@each_row(
    "titles, kept",
    [
        (["Important", "⚠️ CRITICAL"], ["⚠️ CRITICAL"]),
        (["Warning", "Critical!"], ["Critical!"]),
        (["WARNING", "Important Note"], ["Important Note"]),
        (["WARNING"], ["WARNING"]),
        (["⚠️ Security warning!"], ["⚠️ Security warning!"]),
        (["Note", "Caution"], ["Caution"]),
        (["Notes"], ["Notes"]),
        (["When To Use"], ["When To Use"]),
        (["When to use this tool", "Use case"], ["Use case"]),
        (["Use this when"], ["Use this when"]),
        (["Usage notes", "Note"], ["Note", "Usage notes"]),
        (["Benefits", "Why use this tool"], ["Why use this tool"]),
        (["Benefits"], ["Benefits"]),
        (["Why use this instead"], ["Why use this instead"]),
        (["Why use edit_file instead of write_file"], ["Why use edit_file instead of write_file"]),
        (["Why use this instead", "Key differences"], ["Key differences"]),
        (["Difference from X"], ["Difference from X"]),
        (["Important differences", "Important"], ["Important", "Important differences"]),
        (["When NOT to use"], ["When NOT to use"]),
        (["When to use vs. grep"], ["When to use vs. grep"]),
        (["grep vs. find"], ["grep vs. find"]),
        (["Footnotes", "Reuse cases", "Unimportant", "Todo"], []),
    ],
)
def test_the_most_important_section_of_each_kind_is_shown(
    titles: list[str], kept: list[str]
) -> None:
    text = shown(*titles).replace("⚠️ **Important**: (", "(")

    bodies = [part.rpartition("\n")[2] for part in text.split("\n\n")[1:]]
    assert bodies == [f"({title})" for title in kept]


@each_row(
    "docstring, description, text",
    [
        (Docstring(), "Run it.", "Run it.\n\n*No detailed documentation available.*"),
        (Docstring(examples="f()"), "", "**Examples**\n```\nf()\n```"),
        (Docstring(text="Do it."), "Run it.", "Run it.\n\nDo it."),
        (Docstring(text="Run it. At once."), "Run it.", "Run it. At once."),
        (Docstring(text="Do it. " * 20), "Run it.", "Do it. " * 20),
        (
            Docstring(text="Do it.", examples="```python\nf()\n```"),
            "",
            "Do it.\n\n**Examples**\n```python\nf()\n```",
        ),
        (
            Docstring(text="Do it.", sections=(("Important notes", "- **Slow**\n- Loud"),)),
            "",
            "Do it.\n\n⚠️ **Important**:\n- Slow\n- Loud",
        ),
    ],
)
def test_a_text_is_never_missing(docstring: Docstring, description: str, text: str) -> None:
    assert describe(docstring, description, {}) == text


class Edit(BaseTool):
    """
    Replace text in a file.

    **⚠️ CRITICAL: Do not pass {name} patterns**: They are written
    as they are.

    **Why use edit instead of write:**
    - Smaller changes
    """

    name = "edit"
    description = "Edit a file."

    def execute(self, args: dict[str, Any]) -> ToolResult:
        """
        Edit the file.

        **Args:**
            args: Dictionary of arguments
                - path (str, required): File, relative
                  to the workspace.
                - all (bool, optional): Replace all. Default: False.

        **Returns:**
            The number of lines.

        **Examples:**
            edit(path="a.txt", all=True)

        **Note:** Slow for large files.
        """
        return ToolResult(ok=True)


def test_execute_completes_the_docstring_of_its_class() -> None:
    docstring = class_docstring(Edit.__doc__, Edit.execute.__doc__)

    assert [name for name, _ in docstring.parameters] == ["path", "all"]
    assert [title for title, _ in docstring.sections][-1] == "Note"
    assert Edit().get_detailed_description() == (
        "Replace text in a file.\n\n"
        "⚠️ **Important**: Do not pass {name} patterns: They are written\nas they are.\n\n"
        "**Why use edit instead of write**\n- Smaller changes\n\n"
        "**Parameters**\n- path: File, relative\n  to the workspace.\n"
        "- all: Replace all. Default: False.\n\n"
        "**Returns**\nThe number of lines.\n\n"
        '**Examples**\n```\nedit(path="a.txt", all=True)\n```'
    )
