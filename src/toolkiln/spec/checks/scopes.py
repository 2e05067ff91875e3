"""Which uses of a builtin's name mean the builtin: Python's scoping, for a few names only.

A file that defines its own `open` does not open files, but a method of that name hides
nothing, and a parameter hides it in its own function alone. Flow is not followed: a name
counts as hidden in the whole scope that binds it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from toolkiln.spec.nodes import walk

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Scope: TypeAlias = _Function | _Comprehension | ast.ClassDef


class Shadows:
    """Tells hidden builtins from real ones, in one file."""

    def __init__(self, nodes: Sequence[ast.AST], builtins: frozenset[str]) -> None:
        binders = [node for node in nodes if node.__class__ in _BINDERS]
        self._bound = {name for node in binders for name in _binds(node) if name in builtins}
        self._owners: dict[int, _Scope] = {}
        self._names: defaultdict[_Scope | None, set[str]] = defaultdict(set)
        if self._bound:
            self._read(nodes)

    def hide(self, node: ast.Name) -> bool:
        """Whether the name means something other than the builtin where it stands."""
        if node.id not in self._bound:
            return False
        innermost = scope = self._owners.get(id(node))
        while scope is not None:
            visible = scope is innermost or not isinstance(scope, ast.ClassDef)
            if visible and node.id in self._names[scope]:
                return True
            scope = self._owners.get(id(scope))
        return node.id in self._names[None]

    def _read(self, nodes: Sequence[ast.AST]) -> None:
        for scope in nodes:  # outer ones come first, so that the innermost has the last word
            if isinstance(scope, _Scope):
                for part in _inside(scope):
                    self._owners.update((id(node), scope) for node in walk(part))
        kept = _kept_as_they_are(nodes)
        for node in nodes:
            if id(node) not in kept:
                self._names[self._owners.get(id(node))].update(_binds(node))
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
                self._names[self._owners.get(id(node))].discard(node.id)


_BINDERS = frozenset(
    {
        *(ast.Name, ast.arg, ast.alias, ast.ExceptHandler, ast.MatchAs),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    }
)


def _binds(node: ast.AST) -> Iterable[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            return (name,)
        case ast.Name():
            return ()
        case ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.partition(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return (name,)
    return ()


def _kept_as_they_are(nodes: Sequence[ast.AST]) -> set[int]:
    """Targets of `open = open`, which hides nothing."""
    return {
        id(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == node.value.id
    }


def _inside(scope: _Scope) -> Iterator[ast.AST]:
    """The parts of a scope that see its names: defaults and decorators do not."""
    if isinstance(scope, _Comprehension):
        yield from walk(scope)[1:]
        return
    if isinstance(scope, _Function):
        arguments = scope.args
        yield from arguments.posonlyargs + arguments.args + arguments.kwonlyargs
        yield from filter(None, (arguments.vararg, arguments.kwarg))
    if isinstance(scope, ast.Lambda):
        yield scope.body
    else:
        yield from scope.body
