"""Whole tool modules, as hypothesis strategies: definitions, functions, imports, order.

The parts are written by `definitions` and `expressions`, put in order by `draft`.
Nothing here knows what schema ought to come out; `oracle` asks pydantic.
"""

from hypothesis import strategies as st

from .definitions import KINDS, define
from .draft import Draft, Named
from .expressions import annotation, default, field_arguments

_NAMES = ("Alpha", "Beta", "Gamma", "Delta")
_PARAMETERS = ("x", "y", "title", "size", "when")
_FORWARD = ("enum", "model", "dataclass", "typed_dict", "named_tuple")


@st.composite
def modules(draw: st.DrawFn) -> str:
    """The source of a module with a few definitions and one to three tools."""
    d = Draft(draw)
    d.lazy = d.rarely(3)
    plan = [(name, d.pick(KINDS)) for name in _NAMES[: d.count(0, len(_NAMES))]]
    for index, (name, kind) in enumerate(plan):
        rest = plan[index + 1 :]
        d.ahead = [Named(later, kind) for later, kind in rest if kind in _FORWARD]
        d.known.append(define(d, name, kind))
    d.ahead = []
    for number in range(d.count(1, 3)):
        _function(d, f"tool{number}")
    return d.source()


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """The source of a module that is one tool over types without definitions."""
    d = Draft(draw)
    _function(d, "tool")
    return d.source()


def _function(d: Draft, name: str) -> None:
    """One tool: parameters of all kinds, those without a default first."""
    required: list[str] = []
    optional: list[str] = []
    for parameter in d.some(_PARAMETERS, 1, 3):
        text = _parameter(d)
        (optional if " = " in text else required).append(f"{parameter}: {text}")
    parameters = [*required, *optional]
    layout = d.pick(("plain",) * 6 + ("keyword", "positional", "variadic", "keywords"))
    if layout == "keyword":
        parameters.insert(d.count(0, len(parameters) - 1), "*")
    elif layout == "positional":
        parameters.insert(d.count(1, len(parameters)), "/")
    elif layout == "variadic":
        parameters.append(f"*args: {annotation(d, 2).text}")
    elif layout == "keywords":
        parameters.append(f"**kwargs: {annotation(d, 2).text}")
    returns = f" -> {annotation(d, 3).text}" if not d.rarely(4) else ""
    prefix = "async " if d.rarely(8) else ""
    d.add(name, f"{prefix}def {name}({', '.join(parameters)}){returns}: ...")


def _parameter(d: Draft) -> str:
    type_ = annotation(d, 4)
    style = d.pick(("required", "required", "default", "default", "field"))
    if style == "required":
        return type_.text
    if style == "default":
        return f"{type_.text} = {default(d, type_)}"
    arguments = [default(d, type_), *field_arguments(d, type_.kind, odd=False)]
    return f"{type_.text} = {d.use('pydantic.Field')}({', '.join(arguments)})"
