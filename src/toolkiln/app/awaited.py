"""The calls that wait for a person, looked up once for all who want to know at the same time."""

import asyncio
import time
from collections.abc import Sequence

from toolkiln.execution import Approvals, may_answer
from toolkiln.model import Approval, Caller

_FRESH = 0.5
"""Seconds for which an answer holds."""
_MOST = 1_000


class Awaited:
    """What people are asked at the moment."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._asking = asyncio.Lock()
        self._found: Sequence[Approval] = ()
        self._until = 0.0

    async def by(self, caller: Caller, *, is_local: bool) -> frozenset[str]:
        """The ids of the requests that a caller may answer; `is_local` as in `may_answer`.

        Raises:
            StoreError: they cannot be looked up.
        """
        async with self._asking:
            if time.monotonic() >= self._until:
                self._found = await asyncio.to_thread(self._approvals.waiting, _MOST)
                self._until = time.monotonic() + _FRESH
        return frozenset(
            request.id for request in self._found if may_answer(caller, request, is_local=is_local)
        )
