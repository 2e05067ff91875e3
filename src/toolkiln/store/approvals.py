"""SQL store of approval requests and verdicts.

A request is bound to a fingerprint of the tool, its version, the arguments and the caller. The
first verdict counts, and an approval is used once. `security` decides who may approve. Methods
block and are thread-safe; all raise StoreError when the database fails or a row is damaged.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
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

from toolkiln.model.policy import Approval, ApprovalVerdict, Remember
from toolkiln.store.codec import decode_guard, hash_of, write_json
from toolkiln.store.database import Database, Pruner
from toolkiln.store.rules import (
    ID_OR_PREFIX,
    REMEMBER_SECONDS,
    USE_SECONDS,
    check_verdict,
    no_approval,
    not_remembered,
    several_approvals,
    too_late,
)
from toolkiln.store.tables import AnyText, approvals

_ID = bindparam("the_id", type_=String)
_FINGERPRINT = bindparam("the_fingerprint", type_=AnyText)
_CALL_KEY = bindparam("the_call_key", type_=String)
_LIMIT = bindparam("at_most", type_=Integer)
_MAX_ROWS = 10_000


def is_pending(now: ColumnElement[float]) -> ColumnElement[bool]:
    """Match pending approvals. One from the future is not pending: the clock was set back."""
    return and_(
        approvals.c.state == "pending", approvals.c.created <= now, approvals.c.expires > now
    )


class SqlApprovals:
    """Approval requests by id, or by a prefix of at least six characters."""

    def __init__(self, database: Database, pruner: Pruner) -> None:
        self._database = database
        self._pruner = pruner
        now, row = database.now, approvals.c
        pending = is_pending(now)
        usable = and_(row.state == "approved", row.decided > now - USE_SECONDS)
        expired = and_(row.state == "pending", ~pending)
        state = case((expired, "expired"), else_=row.state)
        fields = [row[name] for name in Approval.model_fields if name != "state"]
        keys = row.session_key, row.arguments_key
        columns = select(*fields, row.own_forbidden, *keys, state.label("state"))
        newest = columns.order_by(row.created.desc(), row.id).limit(_LIMIT)

        seconds = bindparam("seconds", type_=Double)
        self._add = insert(approvals).values(
            created=now, expires=now + seconds, kept_until=now + seconds + USE_SECONDS
        )
        self._same = newest.where(
            row.call_key == _CALL_KEY, row.fingerprint == _FINGERPRINT, or_(pending, usable)
        )
        self._of_call = newest.where(row.call_key == _CALL_KEY, pending)
        self._get = newest.where(row.id.between(_ID, _ID + "g"))  # unlike LIKE, uses the index
        self._list = newest.where(state.in_(bindparam("states", type_=String, expanding=True)))

        by_id = update(approvals).where(row.id == _ID)
        self._decide = by_id.where(pending).values(
            decided=now,
            kept_until=now + bindparam("kept_seconds", type_=Double),
            remembered_until=now + bindparam("remember_seconds", type_=Double),
        )
        self._use = by_id.where(usable, row.fingerprint == _FINGERPRINT).values(state="used")
        # Stored, so that setting the clock back does not make it pending again.
        ended = case((expired, "expired"), else_="withdrawn")
        self._withdraw = by_id.where(row.state == "pending").values(state=ended)
        # A verdict from the future is ignored: the clock was set back.
        is_remembered = and_(row.remembered_until > now, row.decided <= now)
        remember_keys = bindparam("the_keys", type_=String, expanding=True)
        self._remembered = newest.where(row.remember_key.in_(remember_keys), is_remembered)
        self._forget = by_id.where(row.remember_key.is_not(None), is_remembered).values(
            remember_key=None
        )

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str] | None = None,
    ) -> Approval:
        """Store a request, or return the existing one if the same call is pending or approved.

        The store assigns id, times and state. `remember_keys` are the keys under which a verdict
        may be remembered.
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
                f"{kind}_key": hash_of([remember_keys[kind]]) if kind in remember_keys else None
                for kind in REMEMBER_SECONDS
            },
        }
        parameters = {"the_call_key": call_key, "the_fingerprint": fingerprint, "at_most": 1}
        with self._database.transaction() as connection:
            self._database.lock(connection, approvals)
            now = self._database.values()
            found = connection.execute(self._same, {**parameters, **now}).one_or_none()
            if found is None:
                connection.execute(self._add, {**row, **now})
                found = self._find(connection, row["id"])
        return _approval(found)

    def get(self, approval_id: str) -> Approval | None:
        """Return a request in its current state."""
        with self._database.transaction(reading=True) as connection:
            row = self._find(connection, approval_id)
        return None if row is None else _approval(row)

    def decide(self, approval_id: str, verdict: ApprovalVerdict) -> Approval:
        """Decide a pending request; only the first verdict counts.

        Raises:
            NotFound: no request has this id.
            TooLate: the request is no longer pending.
            InputError: the verdict cannot be remembered.
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
            row = self._find(connection, approval_id)
            if row is None:
                raise no_approval(approval_id)
            changes = {"the_id": row.id, **answer, **_memory(row, verdict.remember)}
            changed = connection.execute(self._decide, self._database.values(**changes)).rowcount
            decided = _approval(self._find(connection, row.id))
        if not changed:
            raise too_late(decided)
        return decided

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        """Consume an approval of this fingerprint; None if there is no unused one."""
        return self._change(self._use, approval_id, the_fingerprint=fingerprint)

    def withdraw(self, approval_id: str) -> bool:
        """Withdraw a pending request; False if it was already decided."""
        return self._change(self._withdraw, approval_id) is not None

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        """Return the newest approval remembered under one of these keys."""
        parameters = {"the_keys": [hash_of([key]) for key in keys], "at_most": 1}
        row = self._database.read_one(self._remembered, **parameters)
        return None if row is None else _approval(row)

    def forget(self, approval_id: str) -> bool:
        """Stop remembering a verdict; False if it was not remembered."""
        return self._change(self._forget, approval_id) is not None

    def _change(self, statement: Update, approval_id: str, **parameters: Any) -> Approval | None:
        with self._database.transaction() as connection:
            row = self._find(connection, approval_id)
            if row is None:
                return None
            parameters = self._database.values(the_id=row.id, **parameters)
            changed = connection.execute(statement, parameters).rowcount
            return _approval(self._find(connection, row.id)) if changed else None

    def _find(self, connection: Connection, approval_id: str) -> Any:
        if not ID_OR_PREFIX.fullmatch(approval_id):
            return None
        parameters = self._database.values(the_id=approval_id, at_most=2)
        rows = connection.execute(self._get, parameters).all()
        if len(rows) > 1:
            raise several_approvals(approval_id, [row.id for row in rows])
        return rows[0] if rows else None

    def of_call(self, call_key: str) -> list[Approval]:
        """Return the pending requests of one call, newest first."""
        rows = self._database.read(self._of_call, the_call_key=call_key, at_most=_MAX_ROWS)
        return [_approval(row) for row in rows]

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        """Return requests in these states, newest first."""
        limit = max(0, min(limit, _MAX_ROWS))
        rows = self._database.read(self._list, states=list(states), at_most=limit)
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
    with decode_guard("an approval"):
        fields = {name: getattr(row, name) for name in Approval.model_fields}
        edited = None if row.edited is None else json.loads(row.edited)
        decoded = {
            "arguments": json.loads(row.arguments),
            "edited": edited,
            "approve_own": True if row.approve_own else False if row.own_forbidden else None,
        }
        return Approval.model_validate({**fields, **decoded})
