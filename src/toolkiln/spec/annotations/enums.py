"""The members of enums, with the values they have at run time.

Read from the class body or from a functional call: mixins convert, `auto()` counts, and
what comes out of code is `values.Unknown`. Mutually recursive with `values`, which needs
members where a default names one.
"""

import ast
import enum
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from toolkiln.spec.annotations import values
from toolkiln.spec.modules import AliasRef, ClassRef, External, Resolved, Scope, resolve
from toolkiln.spec.work import MAX_VALUES


class EnumKind(NamedTuple):
    """How an enum makes values: its mixin and its rule for `auto()`."""

    mixin: type | None
    auto: str
    """`count`, `flag`, `name`, `lower` or `unknown`."""


_BASES = {
    "enum.Enum": EnumKind(None, "count"),
    "enum.ReprEnum": EnumKind(None, "count"),
    "enum.IntEnum": EnumKind(int, "count"),
    "enum.StrEnum": EnumKind(str, "lower"),
    "enum.Flag": EnumKind(None, "flag"),
    "enum.IntFlag": EnumKind(int, "flag"),
}
_AUTO_RULES: dict[str, Callable[[str, int, int, list[Any]], Any]] = {
    "count": enum.Enum._generate_next_value_,
    "flag": enum.Flag._generate_next_value_,
    "lower": enum.StrEnum._generate_next_value_,
}
"""This interpreter's own, because versions differ in what follows a smaller number."""
_MIXINS: dict[str, type] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
}


def is_enum(reference: ClassRef) -> bool:
    """Whether the class is an enum, wherever its values come from."""
    return _base_kind(reference) is not None


def members(reference: ClassRef) -> dict[str, Any] | None:
    """The values of an enum's members by name, aliases too; None if the class is no enum.

    Raises:
        Unknown: a value comes from code.
    """
    known = reference.scope.module.enum_members
    if reference.node not in known:
        known[reference.node] = _members(reference)
    return known[reference.node]


def _members(reference: ClassRef) -> dict[str, Any] | None:
    kind = _base_kind(reference)
    if kind is None:
        return None
    kind = kind._replace(auto=_own_auto_rule(reference.node) or kind.auto)
    scope = reference.body_scope
    raw: dict[str, Any] = {}
    """Values before the mixin, which is what `auto()` counts on."""
    found: dict[str, Any] = {}
    ignored = _ignored(reference)
    for node in reference.node.body:
        scope.module.work.spend()
        for name, expression in _assignments(node):
            if name not in ignored:
                raw[name] = _raw_value(name, expression, raw, scope, kind)
                found[name] = _mixed(raw[name], kind)
                _check_size(raw)
    return found


def functional_members(call: ast.Call, scope: Scope) -> dict[str, Any] | None:
    """The members of `Enum("Color", "RED GREEN")`, or None if the call makes no enum.

    Raises:
        Unknown: the members come from code.
    """
    target = resolve(call.func, scope)
    if not isinstance(target, External) or target.name not in _BASES or len(call.args) != 2:
        return None
    keywords = {k.arg: k.value for k in call.keywords}
    kind = _BASES[target.name]
    if "type" in keywords:
        mixin = resolve(keywords["type"], scope)
        kind = kind._replace(mixin=_MIXINS.get(getattr(mixin, "name", "")))
    start = values.evaluate(keywords["start"], scope) if "start" in keywords else 1
    given = values.evaluate(call.args[1], scope)
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    if isinstance(given, dict):
        given = list(given.items())
    raw: dict[str, Any] = {}
    for item in given:
        name, value = item if isinstance(item, tuple | list) else (item, None)
        raw[name] = _next_value(name, raw, kind, start) if value is None else value
        _check_size(raw)
    return {name: _mixed(value, kind) for name, value in raw.items()}


def member(node: ast.Attribute, scope: Scope) -> tuple[Any] | None:
    """The value of `Color.RED`, `Color.RED.value` or `Color.RED.name`, in a tuple."""
    if node.attr in ("value", "name") and isinstance(node.value, ast.Attribute):
        inner = member(node.value, scope)
        if inner is not None:
            return inner if node.attr == "value" else (node.value.attr,)
    found = _members_of(resolve(node.value, scope))
    return (found[node.attr],) if found is not None and node.attr in found else None


