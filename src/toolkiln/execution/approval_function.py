"""Whether a person has to approve a call, as the tool's own function of the arguments says.

The function runs alone, in the sandbox whatever its tool was granted, on an object of its
own: `validate_args` and the tool itself are not run for it. It is the tool's code and can
only make a call easier for itself, so that it counts where an operator admitted it, and
any doubt means that people are asked. What rules and people say is decided elsewhere.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.executor import Admitted, Bounds, Executor, Invocation
from toolkiln.model import Caller, Dialect, Rights, Status, ToolSpec

_BOUNDS = Bounds(timeout=2.0, cpu=2.0, processes=8, disk=1 << 20)
"""Memory as for any tool: its file is imported as a whole, with what that imports."""
_NO_RIGHTS = Rights()
_NOBODY = Caller()


async def wants_approval(
    executor: Executor,
    tool: Admitted,
    arguments: dict[str, Any],
    *,
    caller: Caller = _NOBODY,
    site: Path | None = None,
    is_nested: bool = False,
) -> bool:
    """Ask `approval_function`: False only if it returns just that within two seconds.

    The executor is the one that runs the tool; `site` holds the packages of its environment. The
    run counts for the caller, of whom the function learns the user only.
    """
    asked = _asked(tool)
    if asked is None:
        return tool.spec.rights.needs_approval
    # A function of this process could change what a person is shown.
    given = deepcopy(arguments) if asked.function is not None else arguments
    user = Caller(user_id=caller.user_id, platform=caller.platform)
    question = Invocation(asked, given, user, _BOUNDS, site, is_nested=is_nested)
    try:
        outcome = await executor.run(question)
    except (BackendError, OSError):
        return True
    return outcome.status is not Status.OK or outcome.value is not False


def _asked(tool: Admitted) -> Admitted | None:
    """The function as if it were the tool, without any of its rights; None if there is none."""
    entry = tool.spec.rights.approval_function
    if entry is None:
        return None
    spec = _spec(tool.spec, entry)
    if tool.function is None:
        return Admitted(spec, tool.sources)
    declared = getattr(tool.function, "__toolkiln_tool__", {}).get("needs_approval")
    return Admitted(spec, tool.sources, function=declared) if callable(declared) else None


def _spec(spec: ToolSpec, entry: str) -> ToolSpec:
    return spec.model_copy(
        update={
            "entry": entry,
            "dialect": Dialect.FUNCTION,  # no `validate_args`, no valves
            "injected": {},
            "whole_arguments": "*",
            "isolation": "call",  # nobody's arguments are kept for anybody
            "toolkit": None,
            "rights": _NO_RIGHTS,
            "settings": {},
        }
    )
