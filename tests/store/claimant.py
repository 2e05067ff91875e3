"""A process that uses a store, for the tests to race and to kill. Not a test itself.

claimant.py PLACE open         prints `waiting`, waits for a line, opens the store, prints `ready`
claimant.py PLACE hold ID      claims a call, prints `claimed`, and never finishes it
claimant.py PLACE stream       claims and finishes call after call, saying each id once it is kept
claimant.py PLACE race IDS N   the same, then N threads claim ids 0…IDS-1; prints each id it ran
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

from toolkiln.model.call import Call, Claimed, Result, Status
from toolkiln.model.identity import Caller
from toolkiln.store.store import Store, open_store


def run(store: Store, call_id: str, owner: str) -> bool:
    """Claim and finish a call; return whether it was ours to run."""
    call = Call(tool="t", id=call_id)
    claim = store.claim(call, caller=Caller(), fingerprint="f", owner=owner, lease_seconds=600)
    if isinstance(claim, Claimed):
        result = Result(call_id=call_id, tool="t", status=Status.OK, value=owner)
        assert store.finish(claim, result)
        return True
    return False


def race(store: Store, ids: int, threads: int) -> list[str]:
    """The ids that this process got to run."""

    def all_ids(seed: int) -> list[str]:
        order = list(range(ids))
        Random(seed).shuffle(order)
        return [str(number) for number in order if run(store, str(number), f"thread {seed}")]

    with ThreadPoolExecutor(threads) as pool:
        return [ran for part in pool.map(all_ids, range(threads)) for ran in part]


def main(place: str, task: str, *arguments: str) -> None:
    """Does one of the things above."""
    if task in {"open", "race"}:
        print("waiting", flush=True)
        sys.stdin.readline()
    store = open_store(place)
    if task == "open":
        print("ready", flush=True)
    elif task == "hold":
        call = Call(tool="t", id=arguments[0])
        claim = store.claim(
            call, caller=Caller(), fingerprint="f", owner="doomed", lease_seconds=60
        )
        assert isinstance(claim, Claimed)
        print("claimed", flush=True)
        sys.stdin.readline()
    elif task == "stream":
        for number in count():
            run(store, str(number), "doomed")
            print(number, flush=True)
    elif task == "race":
        ids, threads = map(int, arguments)
        print(*race(store, ids, threads), flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
