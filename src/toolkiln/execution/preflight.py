"""Preflight: the checks between valid arguments and a run.

In order: settings, permissions, secrets, rate, approval, and the audit record that has to exist
before a privileged call starts. A failing check raises `CallRefused`. A person is asked last,
about a call that could run; secrets are resolved once the approval and the record exist.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError, InputError
from toolkiln.execution.call_events import RunningCall
from toolkiln.execution.executor import Bounds, Executor, Invocation
from toolkiln.execution.outcomes import as_call_error, invalid_arguments
from toolkiln.execution.questions import QuestionChannel
from toolkiln.model.call import CallError, Status
from toolkiln.model.identity import ANONYMOUS, Caller, Privilege
from toolkiln.model.network import granted
from toolkiln.model.policy import PolicyDecision
from toolkiln.model.spec import Dialect, Permissions
from toolkiln.model.tool import ResolvedTool
from toolkiln.schema.arguments import Problems, check
from toolkiln.security.approvals import ApprovalRequest
from toolkiln.security.guard import Guard
from toolkiln.security.masking import SecretError
from toolkiln.security.secrets import find_references
from toolkiln.security.security import missing_privilege
from toolkiln.security.sessions import NoSession
from toolkiln.security.tool_settings import NO_SETTINGS, CallSettings, unreviewed_hint


def permission_refusal(
    tool: ResolvedTool, caller: Caller, secrets: Collection[str]
) -> CallError | None:
    """Return which permission for a call with these secrets is missing; None if none is."""
    rights, grant, name = tool.spec.rights, tool.grant, tool.spec.name
    if not rights.sandbox and Privilege.UNSANDBOXED_EXEC not in caller.privileges:
        return missing_privilege(
            caller, Privilege.UNSANDBOXED_EXEC, f"run {name} outside the sandbox"
        )
    if secrets and (missing := sorted(set(secrets) - set(grant.secrets))):
        names = ", ".join(f'"{secret}"' for secret in sorted({*grant.secrets, *secrets}))
        return _not_granted(tool, f"the secret {missing[0]}", f"secrets = [{names}]")
    if tool.function is not None:
        return None  # code of this process reaches files and hosts without us
    if not rights.sandbox and grant.sandbox:
        return _not_granted(tool, "running without a sandbox", "sandbox = false")
    if rights.workspace == "write" and grant.workspace != "write":
        return _not_granted(tool, "write access to the workspace", 'workspace = "write"')
    if rights.workspace == "read" and grant.workspace is None:
        return _not_granted(tool, "read access to the workspace", 'workspace = "read"')
    try:
        unreachable = [h for h in rights.network if not granted([h], grant.network).rules]
    except InputError as error:
        return CallError(code="not_granted", message=error.message, hint=error.hint)
    if unreachable:
        hosts = ", ".join(f'"{host}"' for host in rights.network)
        return _not_granted(tool, f"access to {unreachable[0]}", f"network = [{hosts}]")
    return None


def _not_granted(tool: ResolvedTool, permission: str, line: str) -> CallError:
    name = tool.spec.name
    hint = f"the operator can grant it in toolkiln.toml: [grants.{name}] {line}"
    return CallError(
        code="not_granted",
        message=f"{name} requests {permission}, which is not granted",
        hint=hint if tool.is_reviewed else unreviewed_hint(tool.spec),
    )


class CallRefused(Exception):
    """A call that does not run, with the status and error of its result."""

    def __init__(self, status: Status, error: CallError, tool: ResolvedTool | None = None) -> None:
        super().__init__(error.message)
        self.status, self.error, self.tool = status, error, tool


@dataclass(slots=True)
class PreparedCall:
    """A call with its caller, tool, decision and checked arguments."""

    running: RunningCall
    caller: Caller
    tool: ResolvedTool
    decision: PolicyDecision
    arguments: dict[str, Any]
    """An approval may replace them."""
    notes: tuple[str, ...]
    channel: QuestionChannel | None = None
    """None: the caller cannot be asked."""

    @property
    def is_privileged(self) -> bool:
        """Whether the tool requires an audit record before the run."""
        return not self.tool.spec.rights.sandbox or self.tool.spec.hints.destructive is True


ApprovalCheck = Callable[[PreparedCall], Awaitable[bool]]
"""Returns whether the tool requires an approval for these arguments."""


@dataclass(frozen=True, slots=True)
class CallInputs:
    """Settings and secrets for a run."""

    settled: CallSettings
    secrets: dict[str, str]
    """Values by name; stored nowhere else."""


NO_INPUTS = CallInputs(NO_SETTINGS, {})
_ANONYMOUS_SECRET = CallError(
    code="not_allowed",
    message="permission denied: anonymous callers may not use secrets",
    hint=f'sign in, or add a rule with users = ["{ANONYMOUS}"]',
)


def needs_no_preflight(guard: Guard, prepared: PreparedCall) -> bool:
    """Return whether no check applies: the common case for functions of this process."""
    tool, spec = prepared.tool, prepared.tool.spec
    rights = spec.rights
    return (
        tool.function is not None
        and prepared.decision.effect == "allow"
        and not (rights.needs_approval or rights.secrets or spec.settings or prepared.is_privileged)
        and not guard.rates()
        and not find_references(prepared.arguments)
    )


async def preflight(
    guard: Guard, prepared: PreparedCall, tool_needs_approval: ApprovalCheck
) -> CallInputs:
    """Run all checks and return the settings and secrets of the call.

    Raises:
        CallRefused: the call may not run.
        ToolkilnError: the platform failed.
    """
    tool, caller, spec = prepared.tool, prepared.caller, prepared.tool.spec
    settled = NO_SETTINGS
    if spec.settings:
        settings = await guard.settings.for_call(spec, caller, is_reviewed=tool.is_reviewed)
        if isinstance(settings, CallError):
            raise CallRefused(Status.UNAVAILABLE, settings, tool)
        settled = settings
    names = permitted_secrets(prepared, settled)
    if names:
        await asyncio.to_thread(_secret_values, guard, names)  # raises if one is not set
    draws = guard.rates().draws(caller, spec)
    if draws and (early := await guard.rate_refusal(spec, draws, prepared.running.call.timeout)):
        raise CallRefused(Status.DENIED, early, tool)
    reason = None
    if spec.rights.needs_approval or prepared.decision.effect == "ask":
        reason = await _approval_reason(prepared, tool_needs_approval)
        if reason is not None:
            await _obtain_approval(guard, prepared, reason)
            names = permitted_secrets(prepared, settled)
    if names or reason or prepared.is_privileged:
        running = prepared.running
        running.set_arguments(prepared.arguments)
        await asyncio.to_thread(guard.recorder.commit, running.audit_record(), running)
    if not names and settled is NO_SETTINGS:
        return NO_INPUTS
    return CallInputs(settled, await asyncio.to_thread(_secret_values, guard, names))


def permitted_secrets(prepared: PreparedCall, settled: CallSettings = NO_SETTINGS) -> set[str]:
    """Return the names of all secrets that the call uses."""
    tool, rights = prepared.tool, prepared.tool.spec.rights
    requested = find_references(prepared.arguments)
    if rights.secrets:
        requested.update(rights.secrets)
    if error := permission_refusal(tool, prepared.caller, requested):
        raise CallRefused(Status.DENIED, error, tool)
    names = requested | settled.secrets
    if names and prepared.caller.is_anonymous and not prepared.decision.names_user:
        raise CallRefused(Status.DENIED, _ANONYMOUS_SECRET, tool)
    return names


def _secret_values(guard: Guard, names: Iterable[str]) -> dict[str, str]:
    values = {}
    for name in names:
        value = guard.secrets.get(name)
        if value is None:
            raise SecretError(
                f"the secret {name} is not set", hint=f"set it with `toolkiln secrets set {name}`"
            )
        values[name] = value
    return values


async def _approval_reason(
    prepared: PreparedCall, tool_needs_approval: ApprovalCheck
) -> str | None:
    """Return why the call requires an approval; None if it does not."""
    name, rights = prepared.running.call.tool, prepared.tool.spec.rights
    if prepared.decision.effect == "ask":
        return prepared.decision.why
    if rights.approval_function is None:
        return f"{name} requires approval for every call"
    if await tool_needs_approval(prepared):
        return f"{name} requires approval for these arguments"
    return None


async def _obtain_approval(guard: Guard, prepared: PreparedCall, reason: str) -> None:
    """Wait for a person's decision, and continue with the arguments they approved."""
    tool, running = prepared.tool, prepared.running
    call = running.call
    text = json.dumps(prepared.arguments)
    if running.mask.text(text) != text:
        leaking = CallError(
            code="secret_in_arguments",
            message=f"the arguments of {call.tool} contain the value of a secret",
            hint="pass `secret:NAME` instead: a person has to read the arguments",
        )
        raise CallRefused(Status.DENIED, leaking, tool)
    own = prepared.decision.approve_own
    request = ApprovalRequest(
        call, prepared.caller, tool.spec.digest, prepared.arguments, reason, own
    )
    running.detail, running.is_waiting = "waits for approval", True
    obtained = await guard.approvals.obtain(request, running.emit)
    running.detail, running.is_waiting = obtained.detail, False
    if obtained.arguments is None:
        assert obtained.error is not None
        raise CallRefused(Status.DENIED, obtained.error, tool)
    await _check_again(guard, prepared)
    checked = check(tool.spec, obtained.arguments)
    if isinstance(checked, Problems):
        raise CallRefused(Status.INVALID, invalid_arguments(checked), tool)
    prepared.arguments = checked.arguments


