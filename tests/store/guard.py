"""A process that decides, takes and sets, for the tests to race. Not a test itself.

Each prints `waiting`, waits for a line, does its tasks, parted by `then`, and prints a line of
results for each:

guard.py PLACE decide WHO VERDICT ID…  answers these requests with `approve` or `reject`;
                                       prints the ids whose answer counted
guard.py PLACE use WHO FINGERPRINT ID… uses these approvals; prints the ids that it got
guard.py PLACE take COUNT TRIES        tries to take from two buckets; prints how often it could
guard.py PLACE set WHO TIMES           sets a setting; prints the versions that it saw after
guard.py PLACE session KEY_ID          makes a session with a key; before it is written, it
                                       prints `halted` and waits until its input ends
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Engine, event

from toolkiln.errors import InputError
from toolkiln.model.identity import Caller, SessionRecord
from toolkiln.model.policy import ApprovalVerdict, Draw, Rate
from toolkiln.store.store import Store, open_store


def decide(store: Store, who: str, verdict: str, *ids: str) -> list[str]:
    """The ids whose answer counted."""
    counted = []
    for approval_id in ids:
        try:
            store.approvals.decide(
                approval_id, ApprovalVerdict(approve=verdict == "approve", by=who)
            )
            counted.append(approval_id)
        except InputError as error:
            assert "by 'bob'" in error.message or "by 'ann'" in error.message  # noqa: PT017
    return counted


def use(store: Store, who: str, fingerprint: str, *ids: str) -> list[str]:
    """The ids that were still there to be used."""
    return [found for found in ids if store.approvals.use(found, fingerprint)]


def take(store: Store, count: str, tries: str) -> list[str]:
    """How often a token of each was there."""
    rate = Rate(int(count), 1e9)
    draws = [Draw("one", rate), Draw("two", rate)]
    # In either order: PostgreSQL would report a deadlock of takers.
    took = [store.buckets.take(draws[:: 1 - 2 * (n % 2)]) == 0 for n in range(int(tries))]
    return [str(sum(took))]


def write(store: Store, who: str, times: str) -> list[str]:
    """Nothing is left to say."""
    for number in range(int(times)):
        store.tool_settings.change("t", partial(_with, f"{who}{number}", number))
    return []


def _with(name: str, value: int, values: dict[str, Any]) -> dict[str, Any]:
    return {**values, name: value}


def make_session(store: Store, key_id: str) -> list[str]:
    """Nothing is left to say."""

    @event.listens_for(Engine, "before_cursor_execute")
    def halt(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT INTO toolkiln_sessions"):
            print("halted", flush=True)
            sys.stdin.read()

    store.sessions.put("c" * 64, SessionRecord(trace_id="t", caller=Caller(), key_id=key_id), 300)
    return []


ACTS: dict[str, Callable[..., list[str]]] = {
    "decide": decide,
    "use": use,
    "take": take,
    "set": write,
    "session": make_session,
}


def main(place: str, *tasks: str) -> None:
    """Do some of the things above."""
    store = open_store(place)
    print("waiting", flush=True)
    sys.stdin.readline()
    for command in " ".join(tasks).split(" then "):
        task, *arguments = command.split(" ")
        print(*ACTS[task](store, *arguments), flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
