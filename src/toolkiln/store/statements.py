"""SQL statements of `Store`, built once: building costs SQLAlchemy more than running.

Values are bound by name (`:the_key`, `:seconds` …). `now` is a parameter on SQLite and the
server's clock on PostgreSQL.
"""

from sqlalchemy import (
    ColumnElement,
    Double,
    Integer,
    String,
    and_,
    bindparam,
    case,
    exists,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.store.tables import AnyText, approvals, calls, chunks, outputs

CHUNK = 65_536
"""Characters of an output in one row."""

_KEY = bindparam("the_key", type_=String)
_TOKEN = bindparam("the_token", type_=String)
_SCOPE = bindparam("the_scope", type_=String)
_HANDLE = bindparam("the_handle", type_=String)
_SECONDS = bindparam("seconds", type_=Double)
_LOST_SECONDS = bindparam("lost_seconds", type_=Double)
"""How long a call with an expired lease is kept."""


def is_pending(now: ColumnElement[float]) -> ColumnElement[bool]:
    """Match pending approvals. One from the future is not pending: the clock was set back."""
    return and_(
        approvals.c.state == "pending", approvals.c.created <= now, approvals.c.expires > now
    )


class Statements:
    """Statements for a database whose time is `now`."""

    def __init__(self, now: ColumnElement[float], *, postgres: bool) -> None:
        is_held = and_(calls.c.key == _KEY, calls.c.token == _TOKEN, calls.c.result.is_(None))
        is_running = and_(calls.c.key == _KEY, calls.c.result.is_(None), calls.c.leased_until > now)
        lease = {"leased_until": now + _SECONDS, "kept_until": now + _SECONDS + _LOST_SECONDS}

        add = (postgresql if postgres else sqlite).insert(calls)
        add = add.values(started=now, attempt=1, cancel=False, progress="", result=None, **lease)
        is_lost = and_(calls.c.result.is_(None), calls.c.leased_until <= now)
        is_expired = calls.c.kept_until <= now
        is_free = or_(is_expired, calls.c.token == "")
        new_values = {c.name: add.excluded[c.name] for c in calls.c if not c.primary_key}
        attempt = case((is_free, 1), else_=calls.c.attempt + 1)
        is_same = calls.c.fingerprint == add.excluded.fingerprint
        self.claim = add.on_conflict_do_update(
            index_elements=[calls.c.key],
            set_={**new_values, "attempt": attempt},
            where=or_(is_free, and_(is_lost, is_same)),
        ).returning(calls.c.attempt)
        self.claimed = select(
            calls.c.fingerprint,
            calls.c.owner,
            calls.c.result,
            (calls.c.leased_until - now).label("remaining"),
        ).where(calls.c.key == _KEY)
        self.renew = update(calls).where(is_held).values(lease).returning(calls.c.cancel)
        end = {"result": bindparam("the_result"), "kept_until": now + _SECONDS}
        self.finish = update(calls).where(is_held).values(end)
        self.release = update(calls).where(is_held).values(**end, token="")
        self.set_progress = (
            update(calls).where(is_held).values(progress=bindparam("text", type_=AnyText))
        )
        self.cancel = update(calls).where(is_running).values(cancel=True)

        has_pending_approval = exists().where(approvals.c.call_key == calls.c.key, is_pending(now))
        state = case(
            (calls.c.result.is_not(None), "done"),
            (and_(calls.c.leased_until > now, has_pending_approval), "pending"),
            (calls.c.leased_until > now, "running"),
            else_="lost",
        ).label("state")
        columns = calls.c.call_id, calls.c.tool, calls.c.progress, calls.c.started, state
        rows = select(*columns).where(calls.c.kept_until > now)
        self.task = rows.add_columns(calls.c.result).where(calls.c.key == _KEY)
        self.tasks = (
            rows.where(calls.c.scope == _SCOPE)
            .order_by(calls.c.started.desc(), calls.c.key)
            .limit(bindparam("at_most", type_=Integer))
        )

        self.save_output = insert(outputs).values(kept_until=now + _SECONDS)
        self.keep_chunks = insert(chunks)
        self.output = select(outputs.c.total).where(
            outputs.c.handle == _HANDLE, outputs.c.scope == _SCOPE, outputs.c.kept_until > now
        )
        self.chunks = (
            select(chunks.c.text)
            .where(
                chunks.c.handle == _HANDLE,
                chunks.c.number >= bindparam("first", type_=Integer),
                chunks.c.number <= bindparam("last", type_=Integer),
            )
            .order_by(chunks.c.number)
        )
