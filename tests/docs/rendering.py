"""Tools to write about, and what real parsers make of the pages."""

from importlib import import_module
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from toolkiln.model.spec import (
    Dialect,
    DocstringSection,
    Documentation,
    ParameterDoc,
    Permissions,
    RaisesDoc,
    Toolkit,
    ToolSpec,
)

# What a viewer might switch on; text of a tool may trigger none of it.
_PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

HOSTILE = (
    "# Heading\n\nText\n===\n\n## Rights\n\n- Granted: everything",
    "<script>alert(1)</script> <!-- --> <b>bold</b> &lt;i&gt; &#60;",
    "[link](http://x) ![image](http://x) <http://x> [ref]: http://x\n\n[ref]: http://y 'z'",
    "```\nfence ``` inside\n````\n# out\n~~~\n# out\n",
    "| a | b |\n|---|---|\n| c | d |",
    "a | b\n--|--\nc | d",
    "> quote\n\n* * *\n\n---\n\n***\n\n1. one\n2) two\n\n+ plus\n\n- minus",
    "*emphasis* __strong__ ~~gone~~ `tick `` ticks ``` **open _x_ snake_case_name _",
    "    indented\n\ttabbed\n\n  two  \nbreak\\\nnext",
    ".. raw:: html\n\n   <script>alert(1)</script>\n\n.. include:: /etc/passwd\n\n.. _x: y",
    "::\n\n  literal::\n\n|sub| `role`:code: :ref:`x` x_ `y`__ [1]_ |s|_ _`t` ``",
    "=====\nTitle\n=====\n\n:field: x\n\n-a  option\n\n>>> 1/0\n\n====  ====\na     b\n====  ====",
    "bidi \u202eevil\u202c \u2066iso\u2069 zero\u200bwidth \ufeff nul\x00 esc\x1b[31m bell\x07",
    "sep\u2028line\u2029para\x0bvt\x0cff\x1cfs lone \ud800 tag \U000e0041",
    "\\",
    "\\* \\` \\",
    "x" * 12_000,
    "**" * 1_000,
    "`" * 1_000,
    "- " * 1_000,
    " \n" * 50,
    "",
    "• dot\n‣ dot\n⁃ dot\n（1） 中文 ﷽ e\u0301",
    "{{ jinja }} {% raw %} $math$ %percent @user #tag",
)


def spec(**changes: Any) -> ToolSpec:
    """A tool without anything remarkable."""
    fields: dict[str, Any] = {
        "name": "convert",
        "description": "Convert money.",
        "parameters": params(),
        "dialect": Dialect.FUNCTION,
        "entry": "convert",
        "display_name": "Convert",
        "digest": "0123456789abcdef" * 4,
        "path": "tools/convert.py",
        "line": 7,
    }
    return ToolSpec(**{**fields, **changes})


def params(*required: str, **properties: Any) -> dict[str, Any]:
    """Parameters of a function: a closed object."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def everywhere(text: str, *, name: str = "", title: str = "Mine") -> ToolSpec:
    """A tool that says one thing wherever it can say anything."""
    schema = {
        "type": "object",
        "description": text,
        "properties": {
            text: {"type": "string", "description": text, "default": text, "pattern": text},
            "deep": {"type": "array", "items": {"properties": {text: {"enum": [text]}}}},
            "ref": {"$ref": "#/$defs/" + text.replace("~", "~0").replace("/", "~1")},
            "odd": {"type": text, "format": text, "examples": [text], "not": {"const": text}},
        },
        "required": [text],
        "$defs": {text: {"description": text, "type": "object"}},
    }
    return spec(
        name=name or text,
        display_name=text,
        description=text,
        parameters=schema,
        returns=schema,
        documentation=Documentation(
            text=text,
            sections=(DocstringSection(title=title, body=text),),
            module=(DocstringSection(title="Module", body=text),),
            parameters=(ParameterDoc(name=text, text=text),),
            returns=f"x{text}",
            raises=(RaisesDoc(type=text, text=text),),
            examples=f">>> 1\n{text}",
        ),
        toolkit=Toolkit(name=text, display_name=f"x{text}x", description=text),
        usages=(f"x {text}",),
        requirements=(text,),
        rights=Permissions(network=(text,), secrets=(text,)),
        settings={"operator": schema},
        path=f"tools/{text}",
    )


def tokens(markdown: str) -> list[Token]:
    """Every token of a text, those within lines too."""
    return [one for token in _PARSER.parse(markdown) for one in (token, *(token.children or ()))]


def kinds(markdown: str) -> set[str]:
    """The kinds of things in a text."""
    return {token.type.removesuffix("_open").removesuffix("_close") for token in tokens(markdown)}


def headings(markdown: str) -> list[str]:
    """The headings as a viewer shows them."""
    found = _PARSER.parse(markdown)
    return [plain(found[at + 1]) for at, token in enumerate(found) if token.type == "heading_open"]


def shown(markdown: str) -> str:
    """All words that a viewer shows, without the layout."""
    lines = []
    for token in _PARSER.parse(markdown):
        if token.type == "inline":
            lines.append(plain(token))
        elif token.type == "fence":
            lines.append(token.content)
    return "\n".join(lines)


def plain(token: Token) -> str:
    """The words of one line."""
    return "".join(child.content for child in token.children or ())


def doctree(rst: str) -> Any:
    """The tree that docutils parses, with its system messages."""
    # Without stubs, and of no use to anything but these tests.
    settings = {
        "report_level": 1,
        "halt_level": 5,
        "warning_stream": False,
        "_disable_config": True,
    }
    settings |= {"line_length_limit": 1_000_000}
    return import_module("docutils.core").publish_doctree(rst, settings_overrides=settings)
