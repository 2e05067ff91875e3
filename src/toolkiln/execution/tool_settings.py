"""Settings of tools: values that an operator or a user sets once, and calls are handed.

A tool declares them as a class (`Valves`, `UserValves`, `@tool(settings=Model)`); here
they are checked against the schema that was read from it, before they are kept and before
they are used. A field that is a secret by its schema is kept with the secrets, and what
is kept here is a reference to it; no other field may hold one, or whoever sets it could
have any secret handed to the tool. What the tool sees is built in the sandbox.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from toolkiln.errors import InputError, nearest_hint
from toolkiln.execution.secrets import Secrets, references
from toolkiln.model import Caller, CallError, JsonSchema, ToolSpec
from toolkiln.schema import ArgumentChecker, Problem, Problems, secret_fields

Scope = Literal["operator", "user"]
MASKED = "(secret, set)"
_REFERENCE = "secret:"
_LARGEST = 64 << 10
"""Bytes of JSON that can be set at once, and so of one field: calls are handed all of them."""


class SettingsBook(Protocol):
    """Where values are kept, by tool and user; the operator's have none."""

    def read(self, tool: str, user: str = "") -> dict[str, Any]:
        """What is set."""
        ...

    def change(
        self, tool: str, edit: Callable[[dict[str, Any]], Mapping[str, Any]], user: str = ""
    ) -> None:
        """Set what `edit` makes of what is set, and nobody changes meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """The values for one call, secrets as references."""

    operator: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    """The names of those that the values refer to."""


NOTHING = Settled()


class ToolSettings:
    """What tools are set to."""

    def __init__(self, book: Callable[[], SettingsBook], secrets: Secrets) -> None:
        self._open = book
        self._secrets = secrets

    async def settled(
        self, spec: ToolSpec, caller: Caller, *, is_reviewed: bool = True
    ) -> Settled | CallError:
        """Return the values for a call of this caller, or what has to be set first.

        A version that no person admitted (`is_reviewed`) gets none, whoever set them: they were
        set for another version of the same name.

        Raises:
            StoreError: it cannot be looked up.
        """
        if not spec.settings:
            return NOTHING
        found: dict[Scope, dict[str, Any]] = {"operator": {}, "user": {}}
        secrets: set[str] = set()
        for scope, user in (("operator", ""), ("user", caller.who)):
            if (schema := spec.settings.get(scope)) is None:
                continue
            values: dict[str, Any] = {}
            # A caller without a user has no values, and does not get the operator's.
            if is_reviewed and (scope == "operator" or user):
                values = await asyncio.to_thread(self._open().read, spec.name, user)
            wrong = _problem(schema, values)
            if wrong is not None:
                option = "" if scope == "operator" else f" --user {caller.who}"
                hint = f"see `toolkiln settings {spec.name}{option}`"
                return CallError(
                    code="missing_settings",
                    message=f"{spec.name} is not set up: {wrong}",
                    hint=hint if is_reviewed else unreviewed_hint(spec),
                )
            found[scope] = values  # type: ignore[index]
            own = {field: _secret_name(spec.name, field, user) for field in secret_fields(schema)}
            secrets.update(n for f, n in own.items() if values.get(f) == _REFERENCE + n)
        return Settled(found["operator"], found["user"], frozenset(secrets))

    def shown(self, spec: ToolSpec, user: str = "") -> dict[str, Any]:
        """What is set, secrets masked."""
        schema = _schema(spec, user)
        values = self._open().read(spec.name, user)
        hidden = secret_fields(schema)
        return {name: MASKED if name in hidden else value for name, value in values.items()}

    def schema(self, spec: ToolSpec, user: str = "") -> JsonSchema:
        """What can be set, without the defaults of secrets.

        Raises:
            InputError: nothing can.
        """
        found = _schema(spec, user)
        parts = dict(found.get("properties", {}))
        for name in secret_fields(found):
            parts[name] = {key: value for key, value in parts[name].items() if key != "default"}
        return {**found, "properties": parts}

    def missing(self, spec: ToolSpec, user: str = "") -> str | None:
        """What keeps the tool from running, in words; None if nothing does."""
        return _problem(_schema(spec, user), self._open().read(spec.name, user))

    def change(
        self, spec: ToolSpec, changes: Mapping[str, Any], removed: frozenset[str], user: str = ""
    ) -> None:
        """Set some values, and forget others.

        Raises:
            InputError: a name is unknown, or a value does not fit; nothing is changed.
        """
        schema = _schema(spec, user)
        known = schema.get("properties", {})
        if len(json.dumps(dict(changes), default=str)) > _LARGEST:
            raise InputError(f"the settings of {spec.name} have more than {_LARGEST:,} bytes")
        for name in (*changes, *removed):
            if name not in known:
                hint = nearest_hint(name, known) or f"known: {', '.join(known)}"
                raise InputError(f"{spec.name} has no setting {name!r}", hint=hint)
        # A field at a time: what is required and not there yet is no reason to refuse others.
        alone = {**schema, "required": []}
        checked = ArgumentChecker(alone).check(dict(changes))
        hidden = secret_fields(schema)
        if isinstance(checked, Problems):
            lines = "\n".join(_told(problem, hidden) for problem in checked.problems)
            raise InputError(f"{spec.name}: {lines}")
        for name, value in checked.arguments.items():
            if name in hidden and not isinstance(value, str):
                raise InputError(f"{name} cannot be kept: a secret is a text")
            if name not in hidden and references(value):
                hint = "only fields that are secrets by their type, such as SecretStr, hold one"
                raise InputError(f"{name} cannot refer to a secret", hint=hint)
        fresh = dict(checked.arguments)
        for name in fresh.keys() & hidden:
            kept_as = _secret_name(spec.name, name, user)
            self._secrets.set(kept_as, fresh[name])
            fresh[name] = _REFERENCE + kept_as

        def edited(values: dict[str, Any]) -> dict[str, Any]:
            values.update(fresh)
            return {name: value for name, value in values.items() if name not in removed}

        self._open().change(spec.name, edited, user)
        for name in removed & hidden:
            self._secrets.remove(_secret_name(spec.name, name, user))


def unreviewed_hint(spec: ToolSpec) -> str:
    """Say why a version that no person admitted has no grants and no settings."""
    return (
        f"a caller wrote version {spec.digest[:12]}, which has no grants and no settings until a "
        "person with ADMIN admits it: see `toolkiln status`, then `toolkiln admit FILE`"
    )


def _schema(spec: ToolSpec, user: str) -> JsonSchema:
    scope: Scope = "user" if user else "operator"
    schema = spec.settings.get(scope)
    if schema is None:
        other = "users have none" if user else "an operator sets nothing"
        raise InputError(f"{spec.name} declares no such settings: {other}")
    return schema


def _problem(schema: JsonSchema, values: Mapping[str, Any]) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in values]
    if missing:
        return f"{', '.join(missing)} must be set"
    # Secrets are checked when they are set: what is at hand here are references.
    hidden = dict.fromkeys(secret_fields(schema), True)
    seen = {**schema, "properties": {**schema.get("properties", {}), **hidden}}
    checked = ArgumentChecker(seen).check(dict(values))
    if isinstance(checked, Problems):
        return "; ".join(_told(problem, secret_fields(schema)) for problem in checked.problems)
    return None


def _told(problem: Problem, hidden: Collection[str]) -> str:
    """What is wrong with a value, without quoting it if nobody is to see it."""
    name = problem.path.split("/")[1] if "/" in problem.path else ""
    if name in hidden:
        return f"{name}: the value does not fit"
    if not name and any(repr(one) in problem.message for one in hidden):
        return "a value does not fit"
    return problem.message


def _secret_name(tool: str, name: str, user: str) -> str:
    if not user:
        return f"{tool}.{name}"
    return f"{tool}.{name}@{hashlib.sha256(user.encode()).hexdigest()[:16]}"
