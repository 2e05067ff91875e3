"""agno toolkits: the methods that the constructor of a `Toolkit` registers.

The constructor is followed with the defaults of its parameters, not run: assignments, lists,
conditions, calls of the class's own methods. What depends on the outside counts as true, and a
method that the defaults leave out is reported.
"""

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolkiln.model.spec import Dialect, Toolkit
from toolkiln.spec import syntax
from toolkiln.spec.annotations.evaluator import try_evaluate
from toolkiln.spec.class_attributes import ancestry, method_of
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.functions import agno_parameters, decorator_options
from toolkiln.spec.findings import Findings
from toolkiln.spec.names import display_name
from toolkiln.spec.namespace import ClassRef, Function, Module, NameScope
from toolkiln.spec.options import bases, decorators, is_static
from toolkiln.spec.syntax import docstring

_UNKNOWN: Any = object()
_BASE_PARAMETERS = ("name", "tools", "async_tools", "instructions")
_MAX_DEPTH = 10


def is_toolkit(node: ast.ClassDef, scope: NameScope) -> bool:
    """Return whether a class extends agno's `Toolkit`, or one of agno's toolkits."""
    return bool(ancestry(ClassRef(node, scope), _is_base))


def _is_base(name: str, origin: str) -> bool:
    return name == "Toolkit" or origin.startswith("agno.tools.")


