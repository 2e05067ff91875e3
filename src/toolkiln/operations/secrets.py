"""Secret operations: names and sources of secrets. No operation returns a value."""

from collections import defaultdict

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.base import Value
from toolkiln.model.identity import Privilege
from toolkiln.operations.operation import Nothing, OperationContext, operation


class SecretName(Value):
    """Names a secret."""

    name: str


class SetSecret(Value):
    """Sets a secret in the secrets file."""

    name: str
    value: str


class SecretInfo(Value):
    """A secret, without its value."""

    name: str
    source: str
    """Where calls get it from: a variable, the secrets file or the keyring."""


class SecretList(Value):
    """The secrets that exist, and those that tools request in vain."""

    sources: dict[str, str]
    """Where each comes from."""
    missing: dict[str, tuple[str, ...]]
    """The tools that request a secret without a value."""
    problems: tuple[str, ...]
    """Tools or secrets that cannot be read."""


@operation("secrets.list", privilege=Privilege.ADMIN, act="secret", read_only=True)
def list_secrets(context: OperationContext, _: Nothing) -> SecretList:
    """Return the names of secrets, where they come from, and which are missing."""
    secrets = context.services.security.secrets
    requests: dict[str, list[str]] = defaultdict(list)
    problems: list[str] = []
    try:
        for spec in context.services.registry.specs.values():
            for name in spec.rights.secrets:
                requests[name].append(spec.name)
    except InputError as error:  # there can be secrets without tools
        problems.append(error.message)
    sources = secrets.sources()
    missing: dict[str, tuple[str, ...]] = {}
    for name, tools in sorted(requests.items()):
        try:
            has_value = secrets.get(name) is not None
        except ToolkilnError as error:
            problems.append(error.message)
            has_value = False
        if not has_value:
            missing[name] = tuple(tools)
    return SecretList(sources=sources, missing=missing, problems=tuple(problems))


@operation("secrets.set", privilege=Privilege.ADMIN, act="secret")
def set_secret(context: OperationContext, request: SetSecret) -> SecretInfo:
    """Set a secret; a variable of the environment still takes precedence."""
    security = context.services.security
    security.set_secret(request.name, request.value, context.session)
    return SecretInfo(name=request.name, source=security.secrets.sources().get(request.name, ""))


@operation("secrets.remove", privilege=Privilege.ADMIN, act="secret")
def remove_secret(context: OperationContext, request: SecretName) -> None:
    """Remove a secret from the secrets file.

    Raises:
        InputError: it does not exist, or a variable sets it.
    """
    security, name = context.services.security, request.name
    if name not in security.secrets.sources():
        raise InputError(f"there is no secret {name[:100]!r}", hint="see `toolkiln secrets list`")
    security.set_secret(name, None, context.session)
    if (source := security.secrets.sources().get(name)) is not None:
        raise InputError(f"{name} is set by {source}", hint="unset the variable where it is set")


OPERATIONS = (list_secrets, set_secret, remove_secret)
