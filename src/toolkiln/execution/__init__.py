"""Running tools: the gateway, and behind it executors, environments, workspaces, memory.

`Gateway.call` is the one door. The sandbox and the proxy live in packages of their own;
`app` puts the parts together.
"""

from toolkiln.execution.acting import acting_session
from toolkiln.execution.approvals import ApprovalBook, Approvals, may_answer
from toolkiln.execution.asking import Ask, Asking
from toolkiln.execution.audit import AuditFailed, Recorder, audit_key, clean
from toolkiln.execution.bounds import MAXIMA
from toolkiln.execution.call_book import CallBook
from toolkiln.execution.concealing import ConcealedEvents
from toolkiln.execution.elsewhere import Elsewhere
from toolkiln.execution.environments import (
    Candidate,
    Entry,
    Environment,
    Environments,
    Quota,
    Report,
    normalise,
    read_requirements_file,
)
from toolkiln.execution.executor import Admitted, Bounds, Executor
from toolkiln.execution.gateway import Gateway, Parts
from toolkiln.execution.guard import BucketBook, Guard, Trail
from toolkiln.execution.inline import InlineExecutor, Threads
from toolkiln.execution.memory import Memory
from toolkiln.execution.network import Resolve
from toolkiln.execution.observing import careful
from toolkiln.execution.policy import admits_own_tools, authoring_refusal, how_to_get, lacks
from toolkiln.execution.probe import probe, run_examples
from toolkiln.execution.rates import Rates
from toolkiln.execution.redaction import described_arguments
from toolkiln.execution.rules import Rules, decide
from toolkiln.execution.sandbox import Diagnosis, Networks, Sandboxes, sandbox_user
from toolkiln.execution.secrets import SecretError, Secrets
from toolkiln.execution.sessions import (
    NoSession,
    SessionBook,
    Sessions,
    refuse_ambiguous,
    token_hash,
)
from toolkiln.execution.tasks import Tasks
from toolkiln.execution.tool_settings import ToolSettings
from toolkiln.execution.workspaces import WorkspaceInfo, Workspaces

__all__ = [
    "MAXIMA",
    "Admitted",
    "ApprovalBook",
    "Approvals",
    "Ask",
    "Asking",
    "AuditFailed",
    "Bounds",
    "BucketBook",
    "CallBook",
    "Candidate",
    "ConcealedEvents",
    "Diagnosis",
    "Elsewhere",
    "Entry",
    "Environment",
    "Environments",
    "Executor",
    "Gateway",
    "Guard",
    "InlineExecutor",
    "Memory",
    "Networks",
    "NoSession",
    "Parts",
    "Quota",
    "Rates",
    "Recorder",
    "Report",
    "Resolve",
    "Rules",
    "Sandboxes",
    "SecretError",
    "Secrets",
    "SessionBook",
    "Sessions",
    "Tasks",
    "Threads",
    "ToolSettings",
    "Trail",
    "WorkspaceInfo",
    "Workspaces",
    "acting_session",
    "admits_own_tools",
    "audit_key",
    "authoring_refusal",
    "careful",
    "clean",
    "decide",
    "described_arguments",
    "how_to_get",
    "lacks",
    "may_answer",
    "normalise",
    "probe",
    "read_requirements_file",
    "refuse_ambiguous",
    "run_examples",
    "sandbox_user",
    "token_hash",
]
