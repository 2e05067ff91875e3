"""Calls that wait for a person, in Redis; as `store.approvals` has them, with the same promises.

So that a call which waits on a worker can be answered from any process. The server's clock
is the only one, and each act is one script. A Redis without persistence loses in a restart
what was asked and what was answered: a call that waits is then refused when its time is up.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolkiln.fleet import keys
from toolkiln.fleet.connection import Connection
from toolkiln.model import Approval, Remember, Verdict
from toolkiln.store import hash_of, intact, verdicts, write_json

_MOST = 10_000
_MICRO = 1_000_000
_TIMES = ("created", "expires", "decided")


class RedisApprovals:
    """Requests by their ids, of which the first six characters or more serve as well."""

    def __init__(self, connection: Connection, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces the server's time."""
        self._script = connection.script("approvals")
        self._clock = clock

    def ask(
        self,
        request: Approval,
        fingerprint: str,
        call_key: str,
        remember_keys: Mapping[Remember, str] | None = None,
    ) -> Approval:
        """Keeps a request, whose id, times and state are Redis's.

        If the same call asked before, and that request waits or was approved but not used,
        that one is given back. `remember_keys` says by what an answer could be remembered.
        """
        told = request.model_dump(exclude={"id", "state", "self_approved", *_TIMES})
        by = remember_keys or {}
        kept = [_remembered(by[what]) if what in by else "" for what in verdicts.REMEMBER_SECONDS]
        wait = round((request.expires - request.created) * _MICRO)
        asked = self._run(
            "ask",
            secrets.token_hex(6),
            _bytes(write_json("the arguments of a call", told)),
            _bytes(fingerprint),
            wait,
            *kept,
            of=[keys.approvals_of_call(call_key)],
        )
        return _approval(asked)

    def get(self, approval_id: str) -> Approval | None:
        """A request as it stands.

        Raises:
            InputError: several begin like this.
        """
        if not verdicts.ID_OR_PREFIX.fullmatch(approval_id):
            return None
        found = [_approval(row) for row in self._run("get", approval_id)]
        if len(found) > 1:
            raise verdicts.several_approvals(approval_id, [one.id for one in found])
        return found[0] if found else None

    def decide(self, approval_id: str, verdict: Verdict) -> Approval:
        """Answers a request that waits; of several answers the first one counts.

        Raises:
            NotFound: there is none.
            TooLate: it waits no longer.
            InputError: the answer cannot be remembered.
        """
        verdicts.check_verdict(verdict)
        found = self.get(approval_id)
        if found is None:
            raise verdicts.no_approval(approval_id)
        answer = {
            "decided_by": verdict.by,
            "reason": verdict.reason,
            "edited": verdict.arguments,
            "remember": verdict.remember,
        }
        remember = verdict.remember
        seconds = verdicts.REMEMBER_SECONDS[remember] if remember else 0
        said = self._run(
            "decide",
            found.id,
            "approved" if verdict.approve else "rejected",
            _bytes(write_json("the arguments", answer)),
            remember or "",
            round(seconds * _MICRO),
        )
        if said is None:
            assert remember is not None
            raise verdicts.not_remembered(remember)
        won, *row = said
        if not row:
            raise verdicts.no_approval(approval_id)
        decided = _approval(row[0])
        if not won:
            raise verdicts.too_late(decided)
        return decided

    def use(self, approval_id: str, fingerprint: str) -> Approval | None:
        """What was approved, once and for this fingerprint only; None if there is no such."""
        row = self._run("use", self._whole(approval_id), _bytes(fingerprint))
        return None if row is None else _approval(row)

    def withdraw(self, approval_id: str) -> bool:
        """Nobody waits for it any more; False if it was answered before."""
        return bool(self._run("withdraw", self._whole(approval_id)))

    def remembered(self, keys: Sequence[str]) -> Approval | None:
        """The newest approval that was to be remembered by one of these keys, and still is."""
        row = self._run("remembered", of=[_remembered(key) for key in keys])
        return None if row is None else _approval(row)

    def forget(self, approval_id: str) -> bool:
        """Remembers an answer no longer; False if it was not remembered."""
        return bool(self._run("forget", self._whole(approval_id)))

    def of_call(self, call_key: str) -> list[Approval]:
        """The pending requests of one call, newest first."""
        rows = self._run("of_call", of=[keys.approvals_of_call(call_key)])
        return [_approval(row) for row in rows]

    def list(self, states: Sequence[str] = ("pending",), limit: int = 100) -> list[Approval]:
        """Requests in these states, newest first."""
        at_most = max(0, min(limit, _MOST))
        return [_approval(row) for row in self._run("list", at_most, *map(_bytes, states))]

    def _whole(self, approval_id: str) -> str:
        """The id that this is the beginning of."""
        found = self.get(approval_id)
        return found.id if found else ""

    def _run(self, act: str, *arguments: str | bytes | int, of: Sequence[str] = ()) -> Any:
        now = "" if self._clock is None else str(round(self._clock() * _MICRO))
        return self._script([keys.APPROVALS, keys.APPROVAL_IDS, *of], [act, now, *arguments])


def _remembered(key: str) -> str:
    return keys.remembered(hash_of([key]))


def _approval(row: Any) -> Approval:
    with intact("an approval"):
        approval_id, request, state, *times, answer = row
        told = json.loads(request.decode("utf-8", "surrogatepass"))
        said = json.loads(answer.decode("utf-8", "surrogatepass")) if answer else {}
        when = {name: int(time) / _MICRO for name, time in zip(_TIMES, times, strict=True) if time}
        known = {"id": approval_id.decode(), "state": state.decode(), **when}
        return Approval.model_validate({**told, **said, **known})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
