"""Tool settings: values that an operator or a user sets once and every call receives.

A tool declares them as a class (`Valves`, `UserValves`, `@tool(settings=Model)`). They are
validated against its schema before they are stored and before each use. The value of a secret
field is stored with the secrets, and the settings contain a reference to it. No other field may
contain a reference: a user could otherwise pass any secret to the tool.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model.base import JsonSchema
from toolkiln.model.call import CallError
from toolkiln.model.identity import Caller
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.argument_problems import ArgumentProblem
from toolkiln.schema.arguments import ArgumentChecker, Problems
from toolkiln.schema.document import secret_fields
from toolkiln.security.secrets import Secrets, find_references

Scope = Literal["operator", "user"]
MASKED = "(secret, set)"
_REFERENCE = "secret:"
_MAX_BYTES = 64 << 10
"""Size of one change as JSON."""


class ToolSettingsStore(Protocol):
    """Storage of settings by tool and user; the operator's settings have no user."""

    def read(self, tool: str, user: str = "") -> dict[str, Any]:
        """Return the stored values."""

    def change(
        self, tool: str, edit: Callable[[dict[str, Any]], Mapping[str, Any]], user: str = ""
    ) -> None:
        """Replace the stored values by `edit(values)`, atomically."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings for one call, with secrets as references."""

    operator: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    """Names of the referenced secrets."""


NO_SETTINGS = CallSettings()


class ToolSettingsService:
    """The settings of all tools."""

    def __init__(self, store: Callable[[], ToolSettingsStore], secrets: Secrets) -> None:
        self._store = store
        self._secrets = secrets

    async def for_call(
        self, spec: ToolSpec, caller: Caller, *, is_reviewed: bool = True
    ) -> CallSettings | CallError:
        """Return the settings for a call, or an error if required ones are missing.

        A version that no person reviewed gets none: they were set for another version.
        """
        found: dict[Scope, dict[str, Any]] = {"operator": {}, "user": {}}
        secrets: set[str] = set()
        for scope, user in (("operator", ""), ("user", caller.who)):
            if (schema := spec.settings.get(scope)) is None:
                continue
            values: dict[str, Any] = {}
            # An empty user would select the operator's values.
            if is_reviewed and (scope == "operator" or user):
                values = await asyncio.to_thread(self._store().read, spec.name, user)
            problem = _problem(schema, values)
            if problem is not None:
                option = "" if scope == "operator" else f" --user {caller.who}"
                hint = f"see `toolkiln settings {spec.name}{option}`"
                return CallError(
                    code="missing_settings",
                    message=f"{spec.name} is not configured: {problem}",
                    hint=hint if is_reviewed else unreviewed_hint(spec),
                )
            found[scope] = values  # type: ignore[index]
            names = {field: _secret_name(spec.name, field, user) for field in secret_fields(schema)}
            secrets.update(n for f, n in names.items() if values.get(f) == _REFERENCE + n)
        return CallSettings(found["operator"], found["user"], frozenset(secrets))

    def masked_values(self, spec: ToolSpec, user: str = "") -> dict[str, Any]:
        """Return the stored values, with secrets masked."""
        schema = _schema(spec, user)
        values = self._store().read(spec.name, user)
        hidden = secret_fields(schema)
        return {name: MASKED if name in hidden else value for name, value in values.items()}

    def schema(self, spec: ToolSpec, user: str = "") -> JsonSchema:
        """Return the schema of the settings; secrets are `writeOnly` and have no defaults.

        Raises:
            InputError: the tool declares no such settings.
        """
        schema = _schema(spec, user)
        properties = dict(schema.get("properties", {}))
        for name in secret_fields(schema):
            shown = {k: v for k, v in properties[name].items() if k != "default"}
            properties[name] = {**shown, "writeOnly": True}
        return {**schema, "properties": properties}

    def missing(self, spec: ToolSpec, user: str = "") -> str | None:
        """Return a message if settings required by the tool are missing or invalid."""
        return _problem(_schema(spec, user), self._store().read(spec.name, user))

    def change(
        self, spec: ToolSpec, changes: Mapping[str, Any], removed: frozenset[str], user: str = ""
    ) -> None:
        """Set some values and remove others."""
        schema = _schema(spec, user)
        properties = schema.get("properties", {})
        if len(json.dumps(dict(changes), default=str)) > _MAX_BYTES:
            raise InputError(f"the settings of {spec.name} are larger than {_MAX_BYTES:,} bytes")
        for name in (*changes, *removed):
            if name not in properties:
                hint = nearest_hint(name, properties) or f"known: {', '.join(properties)}"
                raise InputError(f"{spec.name} has no setting {name!r}", hint=hint)
        # Required settings may be set one at a time.
        checked = ArgumentChecker({**schema, "required": []}).check(dict(changes))
        hidden = secret_fields(schema)
        if isinstance(checked, Problems):
            lines = "\n".join(_message(problem, hidden) for problem in checked.problems)
            raise InputError(f"{spec.name}: {lines}")
        for name, value in checked.arguments.items():
            if name in hidden and not isinstance(value, str):
                raise InputError(f"{name} is a secret and must be a string")
            if name not in hidden and find_references(value):
                hint = "only fields with a secret type, such as SecretStr, can"
                raise InputError(f"{name} cannot refer to a secret", hint=hint)
        new_values = dict(checked.arguments)
        for name in new_values.keys() & hidden:
            secret = _secret_name(spec.name, name, user)
            self._secrets.set(secret, new_values[name])
            new_values[name] = _REFERENCE + secret

        def edit(values: dict[str, Any]) -> dict[str, Any]:
            values.update(new_values)
            return {name: value for name, value in values.items() if name not in removed}

        self._store().change(spec.name, edit, user)
        for name in removed & hidden:
            self._secrets.remove(_secret_name(spec.name, name, user))


def unreviewed_hint(spec: ToolSpec) -> str:
    """Return a hint for a version without grants and settings because no person reviewed it."""
    return (
        f"a caller wrote version {spec.digest[:12]}, which has no grants and no settings until a "
        "person with ADMIN admits it: see `toolkiln status`, then `toolkiln admit FILE`"
    )


def _schema(spec: ToolSpec, user: str) -> JsonSchema:
    scope: Scope = "user" if user else "operator"
    schema = spec.settings.get(scope)
    if schema is None:
        raise InputError(f"{spec.name} declares no settings for {'users' if user else 'operators'}")
    return schema


def _problem(schema: JsonSchema, values: Mapping[str, Any]) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in values]
    if missing:
        return f"{', '.join(missing)} must be set"
    # Secrets were validated when they were set; here they are references.
    hidden = dict.fromkeys(secret_fields(schema), True)
    schema = {**schema, "properties": {**schema.get("properties", {}), **hidden}}
    checked = ArgumentChecker(schema).check(dict(values))
    if isinstance(checked, Problems):
        return "; ".join(_message(problem, hidden) for problem in checked.problems)
    return None


def _message(problem: ArgumentProblem, hidden: Collection[str]) -> str:
    """Return the message of a problem without the values of secrets."""
    name = problem.path.split("/")[1] if "/" in problem.path else ""
    if name in hidden:
        return f"{name}: the value is invalid"
    if not name and any(repr(field) in problem.message for field in hidden):
        return "a value is invalid"
    return problem.message


def _secret_name(tool: str, name: str, user: str) -> str:
    if not user:
        return f"{tool}.{name}"
    return f"{tool}.{name}@{hashlib.sha256(user.encode()).hexdigest()[:16]}"
