"""The supervisor of modes without namespaces: it ends its worker, however often it is signalled."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

BOUND = 20.0
GUARDED = """
import os, sys, time
from toolkiln.runtime import one_shot
os.dup2(os.open(os.devnull, os.O_RDONLY), 3)
one_shot._supervise(None)
for _ in range(150):
    if os.fork() == 0:
        os.setsid()
        break
else:
    print("ready", flush=True)
time.sleep(60)
"""


def running(marker: str) -> int:
    """How many processes have a marker on their command line."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            count += marker.encode() in file.read_bytes()
    return count


def test_a_supervisor_that_is_signalled_repeatedly_leaves_no_process_alive() -> None:
    marker = f"guarded-{os.urandom(8).hex()}"
    guardian = subprocess.Popen(
        [sys.executable, "-c", GUARDED, marker], stdout=subprocess.PIPE, text=True
    )
    assert guardian.stdout is not None
    with guardian.stdout as said:
        assert said.readline() == "ready\n"

        while guardian.poll() is None:
            guardian.send_signal(signal.SIGTERM)

    until = time.monotonic() + BOUND
    while (left := running(marker)) and time.monotonic() < until:
        time.sleep(0.02)
    assert left == 0
