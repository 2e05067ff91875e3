"""A process that uses a log, for the tests to race and to kill. Not a test itself.

auditor.py PLACE append N      prints `waiting`, waits for a line, appends N batches of 5 records
auditor.py PLACE stream        appends batch after batch, saying the number of each once it is in
auditor.py PLACE fill BYTES    appends until files may not grow beyond BYTES; prints the error
"""

import resource
import sys
from itertools import count

from toolkiln.errors import StoreError
from toolkiln.model.audit import AuditRecord
from toolkiln.store.audit_log import AuditLog, open_audit_log

KEY = b"0123456789abcdef"


def batch(number: int) -> list[AuditRecord]:
    """Five records with the number of their batch."""
    return [AuditRecord(float(number), "call", "ok", detail=f"{number} of 5")] * 5


def fill(log: AuditLog, most: int) -> None:
    """Appends until the disk is full, as it were."""
    log.append(batch(0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    for number in count(1):
        try:
            log.append(batch(number))
        except StoreError as error:
            print(number, error.message, error.hint, sep="\n", flush=True)
            return


def main(place: str, task: str, *arguments: str) -> None:
    """Does one of the things above."""
    if task == "append":
        print("waiting", flush=True)
        sys.stdin.readline()
    log = open_audit_log(place, KEY)
    if task == "append":
        for number in range(int(arguments[0])):
            log.append(batch(number))
    elif task == "stream":
        for number in count():
            log.append(batch(number))
            print(number, flush=True)
    elif task == "fill":
        fill(log, int(arguments[0]))
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
