"""The chain that audit records form, and the walk along it that finds what was tampered with.

A record's hash is a keyed BLAKE2b over one line each for the hash before it, its place and its
fields, so it covers everything before it. A head, sealed the same way, says where the chain
ends. Whoever has no key can neither change a row nor end the chain earlier unseen; putting
back an older copy of everything shows only against a head noted elsewhere. Nothing here
touches a database.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from toolkiln.model import AuditRecord
from toolkiln.store.values import Verification

START = (0, "0" * 64)
"""The place and hash before the first record."""
PRUNE = "audit.prune"
"""The act of a record that vouches for rows which were removed."""

Row = Sequence[Any]
"""Seq, the fields of a record, hash: as a database gave them."""

_MOST_PROBLEMS = 20
_LINES = len(AuditRecord._fields) + 2
_REMOVED = re.compile(r"removed up to (\d{1,18}):([0-9a-f]{64})")


class Chain:
    """Computes hashes with a key."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=blake2b(key).digest(), digest_size=32)
        self.key_id = self._sign("key")[:16]
        """Tells keys apart and gives nothing of them away."""

    def link(self, previous: str, seq: int, fields: Row) -> str:
        """The hash of a record that follows another.

        Raises:
            TypeError: a field is not of its type.
            ValueError: a text holds a line break or a lone surrogate.
        """
        at, duration, arguments = repr(fields[0]), repr(fields[-2]), fields[-1]
        message = "\n".join((previous, str(seq), at, *fields[1:-2], duration, arguments))
        if message.count("\n") != _LINES - 1:  # else two records could have one message
            raise ValueError("a text holds a line break")
        return self._sign(message)

    def seal(self, seq: int, link: str) -> str:
        """What only the holder of the key can write beside a head."""
        return self._sign(f"head\n{self.key_id}\n{seq}\n{link}")

    def _sign(self, message: str) -> str:
        keyed = self._keyed.copy()
        keyed.update(message.encode())
        return keyed.hexdigest()


def pruned_detail(seq: int, link: str) -> str:
    """What a record of pruning says of the last row that it removed."""
    return f"removed up to {seq}:{link}"


def vouched_for(detail: object) -> tuple[int, str] | None:
    """The last removed row, if that is what a detail says."""
    found = _REMOVED.fullmatch(detail) if isinstance(detail, str) else None
    return (int(found[1]), found[2]) if found else None


class Walk:
    """Follows rows from the first to the last and collects what is wrong with them."""

    def __init__(
        self, chain: Chain, vouched: tuple[int, str] | None, noted: tuple[int, str] | None = None
    ) -> None:
        """`vouched`: the last row that was rightfully removed; `noted`: one that must be there."""
        self._chain = chain
        self._vouched = vouched
        self._noted = noted or START
        self._found: object = None
        self._at = START
        self._first: int | None = None
        self._count = 0
        self._problems: list[str] = []
        self._unsaid = 0

    def _problem(self, text: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(text)
        else:
            self._unsaid += 1

    def row(self, row: Row) -> None:
        """Take the next row; after a bad one, go on from what it says itself."""
        seq, *fields, link = row
        self._count += 1
        if self._first is None:
            self._first = seq
            if self._vouched and seq == self._vouched[0] + 1:
                self._at = self._vouched
        before, previous = self._at
        if seq == before + 1:
            if not self._follows(previous, seq, fields, link):
                self._problem(f"row {seq} was edited, or put in this place")
        elif seq <= before:
            self._problem(f"row {seq} is there twice, or before the first one")
        else:
            self._missing(before + 1, seq - 1)
        self._at = (seq, link)
        if seq == self._noted[0]:
            self._found = link

    def _follows(self, previous: str, seq: int, fields: Row, link: object) -> bool:
        try:
            return self._chain.link(previous, seq, fields) == link
        except (TypeError, ValueError):  # of a type or text that was never written
            return False

    def _missing(self, first: int, last: int) -> None:
        span = f"row {first} is" if first == last else f"rows {first} to {last} are"
        self._problem(f"{span} missing")

    def end(self, heads: Sequence[Row]) -> None:
        """Compare with the heads: seq, hash, key id and seal of each; there should be one."""
        self._compare_noted()
        if len(heads) != 1:
            self._problem("the head is missing" if not heads else "there are several heads")
            return
        seq, link, key_id, seal = heads[0]
        last, last_link = self._at
        if key_id != self._chain.key_id:
            self._problem("the head was edited, or sealed with another key: see audit_key")
        elif seal != self._chain.seal(seq, link):
            self._problem("the head was edited")
        elif last < seq:
            self._missing(last + 1, seq)
        elif (last, last_link) != (seq, link):
            self._problem(f"the chain does not end as its head says, at row {seq}")

    def _compare_noted(self) -> None:
        (seq, link), last = self._noted, self._at[0]
        if seq > last:
            why = "newer rows were removed, or an older copy was put back"
            self._problem(f"the log ends at row {last}, before row {seq}, which was noted: {why}")
        elif self._found is not None:
            if self._found != link:
                self._problem(f"row {seq} is not the one that was noted")
        elif self._vouched and seq == self._vouched[0] and link != self._vouched[1]:
            self._problem(f"row {seq}, which was pruned, is not the one that was noted")

    def verification(self) -> Verification:
        """All that was found."""
        further = [f"and {self._unsaid} further problems"] if self._unsaid else []
        last, link = self._at
        return Verification(
            ok=not self._problems,
            count=self._count,
            first=self._first or 0,
            last=last,
            head=link if isinstance(link, str) else "",
            problems=(*self._problems, *further),
        )
