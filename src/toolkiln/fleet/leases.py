"""The table of leases: which entries a worker holds, in memory that two processes share.

The worker writes it when a call starts and ends, which costs about a microsecond; the keeper
reads it. There is no lock: each slot has one writer, and what is read while it is written is
at worst an entry that nobody holds, which renewing finds out. Nothing here speaks to Redis.
"""

import mmap
import os
import re
import time
from struct import Struct
from typing import NamedTuple

from toolkiln.fleet.counts import Counts

_SLOT = Struct("48sd")
"""The id of an entry, empty if the slot is free, and when its call must have ended."""
_ENTRY = re.compile(rb"[0-9]+-[0-9]+")
_BEAT = Struct("d")
_COUNTS = Struct("4Q")
_COUNTS_OFFSET = _BEAT.size
_UNTIL = Struct("d")
_UNTIL_OFFSET = 48
_PAGE = 64
"""Bytes before the first slot."""
WAITING = -1.0
"""Stands for the end of a call that is held, but has not begun."""


class Held(NamedTuple):
    """An entry that a worker holds."""

    entry: str
    until: float
    """When its call must have ended, on the monotonic clock, which all processes share."""

    @property
    def has_begun(self) -> bool:
        """Whether the call may have run."""
        return self.until != WAITING


class Leases:
    """One table: a worker's and its keeper's."""

    def __init__(self, file: int) -> None:
        """`file` is what `new_table` gave, in whichever process."""
        self._memory = mmap.mmap(file, 0)
        self.slots = (len(self._memory) - _PAGE) // _SLOT.size
        self._free = [_PAGE + _SLOT.size * number for number in reversed(range(self.slots))]

    @property
    def free(self) -> int:
        """How many entries more can be held; for the writer."""
        return len(self._free)

    def hold(self, entry: str, until: float) -> int:
        """Write down that a call runs; the slot is to be released."""
        slot = self._free.pop()
        _SLOT.pack_into(self._memory, slot, entry.encode(), until)
        return slot

    def begin(self, slot: int, until: float) -> None:
        """Write down that a call which was held as WAITING runs from now on."""
        _UNTIL.pack_into(self._memory, slot + _UNTIL_OFFSET, until)

    def release(self, slot: int) -> None:
        """Write down that it runs no longer."""
        self._memory[slot] = 0
        self._free.append(slot)

    def beat(self) -> None:
        """Say that the worker's event loop goes on."""
        _BEAT.pack_into(self._memory, 0, time.monotonic())

    @property
    def silence(self) -> float:
        """Seconds since the event loop last went on; 0 if it has not begun."""
        last: float = _BEAT.unpack_from(self._memory)[0]
        return max(0.0, time.monotonic() - last) if last else 0.0

    def note(self, counts: Counts) -> None:
        """Write down what the process beside the worker has counted."""
        parts = counts.lost, counts.requeued, counts.poison, counts.reconnects
        _COUNTS.pack_into(self._memory, _COUNTS_OFFSET, *parts)

    @property
    def noted(self) -> Counts:
        """What the process beside the worker has counted."""
        return Counts(0, *_COUNTS.unpack_from(self._memory, _COUNTS_OFFSET))

    def held(self) -> list[Held]:
        """What the worker holds at this moment."""
        slots = _SLOT.iter_unpack(self._memory[_PAGE : _PAGE + self.slots * _SLOT.size])
        found = ((entry.rstrip(b"\0"), until) for entry, until in slots)
        return [Held(entry.decode(), until) for entry, until in found if _ENTRY.fullmatch(entry)]

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def new_table(slots: int) -> int:
    """A descriptor of an empty table, for this process and those that inherit it."""
    file = os.memfd_create("toolkiln-leases")
    os.truncate(file, _PAGE + slots * _SLOT.size)
    return file
