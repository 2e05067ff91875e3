"""Durable state: what the gateway and the catalogs have to find again after a crash.

`Store` holds results by call id, background tasks and full outputs; its `archive` holds
the versions that catalogs let in; sessions, API keys, rates, settings of tools and
approvals have attributes of their own. `Ledger` holds the audit.

SQLite by default, PostgreSQL by URL, same semantics. It remembers; it decides nothing:
when to claim, renew or cancel is `execution`'s business. Names load on first use: the
store brings SQLAlchemy with it, which the ledger does without. docs/store.md says what is
kept and what a crash loses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.store.approvals import Approvals
    from toolkiln.store.archive import Archive
    from toolkiln.store.buckets import Buckets
    from toolkiln.store.errors import StoreError, Unreachable
    from toolkiln.store.guarding import Keys, Sessions
    from toolkiln.store.ledger import Ledger, open_ledger
    from toolkiln.store.pages import no_output, page_bounds
    from toolkiln.store.records import hash_of, intact, key_of, scope_of, write_json
    from toolkiln.store.retry import PATIENCE, while_unreachable
    from toolkiln.store.settings import ToolSettings
    from toolkiln.store.store import Store, open_store
    from toolkiln.store.values import (
        KEEP_SECONDS,
        OUTPUT_CHARACTERS,
        Arrival,
        AuditFilter,
        Busy,
        Claim,
        Claimed,
        Conflict,
        Content,
        Done,
        Lease,
        OutputPage,
        Verification,
    )

_HOMES = {
    "KEEP_SECONDS": "values",
    "OUTPUT_CHARACTERS": "values",
    "PATIENCE": "retry",
    "Approvals": "approvals",
    "Archive": "archive",
    "Arrival": "values",
    "AuditFilter": "values",
    "Buckets": "buckets",
    "Busy": "values",
    "Claim": "values",
    "Claimed": "values",
    "Conflict": "values",
    "Content": "values",
    "Done": "values",
    "Keys": "guarding",
    "Lease": "values",
    "Ledger": "ledger",
    "OutputPage": "values",
    "Sessions": "guarding",
    "Store": "store",
    "StoreError": "errors",
    "ToolSettings": "settings",
    "Unreachable": "errors",
    "Verification": "values",
    "hash_of": "records",
    "intact": "records",
    "key_of": "records",
    "no_output": "pages",
    "open_ledger": "ledger",
    "open_store": "store",
    "page_bounds": "pages",
    "scope_of": "records",
    "while_unreachable": "retry",
    "write_json": "records",
}

__all__ = [
    "KEEP_SECONDS",
    "OUTPUT_CHARACTERS",
    "PATIENCE",
    "Approvals",
    "Archive",
    "Arrival",
    "AuditFilter",
    "Buckets",
    "Busy",
    "Claim",
    "Claimed",
    "Conflict",
    "Content",
    "Done",
    "Keys",
    "Lease",
    "Ledger",
    "OutputPage",
    "Sessions",
    "Store",
    "StoreError",
    "ToolSettings",
    "Unreachable",
    "Verification",
    "hash_of",
    "intact",
    "key_of",
    "no_output",
    "open_ledger",
    "open_store",
    "page_bounds",
    "scope_of",
    "while_unreachable",
    "write_json",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
