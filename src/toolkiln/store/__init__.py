"""Durable state: what the gateway and the catalogs have to find again after a crash.

`Store` holds results by call id, background tasks and full outputs; its `archive` holds
the versions that catalogs let in.

SQLite by default, PostgreSQL by URL, same semantics. It remembers; it decides nothing:
when to claim, renew or cancel is `execution`'s business. Importing this package loads
SQLAlchemy, so whoever needs no store should not import it. docs/store.md says what is
kept and what a crash loses.
"""

from toolkiln.store.archive import Archive
from toolkiln.store.faults import StoreError
from toolkiln.store.store import Store, open_store
from toolkiln.store.values import (
    Arrival,
    Busy,
    Claim,
    Claimed,
    Conflict,
    Content,
    Done,
    Lease,
    OutputPage,
)

__all__ = [
    "Archive",
    "Arrival",
    "Busy",
    "Claim",
    "Claimed",
    "Conflict",
    "Content",
    "Done",
    "Lease",
    "OutputPage",
    "Store",
    "StoreError",
    "open_store",
]
