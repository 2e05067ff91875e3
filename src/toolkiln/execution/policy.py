"""Whether a call may run: what the source asks for, held against what was granted.

Deny by default: a right that is asked for and not granted refuses the call, because a
tool that runs without it would only fail later and say less.
"""

from toolkiln.errors import InputError
from toolkiln.execution.executor import Admitted
from toolkiln.execution.network import granted
from toolkiln.model import Caller, CallError


def refusal(tool: Admitted) -> CallError | None:
    """Why a call is denied; None if it is not."""
    rights, grant, name = tool.spec.rights, tool.grant, tool.spec.name
    if tool.function is not None:
        return None  # code of this process asks nobody
    if not rights.sandbox and grant.sandbox:
        return _denied(name, "to run without a sandbox", "sandbox = false")
    if rights.workspace == "write" and grant.workspace != "write":
        return _denied(name, "to write to the workspace", 'workspace = "write"')
    if rights.workspace == "read" and grant.workspace is None:
        return _denied(name, "to read the workspace", 'workspace = "read"')
    try:
        missing = [host for host in rights.network if not granted([host], grant.network).rules]
    except InputError as error:
        return CallError(code="not_granted", message=error.message, hint=error.hint)
    if missing:
        hosts = ", ".join(f'"{host}"' for host in rights.network)
        return _denied(name, f"to reach {missing[0]}", f"network = [{hosts}]")
    return None


def authoring_refusal(caller: Caller, authoring: str) -> CallError | None:  # noqa: ARG001
    """Why somebody may not write tools; None if they may.

    The setting holds for every caller: there are no privileges of single ones yet.
    """
    if authoring in ("admit", "propose"):
        return None
    return CallError(
        code="not_granted",
        message="writing tools is switched off",
        hint='an operator can set authoring = "propose" or "admit"',
    )


def _denied(name: str, right: str, line: str) -> CallError:
    return CallError(
        code="not_granted",
        message=f"{name} asks {right}, which is not granted",
        hint=f"an operator can write in toolkiln.toml: [grants.{name}] {line}",
    )