async def _check_again(guard: Guard, prepared: PreparedCall) -> None:
    """Refuse the call if the session ended or the rules changed during the approval."""
    call, tool = prepared.running.call, prepared.tool
    try:
        prepared.caller = await guard.caller(call.session, running=True)
    except NoSession as error:
        raise CallRefused(Status.DENIED, as_call_error(error), tool) from None
    decision = guard.decide(prepared.caller, tool.spec)
    if decision.effect == "deny":
        raise CallRefused(Status.DENIED, not_allowed(call.tool, decision), tool)


def not_allowed(tool: str, decision: PolicyDecision) -> CallError:
    """Return the error of a call that the rules deny."""
    return CallError(
        code="not_allowed",
        message=f"you may not run {tool}: {decision.why}",
        hint="`toolkiln policy explain USER TOOL` shows an operator which rule decides",
    )


def invalid_caller(caller: Caller) -> CallError | None:
    """Return why the caller cannot be sent to a sandbox; None if it can."""
    identity = [
        caller.user_id, caller.agent_id, caller.agent_state,
        caller.platform, caller.guild_id, caller.channel_id,
    ]  # fmt: skip
    try:
        _encoded(identity)
    except (TypeError, ValueError, RecursionError) as error:
        return CallError(code="invalid_caller", message=f"the caller is not plain JSON: {error}")
    return None


