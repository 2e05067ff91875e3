"""`toolkiln settings`: what a tool is handed with its calls, shown and set.

No value of a secret field is printed, and none has to be on a command line. Whether values
fit is checked by `app`; here it is only decided what a text stands for.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolkiln.errors import InputError
from toolkiln.model import JsonSchema, Privilege, ToolSpec
from toolkiln.surfaces.cli.arguments import parse_object, parse_pairs
from toolkiln.surfaces.cli.opening import authenticate, open_kiln, user_of, visible_tool
from toolkiln.surfaces.cli.prompting import hidden
from toolkiln.surfaces.cli.tables import one_line, print_table
from toolkiln.surfaces.cli.terminal import print_json, say

_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array",
    dict: "object", type(None): "null",
}  # fmt: skip


def settings(
    tool: str, given: list[str], unset: list[str], user: str, tools: Path | None, *, as_json: bool
) -> None:
    """Set what is given, then print all settings of the tool."""
    with open_kiln(tools) as kiln:
        session = authenticate(kiln)
        spec = visible_tool(kiln, tool, session)
        if user_of(kiln, session) != user:
            kiln.guarding.require(session, Privilege.ADMIN, "settings")
        schema = _schema(spec, user)
        changes = _changes(schema, given)
        if both := sorted(changes.keys() & unset):
            raise InputError(f"{both[0]!r} is both set and unset")
        if changes or unset:
            removed = frozenset(unset)
            kiln.guarding.set_tool(spec, changes, removed=removed, user=user, session=session)
        shown = kiln.guarding.tool_settings.shown(spec, user)
        lacking = kiln.guarding.tool_settings.missing(spec, user)
        served = kiln.snapshot.served.get(tool)
    fields = list(_fields(schema, shown))
    if as_json:
        print_json(fields)
    else:
        print_table(
            ("name", "type", "required", "default", "value"),
            [
                (
                    field["name"],
                    field["type"],
                    "yes" if field["required"] else "",
                    _written(field, "default"),
                    _written(field, "value"),
                )
                for field in fields
            ],
        )
    if served is not None and not served.is_reviewed:
        say(
            f"note: a caller wrote this version of {tool}; it is handed no settings until "
            "`toolkiln admit FILE` admits it",
            err=True,
        )
    if lacking:
        say(f"note: {tool} does not run before that: {one_line(lacking)}", err=True)


def _schema(spec: ToolSpec, user: str) -> JsonSchema:
    schema = spec.settings.get("user" if user else "operator")
    if schema is not None:
        return schema
    if not spec.settings:
        raise InputError(f"{spec.name} has no settings")
    hint = "leave out --user" if user else "name a user with --user"
    raise InputError(
        f"{spec.name} has settings for {'an operator' if user else 'users'} only", hint=hint
    )


def _changes(schema: JsonSchema, given: list[str]) -> dict[str, Any]:
    if len(given) == 1 and (whole := parse_object(given[0])) is not None:
        return whole
    texts = parse_pairs(given)
    unseen = [name for name, text in texts.items() if text == "-"]
    if len(unseen) > 1 and not (sys.stdin and sys.stdin.isatty()):
        raise InputError("stdin holds one value", hint="set one after the other")
    texts |= {name: hidden(one_line(name)) for name in unseen}
    parts = schema.get("properties", {})
    return {name: _value(text, parts.get(name), schema) for name, text in texts.items()}


def _value(text: str, part: Any, schema: JsonSchema) -> Any:
    """What a text means: JSON where the schema takes such a value, else itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    kinds = set(_kinds(part, schema))
    kind = _TYPES[type(value)]
    is_taken = kind in kinds or (kind == "integer" and "number" in kinds)
    return value if is_taken or "string" not in kinds else text


def _kinds(part: Any, schema: JsonSchema, depth: int = 0) -> Iterator[str]:
    """The types that a part of a schema takes."""
    if not isinstance(part, dict) or depth > 8:
        return
    if reference := part.get("$ref"):
        named = schema.get("$defs", {}).get(str(reference).rpartition("/")[2])
        yield from _kinds(named, schema, depth + 1)
    for each in (*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("allOf", ())):
        yield from _kinds(each, schema, depth + 1)
    if "enum" in part or "const" in part:
        yield from (_TYPES[type(one)] for one in part.get("enum", [part.get("const")]))
    else:
        types = part.get("type", ())
        yield from [types] if isinstance(types, str) else types


def _fields(schema: JsonSchema, shown: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        is_secret = _is_secret(part)
        kinds = " or ".join(dict.fromkeys(_kinds(part, schema)))
        field = {
            "name": name,
            "type": "secret" if is_secret else kinds or "any",
            "required": name in required,
            "description": part.get("description", "") if isinstance(part, dict) else "",
        }
        if isinstance(part, dict) and "default" in part:
            field["default"] = "(secret)" if is_secret else part["default"]
        if name in shown:
            field["value"] = shown[name]
        yield field


def _is_secret(part: Any) -> bool:
    if isinstance(part, list):
        return any(map(_is_secret, part))
    if not isinstance(part, dict):
        return False
    is_marked = part.get("format") == "password" or part.get("writeOnly") or part.get("secret")
    return bool(is_marked) or any(map(_is_secret, part.values()))


def _written(field: Mapping[str, Any], name: str) -> str:
    if name not in field:
        return ""
    value = field[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