def toolkits(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the tools that the toolkits of a file register."""
    scope = NameScope(module)
    extended = {base.name for node in module.classes for base in bases(node, scope)}
    for node in module.classes:
        chain = ancestry(ClassRef(node, scope), _is_base)
        if not chain or node.name in extended:
            continue
        construction = _Construction(chain)
        construction.run()
        if construction.has_unknown_tools:
            message = f"the tools of {node.name} are not known before the code runs"
            fix = "pass a list of the class's methods to super().__init__(tools=[…])"
            findings.warn("unknown-value", message, node.lineno, fix)
        for name, condition in construction.left_out.items():
            if name not in construction.tools:
                message = f"{name!r} is not a tool: {node.name} leaves it out by default"
                fix = f"change the default of its constructor: {condition}"
                findings.note("not-offered", message, node.lineno, fix)
        yield from _declarations(chain, construction, findings)


def _declarations(
    chain: list[ClassRef], construction: "_Construction", findings: Findings
) -> Iterator[Declaration]:
    node, scope = chain[0].node, chain[0].scope
    text = inspect.cleandoc(docstring(node) or "")
    toolkit = Toolkit(
        name=node.name,
        display_name=display_name(node.name),
        description=text or construction.instructions or f"{node.name} functionality",
        visible=True,
    )
    constructor = method_of(chain, "__init__")
    for name, member in construction.tools.items():
        found = method_of(chain, member.name) if member.is_method else None
        function = found[0] if found else scope.module.bindings.get(member.name)
        if not isinstance(function, Function):
            continue
        body_scope = found[1].body_scope if found else scope
        decorator = next((d for d in decorators(function, body_scope) if d.name == "tool"), None)
        options = decorator_options(decorator, body_scope, findings, member.name)
        tool = name if name != member.name else options.get("name") or name
        if name in construction.confirmed:
            options["needs_approval"] = True
        yield Declaration(
            dialect=Dialect.TOOLKIT,
            name=str(tool),
            entry=f"{node.name}.{member.name}" if found else member.name,
            scope=body_scope,
            function=function,
            injected_names=agno_parameters(function),
            description=options.get("description"),
            options=options,
            is_method=found is not None and not is_static(function),
            toolkit=toolkit,
            constructor=(constructor[0], constructor[1].scope) if constructor else None,
        )


class _Member(NamedTuple):
    """A method of the class, or a function of the module."""

    name: str
    is_method: bool = True


@dataclass
class _Locals:
    names: dict[str, Any]
    scope: NameScope
    level: int
    """Position in the ancestry of the class whose method runs."""


@dataclass
class _Construction:
    """What the constructor of a toolkit does with the defaults of its parameters."""

    chain: list[ClassRef]
    tools: dict[str, _Member] = field(default_factory=dict)
    """By the name that it is registered under."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Conditions that are false by default, by the methods that they would register."""
    confirmed: set[str] = field(default_factory=set)
    has_unknown_tools: bool = False
    instructions: str = ""
    _attributes: dict[str, Any] = field(default_factory=dict)
    _condition: str = ""
    """The false condition of the branch that is being followed; it changes nothing."""
    _depth: int = 0

    def run(self) -> None:
        """Follow the constructor."""
        self._construct(0, (), {})

    def _construct(self, level: int, values: Sequence[Any], named: dict[str, Any]) -> None:
        if level >= len(self.chain):
            self._construct_base(dict(zip(_BASE_PARAMETERS, values, strict=False)) | named)
            return
        node = self.chain[level].node
        found = next((m for m in node.body if getattr(m, "name", "") == "__init__"), None)
        if isinstance(found, ast.FunctionDef):
            self._enter(found, level, values, named)
        else:
            self._construct(level + 1, values, named)

    def _construct_base(self, arguments: dict[str, Any]) -> None:
        instructions = arguments.get("instructions")
        self.instructions = instructions if isinstance(instructions, str) else ""
        if arguments.get("auto_register") is False:
            self._attributes["tools"] = arguments.get("tools")
            return
        tools = arguments.get("tools")
        self.has_unknown_tools = tools is _UNKNOWN or _UNKNOWN in _items(tools)
        self._register(tools)
        for pair in _items(arguments.get("async_tools")):
            if isinstance(pair, list) and len(pair) == 2 and pair[1] not in self.tools:
                self._register(pair[0], pair[1])
        included, excluded = (_items(arguments.get(f"{w}clude_tools")) for w in ("in", "ex"))
        for name in list(self.tools):
            if name in excluded or (included and name not in included):
                self.left_out[name] = "include_tools, exclude_tools"
                del self.tools[name]
        confirmed = _items(arguments.get("requires_confirmation_tools"))
        self.confirmed |= {name for name in confirmed if isinstance(name, str)}

    def _register(self, value: Any, name: Any = None) -> None:
        for member in [value] if isinstance(value, _Member) else _items(value):
            if not isinstance(member, _Member):
                continue
            if self._condition:
                self.left_out.setdefault(member.name, self._condition)
            else:
                self.tools[name if isinstance(name, str) else member.name] = member

    def _enter(
        self, function: Function, level: int, values: Sequence[Any], named: dict[str, Any]
    ) -> None:
        if self._depth >= _MAX_DEPTH:
            return
        scope = self.chain[level].scope
        names: dict[str, Any] = {}
        frame = _Locals(names, scope, level)
        parameters = syntax.parameters(function.args)
        for parameter, default in parameters:
            names[parameter.arg] = _UNKNOWN if default is None else self._value(default, frame)
        own = [parameter.arg for parameter, _ in parameters if parameter.arg != "self"]
        names |= dict(zip(own, values, strict=False))
        names |= {name: value for name, value in named.items() if name in own}
        if function.args.kwarg:
            names[function.args.kwarg.arg] = {k: v for k, v in named.items() if k not in own}
        self._depth += 1
        self._follow(function.body, frame)
        self._depth -= 1

    def _follow(self, body: Sequence[ast.stmt], frame: _Locals) -> bool:
        """Follow statements; return whether they end the function."""
        return any(self._follow_one(node, frame) for node in body)

    def _follow_one(self, node: ast.stmt, frame: _Locals) -> bool:
        frame.scope.module.budget.spend()
        match node:
            case ast.Return():  # what raises for want of a key has not got one yet
                return True
            case ast.Expr(value=ast.Call() as call):
                self._call(call, frame)
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, self._value(value, frame), frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], self._value(value, frame), frame)
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                self._add(self._value(target, frame), self._value(value, frame), frame)
            case ast.If():
                return self._branch(node, frame)
            case ast.For(target=target, iter=iterable):
                for item in _items(self._value(iterable, frame)):
                    self._assign([target], item, frame)
                    self._follow(node.body, frame)
            case ast.With() | ast.AsyncWith():
                return self._follow(node.body, frame)
            case ast.Try():
                return self._follow([*node.body, *node.orelse, *node.finalbody], frame)
        return False

    def _branch(self, node: ast.If, frame: _Locals) -> bool:
        value = self._value(node.test, frame)
        if value is _UNKNOWN:
            self._follow(node.body, frame)
            self._follow(node.orelse, frame)
            return False
        if value:
            return self._follow(node.body, frame)
        before = self._condition
        self._condition = before or ast.unparse(node.test)
        self._follow(node.body, frame)
        self._condition = before
        return self._follow(node.orelse, frame)

    def _assign(self, targets: Sequence[ast.expr], value: Any, frame: _Locals) -> None:
        if self._condition:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                frame.names[target.id] = value
            elif isinstance(target, ast.Attribute) and _is_name(target.value, "self"):
                self._attributes[target.attr] = value
            elif isinstance(target, ast.Tuple) and isinstance(value, list):
                for element, item in zip(target.elts, value, strict=False):
                    self._assign([element], item, frame)

    def _add(self, values: Any, more: Any, frame: _Locals) -> None:
        """Extend a list, or report what a branch that is not taken would add."""
        if not isinstance(values, list):
            return
        if self._condition:
            for item in _items(more):
                self._register(item)
                self._register(_items(item))  # [("name", self.method)]
        else:
            added = _items(more)
            frame.scope.module.budget.spend(len(added))
            values.extend(added)

    def _call(self, call: ast.Call, frame: _Locals) -> None:
        function = call.func
        if not isinstance(function, ast.Attribute):
            return
        owner, name = function.value, function.attr
        values = [self._value(argument, frame) for argument in call.args]
        named: dict[str, Any] = {}
        for keyword in call.keywords:
            value = self._value(keyword.value, frame)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named |= value
        if name == "__init__" and not self._condition:
            is_super = isinstance(owner, ast.Call)
            self._construct(frame.level + 1, values if is_super else values[1:], named)
        elif _is_name(owner, "self") and name == "register":
            listed = [*values, named.get("function")]
            self._register(listed[0], named.get("name", listed[1] if len(values) > 1 else None))
        elif _is_name(owner, "self") and name == "_register_tools":
            if (found := method_of(self.chain, name)) is None:
                self._register(self._attributes.get("tools"))
            else:
                self._enter(found[0], self.chain.index(found[1]), values, named)
        elif _is_name(owner, "self") and (found := method_of(self.chain, name)):
            self._enter(found[0], self.chain.index(found[1]), values, named)
        elif name in ("append", "insert") and values:
            self._add(self._value(owner, frame), [values[-1]], frame)
        elif name == "extend" and values:
            self._add(self._value(owner, frame), values[0], frame)

    def _value(self, node: ast.expr, frame: _Locals) -> Any:
        frame.scope.module.budget.spend()
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in frame.names:
                return frame.names[name]
            case ast.Name(id=name) if isinstance(frame.scope.module.bindings.get(name), Function):
                return _Member(name, is_method=False)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                if name in self._attributes:
                    return self._attributes[name]
                return _Member(name) if method_of(self.chain, name) else _UNKNOWN
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                values: list[Any] = []
                for element in elements:
                    if isinstance(element, ast.Starred):
                        self._add(values, self._value(element.value, frame), frame)
                    else:
                        values.append(self._value(element, frame))
                return values
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self._value(left, frame), self._value(right, frame)
                is_known = type(first) is type(second) and isinstance(first, list | str)
                if not is_known:
                    return _UNKNOWN
                frame.scope.module.budget.spend(len(first) + len(second))
                return first + second
            case ast.ListComp(elt=element, generators=[generator]) if not generator.ifs:
                listed = []
                for item in _items(self._value(generator.iter, frame)):
                    self._assign([generator.target], item, frame)
                    listed.append(self._value(element, frame))
                return listed
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="self"), name_node]):
                name = self._value(name_node, frame)
                is_method = isinstance(name, str) and method_of(self.chain, name)
                return _Member(name) if is_method else _UNKNOWN
            case ast.IfExp(test=test, body=body, orelse=orelse):
                value = self._value(test, frame)
                return self._value(orelse if value is not _UNKNOWN and not value else body, frame)
            case ast.BoolOp(op=operator, values=operands):
                return self._combined(operator, operands, frame)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self._value(operand, frame)
                return _UNKNOWN if value is _UNKNOWN else not value
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._compared(left, operator, right, frame)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "bool"), args=[argument]):
                return self._value(argument, frame)
            case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop"), args=[key, *rest]):
                values_by_name, name = self._value(owner, frame), self._value(key, frame)
                if isinstance(values_by_name, dict) and isinstance(name, str):
                    default = self._value(rest[0], frame) if rest else None
                    return values_by_name.get(name, default)
                return _UNKNOWN
        return try_evaluate(node, frame.scope, default=_UNKNOWN)

    def _combined(self, operator: ast.boolop, operands: Sequence[ast.expr], frame: _Locals) -> Any:
        """Return the first operand that decides, unknown ones left aside."""
        decides = isinstance(operator, ast.Or)
        values = [self._value(operand, frame) for operand in operands]
        for value in values:
            if value is not _UNKNOWN and bool(value) is decides:
                return value
        return _UNKNOWN if _UNKNOWN in values else values[-1]

    def _compared(
        self, left: ast.expr, operator: ast.cmpop, right: ast.expr, frame: _Locals
    ) -> Any:
        first, second = self._value(left, frame), self._value(right, frame)
        if _UNKNOWN in (first, second):
            return _UNKNOWN
        match operator:
            case ast.Is() | ast.Eq():
                return first == second
            case ast.IsNot() | ast.NotEq():
                return first != second
            case ast.In() if isinstance(second, list):
                return first in second
            case ast.NotIn() if isinstance(second, list):
                return first not in second
        return _UNKNOWN


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) and not isinstance(value, _Member) else []


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
