"""Calls that wait for a person, and what the person said, as it is written down.

A request is bound to a fingerprint, which stands for the tool, its version, the arguments
and the caller. The first answer counts, and what was approved is used once. Who may answer
is `execution`'s business. Methods block and are thread-safe; all raise StoreError when the
database fails or a row is damaged.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    Integer,
    String,
    Update,
    and_,
    bindparam,
    case,
    insert,
    or_,
    select,
    update,
)

from toolkiln.model import Approval, Remember, Verdict
from toolkiln.store.clock import StoreClock
from toolkiln.store.database import Database
from toolkiln.store.pruning import Pruner
from toolkiln.store.records import hash_of, intact, write_json
from toolkiln.store.schema import AnyText, approvals
from toolkiln.store.statements import is_pending
from toolkiln.store.verdicts import (
    ID_OR_PREFIX,
    REMEMBER_SECONDS,
    USE_SECONDS,
    check_verdict,
    no_approval,
    not_remembered,
    several_approvals,
    too_late,
)

_ID = bindparam("the_id", type_=String)
_FINGERPRINT = bindparam("the_fingerprint", type_=AnyText)
_CALL_KEY = bindparam("the_call_key", type_=String)
_AT_MOST = bindparam("at_most", type_=Integer)
_MOST = 10_000


class Approvals:
    """Requests by their ids, of which the first six characters or more serve as well."""

    def __init__(self, database: Database, clock: StoreClock, pruner: Pruner) -> None:
        self._database = database
        self._clock = clock
        self._pruner = pruner
        now, row = clock.now, approvals.c
        pending = is_pending(now)
        usable = and_(row.state == "approved", row.decided > now - USE_SECONDS)
        expired = and_(row.state == "pending", ~pending)
        state = case((expired, "expired"), else_=row.state)
        fields = [row[name] for name in Approval.model_fields if name != "state"]
        keys = row.session_key, row.arguments_key
        shown = select(*fields, row.own_forbidden, *keys, state.label("state"))
        newest = shown.order_by(row.created.desc(), row.id).limit(_AT_MOST)

        seconds = bindparam("seconds", type_=Double)
        self._add = insert(approvals).values(
            created=now, expires=now + seconds, kept_until=now + seconds + USE_SECONDS
        )
        self._same = newest.where(
            row.call_key == _CALL_KEY, row.fingerprint == _FINGERPRINT, or_(pending, usable)
        )
        self._of_call = newest.where(row.call_key == _CALL_KEY, pending)
        self._get = newest.where(row.id.between(_ID, _ID + "g"))  # by index, as LIKE is not
        self._list = newest.where(state.in_(bindparam("states", type_=String, expanding=True)))

        one = update(approvals).where(row.id == _ID)
        self._decide = one.where(pending).values(
            decided=now,
            kept_until=now + bindparam("kept_seconds", type_=Double),
            remembered_until=now + bindparam("remember_seconds", type_=Double),
        )
        self._use = one.where(usable, row.fingerprint == _FINGERPRINT).values(state="used")
        # For good: a clock that is set back later must not let it wait again.
        ended = case((expired, "expired"), else_="withdrawn")
        self._withdraw = one.where(row.state == "pending").values(state=ended)
        # One from the future counts for nothing: the clock was set back.
        kept = and_(row.remembered_until > now, row.decided <= now)
        known = bindparam("the_keys", type_=String, expanding=True)
        self._remembered = newest.where(row.remember_key.in_(known), kept)
        self._forget = one.where(row.remember_key.is_not(None), kept).values(remember_key=None)

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str] | None = None,
    ) -> Approval:
        """Keeps a request, whose id, times and state are the store's.

        If the same call asked before, and that request waits or was approved but not used,
        that one is given back. `remember_keys` says by what an answer could be remembered.
        """
        self._pruner.when_due()
        remember_keys = remember_keys or {}
        row = {
            **request.model_dump(
                exclude={"created", "expires", "arguments", "edited", "self_approved"}
            ),
            "approve_own": request.approve_own is True,
            "own_forbidden": request.approve_own is False,
            "id": secrets.token_hex(6),
            "state": "pending",
            "arguments": write_json("the arguments of a call", request.arguments),
            "call_key": call_key,
            "fingerprint": fingerprint,
            "seconds": request.expires - request.created,
            **{
                f"{what}_key": hash_of([remember_keys[what]]) if what in remember_keys else None
                for what in REMEMBER_SECONDS
            },
        }
        same = {"the_call_key": call_key, "the_fingerprint": fingerprint, "at_most": 1}
        with self._database.transaction() as connection:
            if self._database.postgres:  # others may read, but nobody else may ask
                connection.exec_driver_sql(
                    f"LOCK TABLE {approvals.name} IN SHARE ROW EXCLUSIVE MODE"
                )
            now = self._clock.values()
            found = connection.execute(self._same, {**same, **now}).one_or_none()
            if found is None:
                connection.execute(self._add, {**row, **now})
                found = self._found(connection, row["id"])
        return _approval(found)

    def get(self, approval_id: str) -> Approval | None:
        """A request as it stands.

        Raises:
            InputError: several begin like this.
        """
        with self._database.transaction(reading=True) as connection:
            row = self._found(connection, approval_id)
        return None if row is None else _approval(row)

    def decide(self, approval_id: str, verdict: Verdict) -> Approval:
        """Answers a request that waits; of several answers the first one counts.

        Raises:
            NotFound: there is none.
            TooLate: it waits no longer.
            InputError: the answer cannot be remembered.
        """
        check_verdict(verdict)
        edited = verdict.arguments
        answer = {
            "state": "approved" if verdict.approve else "rejected",
            "decided_by": verdict.by,
            "reason": verdict.reason,
            "edited": None if edited is None else write_json("the arguments", edited),
            "remember": verdict.remember,
        }
        with self._database.transaction() as connection:
            row = self._found(connection, approval_id)
            if row is None:
                raise no_approval(approval_id)
            changes = {"the_id": row.id, **answer, **_memory(row, verdict.remember)}
            won = connection.execute(self._decide, {**changes, **self._clock.values()}).rowcount
            decided = _approval(self._found(connection, row.id))
        if not won:
            raise too_late(decided)
        return decided

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        """What was approved, once and for this fingerprint only; None if there is no such."""
        return self._changed(self._use, approval_id, the_fingerprint=fingerprint)

    def withdraw(self, approval_id: str) -> bool:
        """Nobody waits for it any more; False if it was answered before."""
        return self._changed(self._withdraw, approval_id) is not None

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        """The newest approval that was to be remembered by one of these keys, and still is."""
        which = {"the_keys": [hash_of([key]) for key in keys], "at_most": 1}
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(
                self._remembered, {**which, **self._clock.values()}
            ).one_or_none()
        return None if row is None else _approval(row)

    def forget(self, approval_id: str) -> bool:
        """Remembers an answer no longer; False if it was not remembered."""
        return self._changed(self._forget, approval_id) is not None

    def _changed(self, statement: Update, approval_id: str, **told: Any) -> Approval | None:
        with self._database.transaction() as connection:
            row = self._found(connection, approval_id)
            if row is None:
                return None
            which = {"the_id": row.id, **told, **self._clock.values()}
            won = connection.execute(statement, which).rowcount
            return _approval(self._found(connection, row.id)) if won else None

    def _found(self, connection: Connection, approval_id: str) -> Any:
        if not ID_OR_PREFIX.fullmatch(approval_id):
            return None
        which = {"the_id": approval_id, "at_most": 2, **self._clock.values()}
        rows = connection.execute(self._get, which).all()
        if len(rows) > 1:
            raise several_approvals(approval_id, [row.id for row in rows])
        return rows[0] if rows else None

    def of_call(self, call_key: str) -> list[Approval]:
        """The pending requests of one call, newest first."""
        which = {"the_call_key": call_key, "at_most": _MOST}
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(self._of_call, {**which, **self._clock.values()}).all()
        return [_approval(row) for row in rows]

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        """Requests in these states, newest first."""
        which = {"states": list(states), "at_most": max(0, min(limit, _MOST))}
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(self._list, {**which, **self._clock.values()}).all()
        return [_approval(row) for row in rows]


def _memory(row: Any, remember: Remember | None) -> dict[str, Any]:
    """By what an answer is remembered, and until when."""
    if remember is None:
        return {"remember_key": None, "remember_seconds": None, "kept_seconds": USE_SECONDS}
    key = {"session": row.session_key, "arguments": row.arguments_key}[remember]
    if key is None:
        raise not_remembered(remember)
    seconds = REMEMBER_SECONDS[remember]
    return {"remember_key": key, "remember_seconds": seconds, "kept_seconds": seconds}


def _approval(row: Any) -> Approval:
    with intact("an approval"):
        fields = {name: getattr(row, name) for name in Approval.model_fields}
        edited = None if row.edited is None else json.loads(row.edited)
        given = {
            "arguments": json.loads(row.arguments),
            "edited": edited,
            "approve_own": True if row.approve_own else False if row.own_forbidden else None,
        }
        return Approval.model_validate({**fields, **given})