def member_by_key(owner: ast.expr, index: ast.expr, scope: Scope) -> tuple[Any] | None:
    """The value of `Color["RED"]`, in a tuple."""
    if not isinstance(owner, ast.Name | ast.Attribute) or not isinstance(index, ast.Constant):
        return None
    found = _members_of(resolve(owner, scope))
    return (found[index.value],) if found is not None and index.value in found else None


def member_by_value(reference: ClassRef, value: Any) -> Any:
    """The value of `Color("red")`, which is its own."""
    if value in (members(reference) or {}).values():
        return value
    raise values.Unknown(reference.node.name)


def _check_size(raw: dict[str, Any]) -> None:
    if len(raw) > MAX_VALUES:
        raise values.Unknown(f"it has more than {MAX_VALUES:,} members")


def _members_of(owner: Resolved | None) -> dict[str, Any] | None:
    if isinstance(owner, ClassRef):
        return members(owner)
    if isinstance(owner, AliasRef) and isinstance(owner.assigned.value, ast.Call):
        return functional_members(owner.assigned.value, owner.scope)
    return None


def _base_kind(reference: ClassRef, depth: int = 0) -> EnumKind | None:
    kind: EnumKind | None = None
    mixin: type | None = None
    for base in reference.node.bases:
        target = resolve(base, reference.scope)
        if isinstance(target, External):
            kind = _BASES.get(target.name, kind)
            mixin = _MIXINS.get(target.name, mixin)
        elif isinstance(target, ClassRef) and depth < 20:
            inherited = _base_kind(target, depth + 1)
            if inherited is not None:
                rule = _own_auto_rule(target.node) or inherited.auto
                kind = inherited._replace(auto=rule)
    return kind and kind._replace(mixin=mixin or kind.mixin)


def _assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield from _public(target.id, node.value)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for item, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(item, ast.Name):
                        yield from _public(item.id, value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield from _public(node.target.id, node.value)


def _public(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The assignment, unless `enum` takes the name for its own or for private."""
    is_sunder = name.startswith("_") and name.endswith("_")
    if not is_sunder and not name.startswith("__") and not isinstance(value, ast.Lambda):
        yield name, value


def _ignored(reference: ClassRef) -> set[str]:
    names: Any = ()
    for node in reference.node.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ignore_":
            names = values.evaluate(node.value, reference.scope)
    return set(names.replace(",", " ").split() if isinstance(names, str) else names)


def _raw_value(name: str, node: ast.expr, raw: dict[str, Any], scope: Scope, kind: EnumKind) -> Any:
    if isinstance(node, ast.Name) and node.id in raw:
        return raw[node.id]
    if isinstance(node, ast.Call):
        target = resolve(node.func, scope)
        made = target.name if isinstance(target, External) else ""
        if made == "enum.auto":
            return _next_value(name, raw, kind, 1)
        if made == "enum.member" and len(node.args) == 1:
            return values.evaluate(node.args[0], scope)
    return values.evaluate(node, scope)


def _mixed(value: Any, kind: EnumKind) -> Any:
    if kind.mixin is None or isinstance(value, kind.mixin):
        return value
    try:
        return kind.mixin(*value) if isinstance(value, tuple) else kind.mixin(value)
    except (TypeError, ValueError) as error:
        raise values.Unknown(str(error)) from error


def _next_value(name: str, raw: dict[str, Any], kind: EnumKind, start: int) -> Any:
    if kind.auto == "name":
        return name
    rule = _AUTO_RULES.get(kind.auto)
    if rule is None:
        raise values.Unknown("_generate_next_value_")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rule(name, start, len(raw), list(raw.values()))
    except (TypeError, ValueError) as error:
        raise values.Unknown(str(error)) from error


def _own_auto_rule(node: ast.ClassDef) -> str | None:
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            if method.name == "__new__":
                raise values.Unknown("__new__")
            if method.name == "_generate_next_value_":
                return _rule(method)
    return None


def _rule(method: ast.FunctionDef) -> str:
    last = method.body[-1]
    returned = ast.unparse(last.value) if isinstance(last, ast.Return) and last.value else ""
    first = method.args.args[0].arg if method.args.args else ""
    return {first: "name", f"{first}.lower()": "lower"}.get(returned, "unknown")