def invalid_request(request: Mapping[str, Any]) -> CallError | None:
    """Return why the `request` of a call cannot be sent to its tool; None if it can."""
    problem = None
    try:
        if len(_encoded(request)) > _MAX_REQUEST:
            problem = f"is larger than {_MAX_REQUEST:,} bytes of JSON"
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"is not plain JSON: {error}"
    if problem is None:
        return None
    return CallError(code="invalid_caller", message=f"the request context {problem}")


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


_MAX_REQUEST = 16_384
"""Bytes of the `request` of a call."""
_BOUNDS = Bounds(timeout=2.0, cpu=2.0, processes=8, disk=1 << 20)
"""Of an approval function; with the memory of any tool, because it imports the same file."""
_NO_PERMISSIONS = Permissions()
_NO_CALLER = Caller()


async def needs_approval(
    executor: Executor,
    tool: ResolvedTool,
    arguments: dict[str, Any],
    *,
    caller: Caller = _NO_CALLER,
    site: Path | None = None,
    is_nested: bool = False,
) -> bool:
    """Run the tool's approval function: False only if it returns False within two seconds.

    The executor is that of the tool, `site` has the packages of its environment. The run counts
    for the caller; the function learns nothing but the user.
    """
    function = _approval_function(tool)
    if function is None:
        return tool.spec.rights.needs_approval
    # A function of this process could change the arguments that a person is shown.
    copied = deepcopy(arguments) if function.function is not None else arguments
    user = Caller(user_id=caller.user_id, platform=caller.platform)
    invocation = Invocation(function, copied, user, _BOUNDS, site, is_nested=is_nested)
    try:
        outcome = await executor.run(invocation)
    except (BackendError, OSError):
        return True
    return outcome.status is not Status.OK or outcome.value is not False


def _approval_function(tool: ResolvedTool) -> ResolvedTool | None:
    """Return the approval function as a tool without permissions; None if there is none."""
    entry = tool.spec.rights.approval_function
    if entry is None:
        return None
    spec = tool.spec.model_copy(
        update={
            "entry": entry,
            "dialect": Dialect.FUNCTION,  # no `validate_args`, no valves
            "injected": {},
            "whole_arguments": "*",
            "isolation": "call",  # no process sees the arguments of two calls
            "toolkit": None,
            "rights": _NO_PERMISSIONS,
            "settings": {},
        }
    )
    if tool.function is None:
        return ResolvedTool(spec, tool.sources)
    declared = getattr(tool.function, "__toolkiln_tool__", {}).get("needs_approval")
    return ResolvedTool(spec, tool.sources, function=declared) if callable(declared) else None
