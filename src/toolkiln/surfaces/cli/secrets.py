"""Commands for secrets and for the settings of tools.

No value of a secret is printed, and none has to be on a command line.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import (
    hidden,
    one_line,
    print_json,
    print_outcome,
    print_table,
    say,
)

if TYPE_CHECKING:
    from toolkiln.model.base import JsonSchema
    from toolkiln.model.spec import ToolSpec

SecretArgument = Annotated[str, typer.Argument(help="The name of the secret.")]
_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array",
    dict: "object", type(None): "null",
}  # fmt: skip

secrets_app = typer.Typer(help="Manage secrets.", no_args_is_help=True)
app.add_typer(secrets_app, name="secrets")


@command(secrets_app, "list")
def secrets_list(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the names of secrets, where they come from, and which tools lack one."""
    from toolkiln.operations import secrets
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import run_operation

    found = run_operation(secrets.list_secrets, Nothing(), tools=tools)
    for problem in found.problems:
        say(f"note: {problem}", err=True)
    if as_json:
        print_json({"secrets": found.sources, "missing": found.missing})
        return
    if found.sources:
        print_table(("name", "source"), found.sources.items())
    else:
        say("no secrets", err=True)
    for name, requesting in found.missing.items():
        say(f"note: {one_line(name)} is not set; requested by {', '.join(requesting)}", err=True)


@command(secrets_app, "set")
def secrets_set(name: SecretArgument, as_json: JsonOption = False) -> None:
    """Set a secret, from a hidden prompt or stdin."""
    from toolkiln.operations import secrets
    from toolkiln.surfaces.cli.session import run_operation

    request = secrets.SetSecret(name=name, value=hidden(f"the secret {one_line(name)}"))
    source = run_operation(secrets.set_secret, request).source
    if source.startswith("$"):
        say(f"note: {source} is set, and takes precedence", err=True)
    print_outcome({"name": name, "source": source}, f"set: {name}", as_json=as_json)


@command(secrets_app, "remove")
def secrets_remove(name: SecretArgument, as_json: JsonOption = False) -> None:
    """Remove a secret."""
    from toolkiln.operations import secrets
    from toolkiln.surfaces.cli.session import run_operation

    run_operation(secrets.remove_secret, secrets.SecretName(name=name))
    print_outcome({"name": name, "removed": True}, f"removed: {name}", as_json=as_json)


@command(app)
def settings(
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="['{json}' | key=value …]",
            help="What to set; key=- prompts for it, or reads it from stdin.",
            show_default=False,
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="May be repeated.", show_default=False)
    ] = None,
    user: Annotated[str, typer.Option(help="Whose. Default: the operator's.")] = "",
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show or set the settings that a tool gets with its calls."""
    from toolkiln.operations import secrets
    from toolkiln.operations import tools as tool_operations
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln(tools) as kiln:
        session = authenticate(kiln)
        state = kiln.run_operation_sync(
            tool_operations.tool_state, tool_operations.ToolName(name=tool), session
        )
        schema = _schema(state.spec, user)
        found = kiln.run_operation_sync(
            secrets.get_tool_settings,
            secrets.GetToolSettings(name=tool, user=user),
            session,
        )
        changes = _changes(schema, values or [])
        if both := sorted(changes.keys() & {*(unset or ())}):
            raise InputError(f"{both[0]!r} is both set and unset")
        if changes or unset:
            update = secrets.UpdateToolSettings(
                name=tool, values=changes, unset=tuple(unset or ()), user=user
            )
            found = kiln.run_operation_sync(secrets.update_tool_settings, update, session)
    fields = list(_fields(schema, found.values))
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
                    _cell(field, "default"),
                    _cell(field, "value"),
                )
                for field in fields
            ],
        )
    if found.missing:
        say(f"note: {tool} cannot run yet: {one_line(found.missing)}", err=True)


def _schema(spec: "ToolSpec", user: str) -> "JsonSchema":
    schema = spec.settings.get("user" if user else "operator")
    if schema is not None:
        return schema
    if not spec.settings:
        raise InputError(f"{spec.name} has no settings")
    hint = "leave out --user" if user else "name a user with --user"
    raise InputError(
        f"{spec.name} has settings for {'an operator' if user else 'users'} only", hint=hint
    )


def _changes(schema: "JsonSchema", arguments: list[str]) -> dict[str, Any]:
    from toolkiln.surfaces.cli.calls import parse_object, parse_pairs

    if len(arguments) == 1 and (whole := parse_object(arguments[0])) is not None:
        return whole
    texts = parse_pairs(arguments)
    prompted = [name for name, text in texts.items() if text == "-"]
    if len(prompted) > 1 and not (sys.stdin and sys.stdin.isatty()):
        raise InputError("stdin has only one value", hint="set one after the other")
    texts |= {name: hidden(one_line(name)) for name in prompted}
    parts = schema.get("properties", {})
    return {name: _value(text, parts.get(name), schema) for name, text in texts.items()}


def _value(text: str, part: Any, schema: "JsonSchema") -> Any:
    """Return a text as JSON if the schema accepts such a value, else as a string."""
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    types = set(_types(part, schema))
    kind = _TYPES[type(value)]
    is_accepted = kind in types or (kind == "integer" and "number" in types)
    return value if is_accepted or "string" not in types else text


def _types(part: Any, schema: "JsonSchema", depth: int = 0) -> Iterator[str]:
    """Yield the types that a part of a schema accepts."""
    if not isinstance(part, dict) or depth > 8:
        return
    if reference := part.get("$ref"):
        definition = schema.get("$defs", {}).get(str(reference).rpartition("/")[2])
        yield from _types(definition, schema, depth + 1)
    for each in (*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("allOf", ())):
        yield from _types(each, schema, depth + 1)
    if "enum" in part or "const" in part:
        yield from (_TYPES[type(value)] for value in part.get("enum", [part.get("const")]))
    else:
        types = part.get("type", ())
        yield from [types] if isinstance(types, str) else types


def _fields(schema: "JsonSchema", values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    required = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        is_secret = _is_secret(part)
        types = " or ".join(dict.fromkeys(_types(part, schema)))
        field = {
            "name": name,
            "type": "secret" if is_secret else types or "any",
            "required": name in required,
            "description": part.get("description", "") if isinstance(part, dict) else "",
        }
        if isinstance(part, dict) and "default" in part:
            field["default"] = "(secret)" if is_secret else part["default"]
        if name in values:
            field["value"] = values[name]
        yield field


def _is_secret(part: Any) -> bool:
    if isinstance(part, list):
        return any(map(_is_secret, part))
    if not isinstance(part, dict):
        return False
    is_marked = part.get("format") == "password" or part.get("writeOnly") or part.get("secret")
    return bool(is_marked) or any(map(_is_secret, part.values()))


def _cell(field: Mapping[str, Any], name: str) -> str:
    import json

    if name not in field:
        return ""
    value = field[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
