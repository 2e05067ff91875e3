"""A look at a tool's file from inside the sandbox: import it, tell signatures, try examples.

It tells what it sees, as messages, each as soon as it is known, so that a process that dies
has said how far it came. `execution.probe` judges. The file's code runs in this very process
and can make it tell anything, or nothing.
"""

from __future__ import annotations

import inspect
import json
import os
import types
import typing
from contextlib import suppress

from toolkiln.runtime.binding_pydantic import Field
from toolkiln.runtime.binding_signature import ABSENT, Parameter, Signature
from toolkiln.runtime.loading import import_file
from toolkiln.runtime.running import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toolkiln.define import Context

_LARGEST_SCHEMAS = 1_000_000
"""Characters that the schemas of a file may have; what is beyond has none."""
_LONGEST = 500
_PLAIN = (str, int, float, bool, type(None))


class Probe:
    """The program of a probe; its file lies beside the tool's."""

    def __init__(self, program: str) -> None:
        self._folder = os.path.dirname(program)

    def run(self, ctx: Context, name: str, tools: list[dict[str, Any]], version: str) -> str:
        """Look at the tools of one file; pydantic describes types if it is of this version."""
        file = os.path.join(self._folder, name)
        try:
            module = import_file(file)
        except BaseException as error:  # whatever the file's code raises: this is the answer
            ctx.send_message({"import_error": _told(error, file)})
            return "done"
        ctx.send_message({"imported": True})
        signatures = _Signatures(module, version)
        ctx.send_message({"signatures": [signatures.of(tool) for tool in tools]})
        if any(tool["examples"] for tool in tools):
            from toolkiln.runtime.examples import Examples

            examples = Examples(ctx, file)
            for index, tool in enumerate(tools):
                examples.run_tool(index, tool, dict(vars(module)))
        return "done"


def _told(error: BaseException, file: str) -> dict[str, Any]:
    told = failure(error, file)
    line = told.get("line")
    if isinstance(error, SyntaxError) and error.filename == file:
        line = error.lineno
    return {"type": told["type"], "text": told["message"][:_LONGEST], "line": line}


class _Signatures:
    """What the functions of a module take."""

    def __init__(self, module: types.ModuleType, version: str) -> None:
        self._module = module
        self._pydantic: Any = None
        self._room = 0
        with suppress(Exception):  # an environment's own one may be broken
            import pydantic

            self._pydantic = pydantic
            # Another version describes some types in another way.
            self._room = _LARGEST_SCHEMAS if pydantic.VERSION.startswith(f"{version}.") else 0

    def of(self, tool: dict[str, Any]) -> dict[str, Any] | None:
        """The signature of one tool; None if there is nothing to hold against it."""
        owner_name, _, name = tool["entry"].rpartition(".")
        try:
            owner = getattr(self._module, owner_name) if owner_name else self._module
            function = _function(owner, name)
            signature = Signature(function)
        except Exception as error:  # the file may have put anything under this name
            return {"missing": f"{type(error).__name__}: {error}"[:_LONGEST]}
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
            "by_hand": _is_by_hand(self._module, function, tool["dialect"]),
        }

    def _parameter(self, parameter: Parameter, names: dict[str, Any]) -> dict[str, Any] | None:
        """One parameter; None if pydantic keeps it out of schemas."""
        try:
            hint = _resolved(parameter.annotation, names)
            field = Field(self._pydantic, hint, parameter.default)
        except Exception:  # imported for the type checker only, or no type at all
            hint, field = None, Field(None, object, parameter.default)
        is_rest = parameter.kind == "rest"
        told: dict[str, Any] = {
            "name": field.alias or parameter.name,
            "required": not is_rest and (field.default is ABSENT or field.default is ...),
        }
        if hint is not None and self._room > 0:
            with suppress(Exception):  # classes write their own schemas and raise anything
                wanted = list[hint] if is_rest else hint  # type: ignore[valid-type]
                schema = self._schema(parameter.name, wanted, parameter.default)
                if schema is None:
                    return None
                told["described"] = schema
        elif type(field.default) in _PLAIN:
            told["described"] = {"default": field.default}
        return told

    def _schema(self, name: str, hint: Any, default: Any) -> dict[str, Any] | None:
        """Pydantic's own schema of a function with this parameter only."""

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
        self._room -= len(json.dumps(whole))
        if self._room < 0:
            raise ValueError("no room")
        for schema in whole["properties"].values():
            return {**schema, "$defs": whole.get("$defs", {})}
        return None


def _function(owner: Any, name: str) -> Any:
    """What a call would run, as `loading` binds it: a method without its object."""
    if not isinstance(owner, type):
        return getattr(owner, name)
    raw = vars(owner).get(name) or getattr(owner, name)
    if isinstance(raw, staticmethod | classmethod):
        return getattr(owner, name)
    return types.MethodType(raw, object())


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """The annotation without strings in it.

    Raises:
        Exception: it names something that does not exist at run time.
    """
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    return typing.get_type_hints(holder, names, names, include_extras=True)["it"]


def _is_by_hand(module: types.ModuleType, function: Any, dialect: str) -> bool:
    """Whether the schema does not come from the signature; so also if that is not known."""
    if dialect in ("function", "open_webui"):
        return False
    if dialect == "constants":
        return hasattr(module, "TOOL_PARAMETERS")
    if dialect == "toolkit" and not hasattr(function, "__toolkiln_tool__"):
        return hasattr(function, "__toolkiln_schema__")
    options = getattr(function, "__toolkiln_tool__", None)
    return not isinstance(options, dict) or options.get("parameters") is not None
