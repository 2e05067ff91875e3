"""Whether a tool may run as it asks to: its rights, held against what was granted.

Deny by default: a right that is asked for and not granted refuses the call, because a
tool that runs without it would only fail later and say less. Whether a caller may run the
tool at all is for `rules`.
"""

from collections.abc import Collection

from toolkiln.errors import InputError
from toolkiln.execution.executor import Admitted
from toolkiln.execution.network import granted
from toolkiln.execution.tool_settings import unreviewed_hint
from toolkiln.model import Caller, CallError, Privilege


def refusal(tool: Admitted, caller: Caller, secrets: Collection[str]) -> CallError | None:
    """Why a call is denied that is to be handed these secrets; None if it is not."""
    rights, grant, name = tool.spec.rights, tool.grant, tool.spec.name
    if not rights.sandbox and Privilege.UNSANDBOXED_EXEC not in caller.privileges:
        return lacks(caller, Privilege.UNSANDBOXED_EXEC, f"run {name} outside the sandbox")
    if secrets and (missing := sorted(set(secrets) - set(grant.secrets))):
        listed = ", ".join(f'"{one}"' for one in sorted({*grant.secrets, *secrets}))
        return _denied(tool, f"for the secret {missing[0]}", f"secrets = [{listed}]")
    if tool.function is not None:
        return None  # code of this process asks nobody for files and hosts
    if not rights.sandbox and grant.sandbox:
        return _denied(tool, "to run without a sandbox", "sandbox = false")
    if rights.workspace == "write" and grant.workspace != "write":
        return _denied(tool, "to write to the workspace", 'workspace = "write"')
    if rights.workspace == "read" and grant.workspace is None:
        return _denied(tool, "to read the workspace", 'workspace = "read"')
    try:
        out_of_reach = [h for h in rights.network if not granted([h], grant.network).rules]
    except InputError as error:
        return CallError(code="not_granted", message=error.message, hint=error.hint)
    if out_of_reach:
        hosts = ", ".join(f'"{host}"' for host in rights.network)
        return _denied(tool, f"to reach {out_of_reach[0]}", f"network = [{hosts}]")
    return None


def authoring_refusal(caller: Caller, authoring: str, *, may_call: bool) -> CallError | None:
    """Return why a caller may neither write nor propose tools; None if they may.

    `may_call` is whether the rules let them call `write_python_tool`.
    """
    if authoring not in ("auto", "propose", "admit"):  # `off`, and what a program made up
        return CallError(
            code="not_granted",
            message="permission denied: writing tools is disabled",
            hint='an operator can set authoring = "auto", "propose" or "admit"',
        )
    if not may_call and Privilege.WRITE_TOOLS not in caller.privileges:
        return lacks(caller, Privilege.WRITE_TOOLS, "write tools")
    return None


def admits_own_tools(caller: Caller, authoring: str, *, local: bool = False) -> bool:
    """Return whether a tool that a caller writes is admitted at once; else it is a proposal.

    `local`: the caller is an agent of the account that runs this process.
    """
    if authoring == "propose":
        return False
    return Privilege.WRITE_TOOLS in caller.privileges or (authoring == "admit" and local)


def lacks(caller: Caller, privilege: Privilege, what: str) -> CallError:
    """Return the error of a caller who lacks a privilege to do something."""
    who = caller.who or "this caller"
    return CallError(
        code="not_allowed",
        message=f"permission denied: {who} may not {what} without the privilege {privilege}",
        hint=how_to_get(privilege, caller),
    )


def how_to_get(privilege: Privilege, caller: Caller) -> str:
    """Say how a caller gets a privilege."""
    if caller.is_anonymous:
        return "sign in: with the link that the server printed when it started, or with an API key"
    who = caller.who or "USER"
    return f'an operator can write in toolkiln.toml: [privileges] "{who}" = ["{privilege}"]'


def _denied(tool: Admitted, right: str, line: str) -> CallError:
    name = tool.spec.name
    hint = f"an operator can write in toolkiln.toml: [grants.{name}] {line}"
    return CallError(
        code="not_granted",
        message=f"{name} asks {right}, which is not granted",
        hint=hint if tool.is_reviewed else unreviewed_hint(tool.spec),
    )
