"""All nodes of a syntax tree in one list, several times faster than `ast.walk`.

Every check of a file goes over the same nodes, so the tree is walked once and the list
handed around. Operators and expression contexts, which no check looks for, are left out.
The list goes level by level, not in source order: sort by `lineno` what must be ordered.
"""

import ast
import re
from collections.abc import Iterator

_LEAVES = "identifier string int constant expr_context operator unaryop boolop cmpop"
_WITH_GAPS = ("keys", "kw_defaults")  # `{**a}` and `def f(*, a)` put None into these lists

_Fields = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def walk(tree: ast.AST) -> list[ast.AST]:
    """The tree's nodes, itself included, parents before children, in no other order."""
    nodes = [tree]
    append, extend, fields_of = nodes.append, nodes.extend, _FIELDS.get
    for node in nodes:
        fields = fields_of(node.__class__)
        if fields is None:
            continue
        for name in fields[0]:
            child = getattr(node, name)
            if child is not None:
                append(child)
        for name in fields[1]:
            children = getattr(node, name)
            if children:
                extend(children)
        for name in fields[2]:
            extend(child for child in getattr(node, name) if child is not None)
    return nodes


def _subclasses(cls: type[ast.AST]) -> Iterator[type[ast.AST]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _fields(cls: type[ast.AST]) -> _Fields:
    """The fields that hold one node, a list of nodes, a list with gaps.

    A node class carries its line of Python's grammar as docstring, such as
    `Call(expr func, expr* args, keyword* keywords)`, whatever the version.
    """
    grammar = re.fullmatch(rf"{cls.__name__}\((.+)\)", cls.__doc__ or "", re.DOTALL)
    pairs = [field.split() for field in grammar[1].split(",")] if grammar else []
    kept = [(kind, name) for kind, name in pairs if kind.rstrip("?*") not in _LEAVES.split()]
    return (
        tuple(name for kind, name in kept if not kind.endswith("*")),
        tuple(name for kind, name in kept if kind.endswith("*") and name not in _WITH_GAPS),
        tuple(name for kind, name in kept if kind.endswith("*") and name in _WITH_GAPS),
    )


_FIELDS = {cls: fields for cls in _subclasses(ast.AST) if any(fields := _fields(cls))}
