"""Every statement of the store, built once: building costs SQLAlchemy more than running.

Values come in by name when a statement is run (`:the_key`, `:seconds` …). `now` is a
parameter on SQLite and the server's clock on PostgreSQL.
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

from toolkiln.store.schema import AnyText, approvals, calls, chunks, outputs

CHUNK = 65_536
"""Characters of a kept text in one row."""

_KEY = bindparam("the_key", type_=String)
_TOKEN = bindparam("the_token", type_=String)
_SCOPE = bindparam("the_scope", type_=String)
_HANDLE = bindparam("the_handle", type_=String)
_SECONDS = bindparam("seconds", type_=Double)
_LOST_SECONDS = bindparam("lost_seconds", type_=Double)
"""How long a call is remembered whose lease ran out."""


def is_pending(now: ColumnElement[float]) -> ColumnElement[bool]:
    """Whether an approval waits. One from the future does not: the clock was set back."""
    return and_(
        approvals.c.state == "pending", approvals.c.created <= now, approvals.c.expires > now
    )


class Statements:
    """What the store says to a database whose time is `now`."""

    def __init__(self, now: ColumnElement[float], *, postgres: bool) -> None:
        held = and_(calls.c.key == _KEY, calls.c.token == _TOKEN, calls.c.result.is_(None))
        running = and_(calls.c.key == _KEY, calls.c.result.is_(None), calls.c.leased_until > now)
        leased = {"leased_until": now + _SECONDS, "kept_until": now + _SECONDS + _LOST_SECONDS}

        add = (postgresql if postgres else sqlite).insert(calls)
        add = add.values(started=now, attempt=1, cancel=False, progress="", result=None, **leased)
        lost = and_(calls.c.result.is_(None), calls.c.leased_until <= now)
        forgotten = calls.c.kept_until <= now
        free = or_(forgotten, calls.c.token == "")
        replaced = {c.name: add.excluded[c.name] for c in calls.c if not c.primary_key}
        attempt = case((free, 1), else_=calls.c.attempt + 1)
        same = calls.c.fingerprint == add.excluded.fingerprint
        self.claim = add.on_conflict_do_update(
            index_elements=[calls.c.key],
            set_={**replaced, "attempt": attempt},
            where=or_(free, and_(lost, same)),
        ).returning(calls.c.attempt)
        self.claimed = select(
            calls.c.fingerprint,
            calls.c.owner,
            calls.c.result,
            (calls.c.leased_until - now).label("remaining"),
        ).where(calls.c.key == _KEY)
        self.renew = update(calls).where(held).values(leased).returning(calls.c.cancel)
        ended = {"result": bindparam("the_result"), "kept_until": now + _SECONDS}
        self.finish = update(calls).where(held).values(ended)
        self.release = update(calls).where(held).values(**ended, token="")
        self.set_progress = (
            update(calls).where(held).values(progress=bindparam("text", type_=AnyText))
        )
        self.cancel = update(calls).where(running).values(cancel=True)

        waits = exists().where(approvals.c.call_key == calls.c.key, is_pending(now))
        state = case(
            (calls.c.result.is_not(None), "done"),
            (and_(calls.c.leased_until > now, waits), "pending"),
            (calls.c.leased_until > now, "running"),
            else_="lost",
        ).label("state")
        shown = calls.c.call_id, calls.c.tool, calls.c.progress, calls.c.started, state
        known = select(*shown).where(calls.c.kept_until > now)
        self.task = known.add_columns(calls.c.result).where(calls.c.key == _KEY)
        self.tasks = (
            known.where(calls.c.scope == _SCOPE)
            .order_by(calls.c.started.desc(), calls.c.key)
            .limit(bindparam("at_most", type_=Integer))
        )

        self.keep_output = insert(outputs).values(kept_until=now + _SECONDS)
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
