"""Frozen values that cross package borders."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.model.admission import AdmissionDecision as AdmissionDecision
    from toolkiln.model.audit import AuditFilter as AuditFilter
    from toolkiln.model.call import Call as Call
    from toolkiln.model.call import CallError as CallError
    from toolkiln.model.call import Event as Event
    from toolkiln.model.call import Result as Result
    from toolkiln.model.call import Status as Status
    from toolkiln.model.call import Task as Task
    from toolkiln.model.identity import Caller as Caller
    from toolkiln.model.identity import Privilege as Privilege
    from toolkiln.model.policy import Rule as Rule
    from toolkiln.model.question import FormAnswer as FormAnswer
    from toolkiln.model.question import FormQuestion as FormQuestion
    from toolkiln.model.question import RootsAnswer as RootsAnswer
    from toolkiln.model.question import RootsQuestion as RootsQuestion
    from toolkiln.model.question import SampleAnswer as SampleAnswer
    from toolkiln.model.question import SampleQuestion as SampleQuestion
    from toolkiln.model.source import Finding as Finding
    from toolkiln.model.spec import ToolSpec as ToolSpec

_PUBLIC = {
    "admission": ("AdmissionDecision",),
    "audit": ("AuditFilter",),
    "call": ("Call", "CallError", "Event", "Result", "Status", "Task"),
    "identity": ("Caller", "Privilege"),
    "policy": ("Rule",),
    "question": (
        "FormAnswer",
        "FormQuestion",
        "RootsAnswer",
        "RootsQuestion",
        "SampleAnswer",
        "SampleQuestion",
    ),
    "source": ("Finding",),
    "spec": ("ToolSpec",),
}

if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        for module, names in _PUBLIC.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
