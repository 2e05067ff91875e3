"""Durable state in SQLite or PostgreSQL: calls, versions, security records, the audit log.

`Store` keeps results by call id, background tasks, full outputs, sessions, API keys, rate
buckets, tool settings and approvals; its `archive` keeps the versions of tool files. `AuditLog`
keeps the audit trail. Nothing here decides when to claim, renew or cancel a call; `execution`
does. docs/store.md lists what is stored and what a crash loses.

`store` needs SQLAlchemy, `audit_log` does not.
"""
