"""Durable state in SQLite or PostgreSQL: calls, versions, security records, the audit log.

`Store` keeps results by call id, background tasks, full outputs, sessions, API keys, rate
buckets, tool settings and approvals; its `archive` keeps the versions of tool files. `AuditLog`
keeps the audit trail. Nothing here decides when to claim, renew or cancel a call; `execution`
does. docs/store.md lists what is stored and what a crash loses.

Names load on first use: `Store` needs SQLAlchemy, `AuditLog` does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.store.approvals import SqlApprovals
    from toolkiln.store.audit_log import AuditLog, open_audit_log
    from toolkiln.store.codec import (
        check_page_bounds,
        decode_guard,
        hash_of,
        key_of,
        output_not_found,
        scope_of,
        write_json,
    )
    from toolkiln.store.retry import REDIS_WAIT_SECONDS, retry_while_unreachable
    from toolkiln.store.security_stores import SqlApiKeys, SqlBuckets
    from toolkiln.store.store import Store, open_store
    from toolkiln.store.version_archive import VersionArchive

_HOMES = {
    "VersionArchive": "version_archive",
    "AuditLog": "audit_log",
    "REDIS_WAIT_SECONDS": "retry",
    "SqlApiKeys": "security_stores",
    "SqlApprovals": "approvals",
    "SqlBuckets": "security_stores",
    "Store": "store",
    "hash_of": "codec",
    "decode_guard": "codec",
    "key_of": "codec",
    "output_not_found": "codec",
    "open_audit_log": "audit_log",
    "open_store": "store",
    "check_page_bounds": "codec",
    "scope_of": "codec",
    "retry_while_unreachable": "retry",
    "write_json": "codec",
}

__all__ = [
    "REDIS_WAIT_SECONDS",
    "AuditLog",
    "SqlApiKeys",
    "SqlApprovals",
    "SqlBuckets",
    "Store",
    "VersionArchive",
    "check_page_bounds",
    "decode_guard",
    "hash_of",
    "key_of",
    "open_audit_log",
    "open_store",
    "output_not_found",
    "retry_while_unreachable",
    "scope_of",
    "write_json",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
