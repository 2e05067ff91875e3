"""Calls in place of types: `constr(max_length=3)`, `conlist(int)`, `type(None)`."""

import ast
from typing import TYPE_CHECKING

from toolkiln.spec.annotations.fields import Metadata, read_field
from toolkiln.spec.annotations.shapes import Shape, Unresolved, array
from toolkiln.spec.modules import External, Scope, resolve

if TYPE_CHECKING:
    from toolkiln.spec.annotations.reader import TypeReader

_CONSTRAINED = {
    "pydantic.conint": "builtins.int",
    "pydantic.confloat": "builtins.float",
    "pydantic.constr": "builtins.str",
    "pydantic.conbytes": "builtins.bytes",
    "pydantic.condecimal": "decimal.Decimal",
    "pydantic.condate": "datetime.date",
    "pydantic.conlist": "list",
    "pydantic.conset": "set",
    "pydantic.confrozenset": "frozenset",
}


def call_shape(reader: "TypeReader", node: ast.Call, scope: Scope) -> Shape:
    """What a call in place of a type stands for."""
    target = resolve(node.func, scope)
    name = target.name if isinstance(target, External) else ""
    if name == "builtins.type" and len(node.args) == 1 and ast.unparse(node.args[0]) == "None":
        return Shape("none", {"type": "null"})
    base = _CONSTRAINED.get(name)
    if base is None:
        raise Unresolved(ast.unparse(node.func), "a call is not a type")
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    item = node.args[0] if node.args else keywords.get("item_type")
    if base in ("list", "set", "frozenset"):
        items = reader.render(item, scope) if item is not None else {}
        shape = array(items, base, unique=base != "list")
    else:
        shape = reader.external(base)
    metadata = Metadata()
    call = ast.Call(func=node.func, args=[], keywords=node.keywords)
    read_field(call, scope, metadata)
    metadata.updates.clear()
    reader.note_unknown(metadata, node, scope)
    return reader.apply(metadata, shape)
