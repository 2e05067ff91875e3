"""Isolated execution: modes, environments, workspaces, network. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.sandbox.bubblewrap import sandbox_user
    from toolkiln.sandbox.environments.environments import Environment, Environments, LockCandidate
    from toolkiln.sandbox.environments.lockfile import normalise, read_requirements_file
    from toolkiln.sandbox.environments.quota import Quota
    from toolkiln.sandbox.environments.uv import Report
    from toolkiln.sandbox.network.access import Networks
    from toolkiln.sandbox.network.proxy import Resolve
    from toolkiln.sandbox.sandbox import Sandbox
    from toolkiln.sandbox.workspaces import Workspaces

_HOMES = {
    "Environment": "environments.environments",
    "Environments": "environments.environments",
    "LockCandidate": "environments.environments",
    "Networks": "network.access",
    "Quota": "environments.quota",
    "Report": "environments.uv",
    "Resolve": "network.proxy",
    "Sandbox": "sandbox",
    "Workspaces": "workspaces",
    "normalise": "environments.lockfile",
    "read_requirements_file": "environments.lockfile",
    "sandbox_user": "bubblewrap",
}

__all__ = [
    "Environment",
    "Environments",
    "LockCandidate",
    "Networks",
    "Quota",
    "Report",
    "Resolve",
    "Sandbox",
    "Workspaces",
    "normalise",
    "read_requirements_file",
    "sandbox_user",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
