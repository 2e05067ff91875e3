"""Pydantic's own answer: the schemas it derives when a generated module is really executed.

The one place in the tests that runs tool source in process, and only source that the
tests wrote themselves. It knows nothing of the static reader; `test_cases` and
`test_generated` put the two side by side. Comparable text is made by `normal`.
"""

import ast
import inspect
import itertools
import linecache
import re
import sys
import typing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import PydanticOmit, SchemaError

Schema = dict[str, Any]

_numbers = itertools.count()
_FUNCTIONS = (ast.AsyncFunctionDef, ast.FunctionDef)
_ADAPT = "def _adapt(_build, _subject): return _build(_subject)"

REFUSALS = (
    *(PydanticUserError, PydanticOmit, SchemaError, RuntimeError),
    *(TypeError, ValueError, NameError, AttributeError, LookupError, AssertionError),
)
"""What comes out of pydantic for a type that is none of its own, or is put together wrongly."""


class RefusedError(Exception):
    """The module does not even run: pydantic refuses one of its classes."""


@dataclass(frozen=True)
class Expected:
    """What pydantic makes of one function; None where it refuses."""

    name: str
    parameters: Schema | None
    returns: Schema | None
    refusal: str = ""


def ask(source: str) -> list[Expected]:
    """The schemas of every public function that the source defines at top level.

    Raises:
        RefusedError: if executing the source fails.
    """
    nodes = [node for node in ast.parse(source).body if isinstance(node, _FUNCTIONS)]
    names = dict.fromkeys(node.name for node in nodes if not node.name.startswith("_"))
    return [_expected(source, name) for name in names]


@contextmanager
def _executed(source: str) -> Iterator[ModuleType]:
    """The source as a live, importable module, for as long as the block lasts."""
    module = ModuleType(f"toolkiln_oracle_{next(_numbers)}")
    module.__file__ = file = f"/nowhere/{module.__name__}.py"
    # Names imported for the type checker are names the static reader must know.
    source = re.sub(r"\bif (\w+\.)?TYPE_CHECKING:", "if True:", source)
    sys.modules[module.__name__] = module
    # `List["Beta"]` is cached with what "Beta" meant in the module that wrote it first.
    for forget in typing._cleanups:  # type: ignore[attr-defined]
        forget()
    # Attribute docstrings are found through `inspect`, which asks here for the lines.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(compile(source, file, "exec", dont_inherit=True), vars(module))
            except REFUSALS as error:
                raise RefusedError(f"{type(error).__name__}: {error}") from error
            exec(_ADAPT, vars(module))
            yield module
    finally:
        del sys.modules[module.__name__], linecache.cache[file]


def _expected(source: str, name: str) -> Expected:
    refusals: list[str] = []

    def attempt(question: Callable[[ModuleType, FunctionType], Schema | None]) -> Schema | None:
        # Pydantic's answer can depend on the one before: `Annotated[Model, Field(...)]` of a
        # recursive model marks later uses of it. So each question gets a module of its own.
        with _executed(source) as module:
            try:
                return question(module, vars(module)[name])
            except REFUSALS as error:
                refusals.append(f"{type(error).__name__}: {error}")
                return None

    parameters, returns = attempt(_parameters), attempt(_returns)
    return Expected(name, parameters, returns, "; ".join(refusals))


def variadic(source: str) -> set[str]:
    """The names of all `*args` parameters: pydantic has no place for them by name."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _FUNCTIONS)]
    return {node.args.vararg.arg for node in nodes if node.args.vararg}


def _parameters(module: ModuleType, function: FunctionType) -> Schema:
    parameters = inspect.signature(function).parameters.values()
    listed = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    schema = _adapter(module, _by_keyword(module, function)).json_schema()
    _describe(schema["properties"], typing.get_type_hints(function, include_extras=True))
    required = [name for name in schema.get("required", []) if name not in listed]
    schema.pop("required", None)
    return {**schema, "required": required} if required else schema


def _describe(properties: Schema, hints: dict[str, Any]) -> None:
    """The one thing that the reader adds to pydantic: `Annotated[T, "text"]` describes."""
    for name, hint in hints.items():
        texts = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, str)]
        if texts and name in properties:
            properties[name].setdefault("description", texts[0])


def _returns(module: ModuleType, function: FunctionType) -> Schema | None:
    if "return" not in function.__annotations__:
        return None
    hints = typing.get_type_hints(function, include_extras=True)
    return _adapter(module, hints["return"]).json_schema(mode="serialization")


def _adapter(module: ModuleType, subject: Any) -> TypeAdapter[Any]:
    """An adapter built from inside the module, so that its names are in sight."""
    adapter: TypeAdapter[Any] = vars(module)["_adapt"](TypeAdapter, subject)
    return adapter


def _by_keyword(module: ModuleType, function: FunctionType) -> Callable[..., Any]:
    """The function, or one like it that takes every argument by name.

    Pydantic describes positional-only parameters and `*args` as an array, which no
    client can send; the reader describes them by name, `*args` as an optional list.
    """
    signature = inspect.signature(function)
    odd = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}
    if not any(p.kind in odd for p in signature.parameters.values()):
        return function
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            hints[p.name] = list[hints.get(p.name, Any)]  # type: ignore[misc]
            parameters.append(p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]))
        elif p.kind is p.POSITIONAL_ONLY:
            parameters.append(p.replace(kind=p.POSITIONAL_OR_KEYWORD))
        else:
            parameters.append(p)

    def stub() -> None: ...

    stub.__annotations__ = hints
    stub.__module__ = module.__name__
    stub.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return stub
