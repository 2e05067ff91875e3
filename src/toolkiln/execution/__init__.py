"""Running tools: the gateway, and behind it executors, environments, workspaces, memory.

`Gateway.call` is the one door. The sandbox and the proxy live in packages of their own;
`app` puts the parts together.
"""

from toolkiln.execution.bounds import MAXIMA
from toolkiln.execution.environments import (
    Candidate,
    Entry,
    Environment,
    Environments,
    Report,
    normalise,
    read_requirements_file,
)
from toolkiln.execution.executor import Admitted, Bounds, Executor
from toolkiln.execution.gateway import Gateway, Parts
from toolkiln.execution.inline import InlineExecutor
from toolkiln.execution.memory import Memory
from toolkiln.execution.network import Resolve
from toolkiln.execution.policy import authoring_refusal
from toolkiln.execution.probe import probe, run_examples
from toolkiln.execution.sandbox import SANDBOX_USER, Diagnosis, Networks, Sandboxes
from toolkiln.execution.tasks import Tasks
from toolkiln.execution.workspaces import WorkspaceInfo, Workspaces

__all__ = [
    "MAXIMA",
    "SANDBOX_USER",
    "Admitted",
    "Bounds",
    "Candidate",
    "Diagnosis",
    "Entry",
    "Environment",
    "Environments",
    "Executor",
    "Gateway",
    "InlineExecutor",
    "Memory",
    "Networks",
    "Parts",
    "Report",
    "Resolve",
    "Sandboxes",
    "Tasks",
    "WorkspaceInfo",
    "Workspaces",
    "authoring_refusal",
    "normalise",
    "probe",
    "read_requirements_file",
    "run_examples",
]
