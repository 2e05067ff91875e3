"""Durable state of the gateway: results by call id, background tasks, full outputs.

SQLite by default, PostgreSQL by URL, same semantics. It remembers; it decides nothing:
when to claim, renew or cancel is `execution`'s business. Importing this package loads
SQLAlchemy, so whoever needs no store should not import it. docs/store.md says what is
kept and what a crash loses.
"""

from toolkiln.store.faults import StoreError
from toolkiln.store.store import Store, open_store
from toolkiln.store.values import Busy, Claim, Claimed, Conflict, Done, Lease, OutputPage

__all__ = [
    "Busy",
    "Claim",
    "Claimed",
    "Conflict",
    "Done",
    "Lease",
    "OutputPage",
    "Store",
    "StoreError",
    "open_store",
]
