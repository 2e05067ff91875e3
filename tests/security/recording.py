"""A process that records, for the tests to race and to kill. Not a test itself.

recording.py FILE add N       says `waiting`, waits for a line, adds N records, and ends normally
recording.py FILE stream      adds records, saying each number and when that was, until killed
recording.py FILE run         begins a call that never ends, says `begun`
recording.py FILE fork        adds a record, forks a child that adds another, both end
"""

import os
import sys
import time
from itertools import count

from toolkiln.model.audit import AuditRecord
from toolkiln.security.audit import AuditWriter
from toolkiln.store.audit_log import open_audit_log

KEY = b"0123456789abcdef"


def record(number: int) -> AuditRecord:
    """Return a record with a number of its own."""
    return AuditRecord(time.time(), "call", "ok", call_id=str(number), user=str(os.getpid()))


def main(file: str, task: str, *arguments: str) -> None:
    """Does one of the things above."""
    recorder = AuditWriter(lambda: open_audit_log(file, KEY))
    if task == "add":
        print("waiting", flush=True)
        sys.stdin.readline()
        for number in range(int(arguments[0])):
            recorder.add(record(number))
    elif task == "stream":
        for number in count():
            recorder.add(record(number))
            print(number, time.time(), flush=True)
            time.sleep(0.001)
    elif task == "run":
        started = AuditRecord(1.0, "call", "started", tool="endless")
        recorder.begin("c1", lambda: started)
        print("begun", flush=True)
        sys.stdin.readline()
    elif task == "fork":
        recorder.add(record(1))
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            recorder.add(record(2))


if __name__ == "__main__":
    main(*sys.argv[1:])
