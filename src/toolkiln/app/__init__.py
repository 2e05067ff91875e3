"""Kiln: the only place that wires concrete parts together, for the surfaces and for Python.

`kiln` is the front, light to import; `offer` decides what a name means; `engine` puts
together what calls need and is loaded with the first of them, `guarding` what decides who
may make them; `library` holds search and documents, `authoring` the way of new versions,
`builtin` the tools that Toolkiln brings along. Names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.app.authentication import is_loopback
    from toolkiln.app.authoring import Authored, Draft, Problem, Stage
    from toolkiln.app.changes import Changes
    from toolkiln.app.credentials import (
        KEY_VARIABLE,
        TOKEN_VARIABLE,
        Credential,
        find_credential,
    )
    from toolkiln.app.entrance import Entrance
    from toolkiln.app.examples import shown_calls
    from toolkiln.app.explaining import Explanation, Who, explain, rule_text, shadows
    from toolkiln.app.history import START, History, Place, Seen, Wanted
    from toolkiln.app.keys import MadeKey, Scope
    from toolkiln.app.kiln import PROVIDERS, Kiln
    from toolkiln.app.library import Library
    from toolkiln.app.live import LIVE
    from toolkiln.app.offer import BUILTIN_NAMES, NotAdmitted
    from toolkiln.app.options import CallOptions
    from toolkiln.app.overseeing import operating
    from toolkiln.app.own import OWN, SessionToken, account
    from toolkiln.app.rights import inherited, not_granted
    from toolkiln.app.runs import Run, Runs, status_of
    from toolkiln.app.sources import (
        Permission,
        Prospects,
        SourceCall,
        prepare_source,
        preview,
        prospects,
        read_source,
    )
    from toolkiln.app.supervising import Post, supervise
    from toolkiln.app.visibility import refuse_hidden, refuse_hidden_file
    from toolkiln.app.working import Kept, Station, join_fleet, kept_by_parent, serve_fleet
    from toolkiln.catalog import (
        Assessment,
        Candidate,
        Change,
        Decision,
        ManifestError,
        Repair,
        Report,
        check,
        repairs_for,
    )
    from toolkiln.execution import Diagnosis, Entry, NoSession
    from toolkiln.fleet import (
        DeadLetter,
        FleetState,
        Operator,
        WorkerFigures,
        generate_worker_keys,
        new_loop,
    )
    from toolkiln.looks import paint, svg
    from toolkiln.schema import health, structuring
    from toolkiln.search import evaluation
    from toolkiln.store import AuditFilter, OutputPage, Verification

_HOMES = {
    "Assessment": "toolkiln.catalog",
    "AuditFilter": "toolkiln.store",
    "Authored": "toolkiln.app.authoring",
    "BUILTIN_NAMES": "toolkiln.app.offer",
    "CallOptions": "toolkiln.app.options",
    "Candidate": "toolkiln.catalog",
    "Change": "toolkiln.catalog",
    "Changes": "toolkiln.app.changes",
    "Credential": "toolkiln.app.credentials",
    "DeadLetter": "toolkiln.fleet",
    "Decision": "toolkiln.catalog",
    "Diagnosis": "toolkiln.execution",
    "Draft": "toolkiln.app.authoring",
    "Entrance": "toolkiln.app.entrance",
    "Entry": "toolkiln.execution",
    "Explanation": "toolkiln.app.explaining",
    "FleetState": "toolkiln.fleet",
    "History": "toolkiln.app.history",
    "KEY_VARIABLE": "toolkiln.app.credentials",
    "Kept": "toolkiln.app.working",
    "Kiln": "toolkiln.app.kiln",
    "LIVE": "toolkiln.app.live",
    "Library": "toolkiln.app.library",
    "MadeKey": "toolkiln.app.keys",
    "ManifestError": "toolkiln.catalog",
    "NoSession": "toolkiln.execution",
    "NotAdmitted": "toolkiln.app.offer",
    "OWN": "toolkiln.app.own",
    "Operator": "toolkiln.fleet",
    "OutputPage": "toolkiln.store",
    "PROVIDERS": "toolkiln.app.kiln",
    "Permission": "toolkiln.app.sources",
    "Place": "toolkiln.app.history",
    "Post": "toolkiln.app.supervising",
    "Problem": "toolkiln.app.authoring",
    "Prospects": "toolkiln.app.sources",
    "Repair": "toolkiln.catalog",
    "Report": "toolkiln.catalog",
    "Run": "toolkiln.app.runs",
    "Runs": "toolkiln.app.runs",
    "START": "toolkiln.app.history",
    "Scope": "toolkiln.app.keys",
    "Seen": "toolkiln.app.history",
    "SessionToken": "toolkiln.app.own",
    "SourceCall": "toolkiln.app.sources",
    "Stage": "toolkiln.app.authoring",
    "Station": "toolkiln.app.working",
    "TOKEN_VARIABLE": "toolkiln.app.credentials",
    "Verification": "toolkiln.store",
    "Who": "toolkiln.app.explaining",
    "Wanted": "toolkiln.app.history",
    "WorkerFigures": "toolkiln.fleet",
    "account": "toolkiln.app.own",
    "check": "toolkiln.catalog",
    "evaluation": "toolkiln.search",
    "explain": "toolkiln.app.explaining",
    "find_credential": "toolkiln.app.credentials",
    "health": "toolkiln.schema",
    "inherited": "toolkiln.app.rights",
    "is_loopback": "toolkiln.app.authentication",
    "join_fleet": "toolkiln.app.working",
    "kept_by_parent": "toolkiln.app.working",
    "generate_worker_keys": "toolkiln.fleet",
    "new_loop": "toolkiln.fleet",
    "not_granted": "toolkiln.app.rights",
    "operating": "toolkiln.app.overseeing",
    "paint": "toolkiln.looks",
    "prepare_source": "toolkiln.app.sources",
    "preview": "toolkiln.app.sources",
    "prospects": "toolkiln.app.sources",
    "read_source": "toolkiln.app.sources",
    "refuse_hidden": "toolkiln.app.visibility",
    "refuse_hidden_file": "toolkiln.app.visibility",
    "repairs_for": "toolkiln.catalog",
    "rule_text": "toolkiln.app.explaining",
    "serve_fleet": "toolkiln.app.working",
    "shadows": "toolkiln.app.explaining",
    "shown_calls": "toolkiln.app.examples",
    "status_of": "toolkiln.app.runs",
    "structuring": "toolkiln.schema",
    "supervise": "toolkiln.app.supervising",
    "svg": "toolkiln.looks",
}

__all__ = [
    "BUILTIN_NAMES",
    "KEY_VARIABLE",
    "LIVE",
    "OWN",
    "PROVIDERS",
    "START",
    "TOKEN_VARIABLE",
    "Assessment",
    "AuditFilter",
    "Authored",
    "CallOptions",
    "Candidate",
    "Change",
    "Changes",
    "Credential",
    "DeadLetter",
    "Decision",
    "Diagnosis",
    "Draft",
    "Entrance",
    "Entry",
    "Explanation",
    "FleetState",
    "History",
    "Kept",
    "Kiln",
    "Library",
    "MadeKey",
    "ManifestError",
    "NoSession",
    "NotAdmitted",
    "Operator",
    "OutputPage",
    "Permission",
    "Place",
    "Post",
    "Problem",
    "Prospects",
    "Repair",
    "Report",
    "Run",
    "Runs",
    "Scope",
    "Seen",
    "SessionToken",
    "SourceCall",
    "Stage",
    "Station",
    "Verification",
    "Wanted",
    "Who",
    "WorkerFigures",
    "account",
    "check",
    "evaluation",
    "explain",
    "find_credential",
    "generate_worker_keys",
    "health",
    "inherited",
    "is_loopback",
    "join_fleet",
    "kept_by_parent",
    "new_loop",
    "not_granted",
    "operating",
    "paint",
    "prepare_source",
    "preview",
    "prospects",
    "read_source",
    "refuse_hidden",
    "refuse_hidden_file",
    "repairs_for",
    "rule_text",
    "serve_fleet",
    "shadows",
    "shown_calls",
    "status_of",
    "structuring",
    "supervise",
    "svg",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "evaluation":
        return import_module("toolkiln.search.evaluation")
    return getattr(import_module(_HOMES[name]), name)
