"""Options that are written with a source: its requirements and options, in its PEP 723 block.

A version is its file, so that what a request says beside the source becomes part of the text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolkiln.catalog.reports import block_bounds, source_lines, with_requirements
from toolkiln.errors import InputError
from toolkiln.model.admission import SourceOptions
from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import ToolSpec

_TABLE = "# [tool.toolkiln]"
_HEARTBEAT = "request_heartbeat"
"""Letta adds this parameter to the schemas of all tools and takes it out of their calls."""


def description_of(options: SourceOptions) -> str:
    """Return the description in `json_schema`."""
    return str(_function(options.json_schema or {}).get("description") or "")


def with_options(code: str, options: SourceOptions) -> str:
    """Write options into the PEP 723 block of a source; other lines stay as they are."""
    code = with_requirements(code, [item.text for item in options.pip_requirements])
    entries = [f"# {name} = {json.dumps(value)}" for name, value in _scalars(options).items()]
    if options.json_schema is not None:
        # JSON in a literal string of TOML, which has no escapes.
        text = json.dumps(_parameters(options.json_schema), ensure_ascii=False, indent=2)
        entries += ["# parameters = '''", *_commented(text.replace("'", "\\u0027")), "# '''"]
    if not entries:
        return code
    lines = source_lines(code)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    start, end = block_bounds(lines)
    block = [line.rstrip() for line in lines[start:end]]
    if _TABLE in block:
        at, added = start + block.index(_TABLE) + 1, entries
    elif block:
        at, added = end - 1, ["#", _TABLE, *entries]
    else:
        at, added = start, ["# /// script", _TABLE, *entries, "# ///", ""]
    lines[at:at] = [line + newline for line in added]
    return "".join(lines)


def refuse_ignored(options: SourceOptions, tools: Sequence[ToolSpec]) -> None:
    """Refuse options that the source overrules, and a schema of another tool.

    Raises:
        InputError: there are some.
    """
    schema = options.json_schema
    if schema is not None:
        name = _function(schema).get("name")
        declared = ", ".join(spec.name for spec in tools)
        if len(tools) != 1 or name not in (None, tools[0].name):
            raise InputError(
                f"json_schema is that of {name or 'one tool'}; the source declares {declared}",
                hint="write one tool with its own schema",
            )
    for spec in tools:
        effective = {
            "parallel": spec.parallel,
            "return_char_limit": spec.limits.return_char_limit,
            "parameters": spec.parameters,
        }
        wanted: dict[str, Any] = _scalars(options)
        wanted |= {} if schema is None else {"parameters": _parameters(schema)}
        for option, value in wanted.items():
            if effective[option] != value:
                raise InputError(
                    f"the source of {spec.name} declares {option} itself",
                    hint="take it out of the source, or do not send it beside the source",
                )


def _scalars(options: SourceOptions) -> dict[str, Any]:
    values = {
        "parallel": options.enable_parallel_execution,
        "return_char_limit": options.return_char_limit,
    }
    return {name: value for name, value in values.items() if value is not None}


def _function(schema: JsonSchema) -> Mapping[str, Any]:
    """Return the function in a provider's format of a tool, or the schema itself."""
    function = schema.get("function")
    return function if isinstance(function, dict) else schema


def _parameters(schema: JsonSchema) -> JsonSchema:
    function = _function(schema)
    parameters = function.get("parameters")
    if not isinstance(parameters, dict):
        is_bare = function.get("type") == "object"
        parameters = dict(function) if is_bare else {"type": "object", "properties": {}}
    properties = parameters.get("properties")
    if not isinstance(properties, dict) or _HEARTBEAT not in properties:
        return parameters
    required = [name for name in parameters.get("required", ()) if name != _HEARTBEAT]
    kept = {name: item for name, item in properties.items() if name != _HEARTBEAT}
    return {**parameters, "properties": kept, "required": required}


def _commented(text: str) -> list[str]:
    return [f"# {line}" for line in text.split("\n")]
