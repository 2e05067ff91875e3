"""Guards: files that processes and tasks lock, so that one builds and none removes what is used.

A lock ends when the last holder of the open file is gone, however it ended, so no guard
outlives a kill. The time of a guard file is the last use of what it guards.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from toolkiln.execution.environments.folders import disk_errors

_SHORTEST_WAIT, _LONGEST_WAIT = 0.01, 0.2


def attempt(file: Path, *, exclusive: bool) -> int | None:
    """The descriptor that holds the lock until it is closed, None if others hold it."""
    with disk_errors():
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                # A lock on a file that was removed in between keeps nobody out.
                if os.fstat(descriptor).st_nlink:
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:  # the descriptor belongs to nobody yet
                os.close(descriptor)
                raise
            os.close(descriptor)


@asynccontextmanager
async def hold(file: Path, *, exclusive: bool) -> AsyncIterator[int]:
    """Wait for the lock, hold it, and give its descriptor.

    Waiting asks again and again: a thread that blocks in `flock` can neither be cancelled nor
    spared by those who need a thread to finish what it waits for.
    """
    wait = _SHORTEST_WAIT
    while (descriptor := attempt(file, exclusive=exclusive)) is None:
        await asyncio.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
