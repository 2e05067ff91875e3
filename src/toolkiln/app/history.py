"""Who made which calls, as far as somebody may know: the book of runs, then the audit.

Everybody may look at calls made on their behalf; an agent only at its own. With ADMIN one may
look at all, and further back: what is no longer in the book, or ran in other processes, comes
from the audit. That a tool exists which they may not know of nobody learns from here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from toolkiln.app.audit import Audit
from toolkiln.app.discretion import Discretion
from toolkiln.app.runs import NOTHING, Given, Run, Runs, mark_of, status_of
from toolkiln.model import AuditEntry, AuditRecord, Caller, Privilege
from toolkiln.store import AuditFilter

_MOST_READ = 5_000
"""Records that one look into the audit reads at most."""
_SKEW = 60.0
"""Seconds by which the clocks of processes may differ."""
_REFUSED = ("denied", "invalid")
_UNENDED = frozenset(("running", "pending"))
_ACT, _STARTED = "call", "started"


class Seen(NamedTuple):
    """One call: a run of the book, or one of which only the audit knows."""

    record: AuditRecord
    run: Run | None = None
    entry: AuditEntry | None = None

    @property
    def status(self) -> str:
        """`running`, `pending`, or how it ended."""
        return self.run.status if self.run is not None else status_of(self.record)

    @property
    def given(self) -> Given:
        """What is known of its result."""
        return self.run.given if self.run is not None else NOTHING


class Wanted(NamedTuple):
    """Which calls; None fits any."""

    tool: str | None = None
    """A name or a glob."""
    user: str | None = None
    statuses: frozenset[str] = frozenset()
    """None at all: any."""

    def fits(self, seen: Seen) -> bool:
        """Whether a call is one of them."""
        record = seen.record
        return (
            (self.user is None or record.user == self.user)
            and (self.tool is None or fnmatchcase(record.tool, self.tool))
            and (not self.statuses or seen.status in self.statuses)
        )


class Place(NamedTuple):
    """How far a list was read."""

    at: float
    call_id: str
    """The last run of the book."""
    before: int
    """The last record of the audit."""


START = Place(1e12, "", 1 << 62)


class Part(NamedTuple):
    """A part of a list, newest first, and where the next one begins, if there is more."""

    items: list[Seen]
    following: Place | None


class History:
    """The calls that a Kiln knows of."""

    def __init__(self, runs: Runs, audit: Audit, discretion: Discretion) -> None:
        self._runs = runs
        self._audit = audit
        self._discretion = discretion

    def may_see(self, caller: Caller) -> Callable[[AuditRecord], bool]:
        """Which calls somebody may look at."""
        if Privilege.ADMIN in caller.privileges:
            return lambda _: True

        if caller.is_anonymous:  # many people, who must not see each other's calls
            return lambda _: False

        def is_own(record: AuditRecord) -> bool:
            if record.user != caller.who or (
                caller.agent_id is not None and record.agent != caller.agent_id
            ):
                return False
            if not record.user and record.session != caller.session:
                return False
            # Who was refused a tool that rules hide was told that there is none.
            is_refused = record.outcome in _REFUSED
            return not is_refused or self._discretion.is_seen(record.tool, caller)

        return is_own

    async def part(self, caller: Caller, wanted: Wanted, place: Place, limit: int) -> Part:
        """The next calls of a list, newest first; perhaps fewer than there could be.

        Raises:
            StoreError: the audit cannot be read.
        """
        book = self._book(caller)
        is_past_wanted = not wanted.statuses or not wanted.statuses <= _UNENDED
        if Privilege.ADMIN not in caller.privileges or not is_past_wanted:
            return _merged(_Book(book, wanted, place), None, limit)
        known = {_whose(seen.record) for seen in book}

        def merged() -> Part:
            asked = AuditFilter(act=_ACT, user=wanted.user, tool=wanted.tool, before=place.before)
            past = _Past(self._audit.entries(asked, _MOST_READ), known, wanted, place.before)
            return _merged(_Book(book, wanted, place), past, limit)

        return await asyncio.to_thread(merged)

    async def find(self, caller: Caller, call_id: str) -> Seen | None:
        """The newest call of an id.

        Raises:
            StoreError: the audit cannot be read.
        """
        found = [seen for seen in self._book(caller) if seen.record.call_id == call_id]
        is_admin = Privilege.ADMIN in caller.privileges
        if found:
            return await asyncio.to_thread(self._with_entry, found[0]) if is_admin else found[0]
        if not is_admin:
            return None
        asked = AuditFilter(act=_ACT, call_id=call_id)
        entry = await asyncio.to_thread(lambda: next(self._audit.entries(asked, 1), None))
        return None if entry is None else Seen(entry.record, entry=entry)

    def running(self, caller: Caller, call_id: str) -> list[Run]:
        """The runs of an id that have not ended, of one caller, then those that they made."""
        book = [seen for seen in reversed(self._book(caller)) if seen.run and seen.run.is_running]
        newest = next((seen for seen in reversed(book) if seen.record.call_id == call_id), None)
        if newest is None:
            return []
        ids, found = {call_id}, []
        for seen in book:  # oldest first: whoever makes a call is older than the call
            record = seen.record
            is_of_same = (record.user, record.agent) == (newest.record.user, newest.record.agent)
            if seen.run and is_of_same and not ids.isdisjoint((record.call_id, record.parent)):
                ids.add(record.call_id)
                found.append(seen.run)
        return found

    async def nested(self, caller: Caller, seen: Seen) -> list[Seen]:
        """The calls that a call made, in their order.

        Raises:
            StoreError: the audit cannot be read.
        """
        record = seen.record
        book = [one for one in self._book(caller) if one.record.parent == record.call_id]
        if Privilege.ADMIN in caller.privileges and record.duration is not None:
            known = {_whose(one.record) for one in book}
            since, until = record.at - _SKEW, record.at + record.duration + _SKEW
            asked = AuditFilter(act=_ACT, parent=record.call_id, since=since, until=until)
            entries = await asyncio.to_thread(lambda: [*self._audit.entries(asked, _MOST_READ)])
            book += [*_Past(iter(entries), known, Wanted(), 0)]
        return sorted(book, key=lambda one: mark_of(one.record))

    async def ended_since(self, caller: Caller, moment: float) -> tuple[list[AuditRecord], float]:
        """The calls that began since then and have ended, and from when on those are all."""
        book = [seen for seen in self._book(caller) if seen.record.at >= moment]
        ended = [seen.record for seen in book if seen.record.outcome != _STARTED]
        if Privilege.ADMIN not in caller.privileges:
            return ended, max(moment, self._runs.kept_since)
        known = {_whose(record) for record in ended}
        asked = AuditFilter(act=_ACT, since=moment)
        entries = await asyncio.to_thread(lambda: [*self._audit.entries(asked, _MOST_READ)])
        ended += [seen.record for seen in _Past(iter(entries), known, Wanted(), 0)]
        is_all = len(entries) < _MOST_READ
        return ended, moment if is_all else entries[-1].record.at

    def _book(self, caller: Caller) -> list[Seen]:
        """What somebody may look at in the book, newest first."""
        may_see = self.may_see(caller)
        found = [Seen(run.record, run) for run in self._runs.all]
        found = [seen for seen in found if may_see(seen.record)]
        return sorted(found, key=lambda seen: mark_of(seen.record), reverse=True)

    def _with_entry(self, seen: Seen) -> Seen:
        """A run together with its place in the audit, if it has one."""
        at, call_id = mark_of(seen.record)
        asked = AuditFilter(act=_ACT, call_id=call_id, user=seen.record.user, since=at - _SKEW)
        entries = [*self._audit.entries(asked, _MOST_READ)]
        exact = [entry for entry in entries if entry.record.at == at]
        return seen._replace(entry=next(iter(exact or entries), None))


class _Book:
    """What is left of the book from a place on."""

    def __init__(self, book: Sequence[Seen], wanted: Wanted, place: Place) -> None:
        mark = place[:2]
        self._left = iter([s for s in book if mark_of(s.record) < mark and wanted.fits(s)])
        self.place = mark
        self.head = next(self._left, None)

    def pop(self) -> Seen:
        """The head; the next one takes its place."""
        taken, self.head = self.head, next(self._left, None)
        assert taken is not None
        self.place = mark_of(taken.record)
        return taken


class _Past:
    """Ended calls of the audit that are not in the book, from a place on."""

    def __init__(
        self,
        entries: Iterator[AuditEntry],
        known: set[tuple[str, str]],
        wanted: Wanted,
        before: int,
    ) -> None:
        self._entries, self._known, self._wanted = entries, known, wanted
        self.read = 0
        self.before = before
        """The last record that was passed."""
        self.head = self._next()

    def __iter__(self) -> Iterator[Seen]:
        while self.head is not None:
            yield self.pop()

    def pop(self) -> Seen:
        """The head; the next one takes its place."""
        taken = self.head
        assert taken is not None
        assert taken.entry is not None
        self.before = taken.entry.seq
        self.head = self._next()
        return taken

    def _next(self) -> Seen | None:
        for entry in self._entries:
            self.read += 1
            seen = Seen(entry.record, entry=entry)
            is_ended = entry.record.outcome != _STARTED
            if is_ended and _whose(entry.record) not in self._known and self._wanted.fits(seen):
                return seen
            self.before = entry.seq
        return None


def _merged(book: _Book, past: _Past | None, limit: int) -> Part:
    """Whatever is newer comes first; the audit is in the order of ends, which is near enough."""
    items: list[Seen] = []
    while len(items) < limit:
        old = past.head if past is not None else None
        if book.head is None and old is None:
            break
        if past is None or old is None or (book.head and book.head.record.at >= old.record.at):
            items.append(book.pop())
        else:
            items.append(past.pop())
    place = Place(*book.place, past.before if past is not None else 0)
    is_more = book.head is not None or (
        past is not None and (past.head is not None or past.read >= _MOST_READ)
    )
    return Part(items, place if is_more else None)


def _whose(record: AuditRecord) -> tuple[str, str]:
    """What the same call has in the records of all processes: a worker's clock is another."""
    return record.call_id, record.user
