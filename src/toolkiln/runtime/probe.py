"""Probe of a tool's file inside the sandbox: imports it, reports signatures, runs examples.

It sends each result as a message as soon as it has it, so a process that dies has reported its
progress. `execution.probe` evaluates the messages. The file's code runs in this process and can
forge or suppress them.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import types
import typing
from contextlib import suppress
from pathlib import Path

from toolkiln.runtime.binder import PydanticField
from toolkiln.runtime.call import failure
from toolkiln.runtime.loader import find_function, find_owner, import_file
from toolkiln.runtime.signature import ABSENT, FunctionSignature, Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toolkiln.define import Context

_MAX_SCHEMAS = 1_000_000
"""Characters of all schemas of a file; schemas beyond that are not reported."""
_MAX_TEXT = 500
_SCHEMA_OF_FILE = re.compile(r"^# (?:parameters ?=|\[tool\.toolkiln\.parameters)", re.MULTILINE)
"""A schema in the PEP 723 block, which applies to all tools of the file."""
_PLAIN = (str, int, float, bool, type(None))


class Probe:
    """The tool that runs a probe; its own file is in the same folder as the probed file."""

    def __init__(self, program: str) -> None:
        self._folder = os.path.dirname(program)

    def run(self, ctx: Context, name: str, tools: list[dict[str, Any]], version: str) -> str:
        """Probe the tools of a file; pydantic generates schemas if it has this version."""
        file = os.path.join(self._folder, name)
        try:
            module = import_file(file)
        except BaseException as error:  # the import failed: that is the result
            ctx.send_message({"import_error": _import_error(error, file)})
            return "done"
        ctx.send_message({"imported": True})
        signatures = _Signatures(module, version)
        ctx.send_message({"signatures": [signatures.of(tool) for tool in tools]})
        if any(tool["examples"] for tool in tools):
            from toolkiln.runtime.examples import Examples

            examples = Examples(ctx, file, {tool["entry"].partition(".")[0] for tool in tools})
            for index, tool in enumerate(tools):
                examples.run_tool(index, tool, dict(vars(module)))
        return "done"


def _import_error(error: BaseException, file: str) -> dict[str, Any]:
    frame = failure(error, file)
    line = frame.get("line")
    if isinstance(error, SyntaxError) and error.filename == file:
        line = error.lineno
    return {"type": frame["type"], "text": frame["message"][:_MAX_TEXT], "line": line}


class _Signatures:
    def __init__(self, module: types.ModuleType, version: str) -> None:
        self._module = module
        self._pydantic: Any = None
        self._characters_left = 0
        with suppress(Exception):  # the environment's pydantic may be broken
            import pydantic

            self._pydantic = pydantic
            # Other versions generate different schemas for some types.
            self._characters_left = (
                _MAX_SCHEMAS if pydantic.VERSION.startswith(f"{version}.") else 0
            )

    def of(self, tool: dict[str, Any]) -> dict[str, Any] | None:
        """Describe the signature of a tool; None if there is nothing to compare with."""
        try:
            owner, name = find_owner(self._module, tool["entry"])
            function = find_function(owner, name)
            signature = FunctionSignature(function)
        except Exception as error:  # the name may be bound to any object
            return {"missing": f"{type(error).__name__}: {error}"[:_MAX_TEXT]}
        is_old = self._pydantic is not None and not hasattr(self._pydantic, "TypeAdapter")
        if tool["whole_arguments"] or is_old:
            return None
        names = {**vars(owner), **getattr(signature.function, "__globals__", {})}
        parameters = [
            self._parameter(parameter, names)
            for parameter in signature.of_kind("positional", "either", "keyword", "rest")
            if parameter.name not in tool["injected"]
        ]
        return {
            "parameters": [parameter for parameter in parameters if parameter is not None],
            "takes_any": bool(signature.of_kind("more")),
            "by_hand": _is_handwritten(self._module, function, tool["dialect"]),
        }

    def _parameter(self, parameter: Parameter, names: dict[str, Any]) -> dict[str, Any] | None:
        """Describe a parameter; None if pydantic excludes it from schemas."""
        try:
            hint = _resolved(parameter.annotation, names)
            field = PydanticField(self._pydantic, hint, parameter.default)
        except Exception:  # imported only for type checkers, or not a type
            hint, field = None, PydanticField(None, object, parameter.default)
        is_rest = parameter.kind == "rest"
        description: dict[str, Any] = {
            "name": field.alias or parameter.name,
            "required": not is_rest and (field.default is ABSENT or field.default is ...),
        }
        if hint is not None and self._characters_left > 0:
            with suppress(Exception):  # custom schemas may raise anything
                annotation = list[hint] if is_rest else hint  # type: ignore[valid-type]
                schema = self._schema(parameter.name, annotation, parameter.default)
                if schema is None:
                    return None
                description["described"] = schema
        elif type(field.default) in _PLAIN:
            description["described"] = {"default": field.default}
        return description

    def _schema(self, name: str, hint: Any, default: Any) -> dict[str, Any] | None:
        """Return pydantic's schema for a function with only this parameter."""

        def stub() -> None: ...

        empty = inspect.Parameter.empty
        parameter = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if default is ABSENT else default,
            annotation=hint,
        )
        stub.__annotations__ = {name: hint}
        stub.__module__ = self._module.__name__
        stub.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        whole = self._pydantic.TypeAdapter(stub).json_schema()
        self._characters_left -= len(json.dumps(whole))
        if self._characters_left < 0:
            raise ValueError("the schemas are too large")
        for schema in whole["properties"].values():
            return {**schema, "$defs": whole.get("$defs", {})}
        return None


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """Resolve strings in an annotation; raises if a name does not exist at run time."""
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    return typing.get_type_hints(holder, names, names, include_extras=True)["it"]


def _is_handwritten(module: types.ModuleType, function: Any, dialect: str) -> bool:
    """Return whether the author wrote the schema, or whether that is unknown."""
    with suppress(OSError, TypeError):
        if _SCHEMA_OF_FILE.search(Path(str(module.__file__)).read_text("utf-8", "replace")):
            return True
    if dialect in ("function", "open_webui"):
        return False
    if dialect == "constants":
        return hasattr(module, "TOOL_PARAMETERS")
    if dialect == "toolkit" and not hasattr(function, "__toolkiln_tool__"):
        return hasattr(function, "__toolkiln_schema__") or hasattr(function, "tool_schemas")
    options = getattr(function, "__toolkiln_tool__", None)
    return not isinstance(options, dict) or options.get("parameters") is not None
