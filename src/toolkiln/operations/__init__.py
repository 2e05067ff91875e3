"""Operations: what can be done to a Kiln, and the parts that do it. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from toolkiln.catalog import BUILTIN_NAMES, CatalogChange, FileReport
    from toolkiln.execution import CallObserver, EventCallback, RunningCall, RunRecord
    from toolkiln.operations.builtin_tools import Builtin
    from toolkiln.operations.calls import Tasks
    from toolkiln.operations.engine import CallEngine, CallOptions
    from toolkiln.operations.library import (
        Allow,
        Library,
        Usages,
        compiled,
        listed_tools,
        named,
        provider_form,
        refuse_other_roles,
    )
    from toolkiln.operations.loop_thread import LoopThread
    from toolkiln.operations.model_messages import handle
    from toolkiln.operations.operation import (
        Nothing,
        Operation,
        OperationContext,
        Report,
        operation,
    )
    from toolkiln.operations.pages import PageQuery
    from toolkiln.operations.policy import inherited, not_granted
    from toolkiln.operations.runs import History
    from toolkiln.operations.services import CallStores, FleetAdmin, Services, SqlStores, part
    from toolkiln.operations.sources import (
        Permission,
        PreparedRun,
        Prospects,
        SourceCall,
        prepare_source,
        preview,
        prospects,
        read_source,
    )
    from toolkiln.operations.visibility import (
        refuse_hidden,
        refuse_hidden_file,
    )
    from toolkiln.schema import Provider, compile_tool, parse_texts, result_structurer
    from toolkiln.search import Comparison, Evaluation, QueryOutcome, SearchFunction

_HOMES = {
    "PageQuery": "pages",
    "Nothing": "operation",
    "SearchFunction": "toolkiln.search",
    "QueryOutcome": "toolkiln.search",
    "Evaluation": "toolkiln.search",
    "Comparison": "toolkiln.search",
    "BUILTIN_NAMES": "toolkiln.catalog",
    "CatalogChange": "toolkiln.catalog",
    "compile_tool": "toolkiln.schema",
    "parse_texts": "toolkiln.schema",
    "result_structurer": "toolkiln.schema",
    "EventCallback": "toolkiln.execution",
    "FileReport": "toolkiln.catalog",
    "RunRecord": "toolkiln.execution",
    "RunningCall": "toolkiln.execution",
    "Allow": "library",
    "Builtin": "builtin_tools",
    "CallEngine": "engine",
    "CallObserver": "toolkiln.execution",
    "CallOptions": "engine",
    "CallStores": "services",
    "FleetAdmin": "services",
    "History": "runs",
    "Library": "library",
    "LoopThread": "loop_thread",
    "Operation": "operation",
    "OperationContext": "operation",
    "Permission": "sources",
    "PreparedRun": "sources",
    "Prospects": "sources",
    "Provider": "toolkiln.schema",
    "Report": "operation",
    "Services": "services",
    "SourceCall": "sources",
    "SqlStores": "services",
    "Tasks": "calls",
    "Usages": "library",
    "compiled": "library",
    "handle": "model_messages",
    "inherited": "policy",
    "listed_tools": "library",
    "named": "library",
    "not_granted": "policy",
    "operation": "operation",
    "part": "services",
    "prepare_source": "sources",
    "preview": "sources",
    "prospects": "sources",
    "provider_form": "library",
    "read_source": "sources",
    "refuse_hidden": "visibility",
    "refuse_hidden_file": "visibility",
    "refuse_other_roles": "library",
}
_TABLE = {
    "approvals": ("approvals",),
    "audit": ("audit",),
    "calls": ("calls",),
    "catalog": ("catalog",),
    "dead_letters": ("system",),
    "docs": ("search",),
    "environments": ("system",),
    "fleet": ("system",),
    "outputs": ("calls",),
    "proposals": ("proposals",),
    "rules": ("policy",),
    "runs": ("runs",),
    "sandbox": ("system",),
    "search": ("search",),
    "secrets": ("secrets",),
    "settings": ("system",),
    "sources": ("sources",),
    "tool_settings": ("tool_settings",),
    "toolkits": ("tools",),
    "tools": ("tools", "tool_files"),
    "usages": ("search",),
    "versions": ("versions",),
    "workspaces": ("system",),
}
"""Modules of operations, by the noun that their names begin with."""

__all__ = [
    "BUILTIN_NAMES",
    "Allow",
    "Builtin",
    "CallEngine",
    "CallObserver",
    "CallOptions",
    "CallStores",
    "CatalogChange",
    "Comparison",
    "Evaluation",
    "EventCallback",
    "FileReport",
    "FleetAdmin",
    "History",
    "Library",
    "LoopThread",
    "Nothing",
    "Operation",
    "OperationContext",
    "PageQuery",
    "Permission",
    "PreparedRun",
    "Prospects",
    "Provider",
    "QueryOutcome",
    "Report",
    "RunRecord",
    "RunningCall",
    "SearchFunction",
    "Services",
    "SourceCall",
    "SqlStores",
    "Tasks",
    "Usages",
    "compile_tool",
    "compiled",
    "find_operation",
    "handle",
    "inherited",
    "listed_tools",
    "named",
    "not_granted",
    "operation",
    "parse_texts",
    "part",
    "prepare_source",
    "preview",
    "prospects",
    "provider_form",
    "read_source",
    "refuse_hidden",
    "refuse_hidden_file",
    "refuse_other_roles",
    "result_structurer",
]


def find_operation(name: str) -> "Operation[Any, Any] | None":
    """Return an operation by its name; only the modules of its noun are imported."""
    for module in _TABLE.get(name.partition(".")[0], ()):
        for found in import_module(f"{__name__}.{module}").OPERATIONS:
            if found.name == name:
                return cast("Operation[Any, Any]", found)
    return None


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES[name]
        module = home if home.startswith("toolkiln.") else f"{__name__}.{home}"
        return getattr(import_module(module), name)
