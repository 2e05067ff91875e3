"""Several processes at one store: races, first opens, and death by SIGKILL."""

import sqlite3
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from toolkiln.model.call import Call, Claimed, Done, Result, Status
from toolkiln.model.identity import Caller
from toolkiln.store.store import Store, open_store

from .archivist import ADMITTED, content
from .conftest import (
    Clock,
    Opener,
    count_rows,
    halted,
    kill,
    next_line,
    running,
    together,
    wait_until_blocked,
)

pytestmark = pytest.mark.faults

NOBODY = Caller()


def claim_of(store: Store, call_id: str) -> object:
    call = Call(tool="t", id=call_id)
    return store.claim(call, caller=NOBODY, fingerprint="f", owner="me", lease_seconds=60)


def test_each_call_is_run_by_one_of_many_processes_and_threads(place: str, opened: Opener) -> None:
    printed = together(place, "claimant.py", *[("race", "60", "6")] * 2)

    ids = [str(number) for number in range(60)]
    assert sorted(" ".join(printed).split(), key=int) == ids
    store = opened(place)
    assert all(isinstance(claim_of(store, number), Done) for number in ids)


def test_a_lost_call_is_taken_over_by_one_of_many(place: str, opened: Opener) -> None:
    clock = Clock()
    store = opened(place, clock)
    others = [opened(place, clock) for _ in range(4)]
    for number in range(20):
        claim_of(store, str(number))
        clock.now += 61
        start = Barrier(4)

        def take(taker: Store, start: Barrier = start, call_id: str = str(number)) -> object:
            start.wait(timeout=60)
            return claim_of(taker, call_id)

        with ThreadPoolExecutor(4) as pool:
            claims = list(pool.map(take, others))

        assert [c.attempt for c in claims if isinstance(c, Claimed)] == [2]


def test_processes_that_open_a_new_store_at_once_all_succeed(place: str) -> None:
    assert together(place, "claimant.py", *[("open",)] * 4) == ["ready\n"] * 4


def test_a_killed_owner_is_replaced_when_its_lease_has_run_out(place: str, opened: Opener) -> None:
    with running(place, "hold", "c1") as doomed:
        assert next_line(doomed) == "claimed"
        doomed.kill()
    now = opened(place)
    later = opened(place, lambda: time.time() + 61)
    before = now.task(NOBODY, "c1")
    after = later.task(NOBODY, "c1")
    claim = claim_of(later, "c1")

    assert before
    assert before.state == "running"
    assert after
    assert after.state == "lost"
    assert isinstance(claim, Claimed)
    assert claim.attempt == 2
    assert later.finish(claim, Result(call_id="c1", tool="t", status=Status.OK))


def test_every_confirmed_result_survives_sigkill_at_any_moment(place: str, opened: Opener) -> None:
    with running(place, "stream") as doomed:
        kept = [next_line(doomed) for _ in range(40)]
        kept += kill(doomed)
    store = opened(place)

    assert kept[:3] == ["0", "1", "2"]
    assert all(isinstance(claim_of(store, number), Done) for number in kept)
    if "://" not in place:
        with closing(sqlite3.connect(place)) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_concurrent_pruning_blocks_no_claim(place: str, opened: Opener, clock: Clock) -> None:
    stores = [opened(place, clock) for _ in range(4)]
    for _ in range(40):
        stores[0].save_output(NOBODY, "text", keep_seconds=1)
    clock.now += 1

    def work(store: Store) -> None:
        for number in range(10):
            store.prune()
            claim_of(store, str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, stores))

    assert len(stores[0].tasks(NOBODY)) == 10


def test_more_threads_than_connections_wait_their_turn(place: str, opened: Opener) -> None:
    store = opened(place)

    with ThreadPoolExecutor(40) as pool:
        claims = list(pool.map(lambda number: claim_of(store, str(number)), range(200)))

    assert all(isinstance(claim, Claimed) for claim in claims)


def test_processes_that_store_one_file_concurrently_get_different_numbers(
    place: str, opened: Opener
) -> None:
    open_store(place).close()
    printed = together(
        place, "archivist.py", *[("race", who, "20") for who in ("ann", "ben", "al")]
    )

    history = opened(place).archive.history("c", "greet.py")
    assert sorted(map(int, " ".join(printed).split())) == list(range(1, 61))
    assert [version.number for version in history] == list(range(60, 0, -1))
    assert len({version.digest for version in history}) == 60


def test_catalogs_that_store_the_same_files_concurrently_do_not_deadlock(
    place: str, opened: Opener
) -> None:
    files = [content(str(number), f"f{number}.py") for number in range(200)]
    archives = [opened(place).archive for _ in range(4)]

    def keep(number: int) -> int:
        order = files if number % 2 else files[::-1]
        return len(archives[number].add_many(f"catalog {number}", order, ADMITTED))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(keep, range(4))) == [200] * 4
    assert count_rows(place, "toolkiln_contents") == 200
    assert count_rows(place, "toolkiln_versions") == 800


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO toolkiln_contents",
        "INSERT INTO toolkiln_versions",
        "INSERT INTO toolkiln_declarations",
        "COMMIT",
    ],
)
def test_a_version_is_stored_completely_or_not_at_all_when_its_writer_is_killed(
    place: str, opened: Opener, statement: str
) -> None:
    first = opened(place).archive.add("c", content("one"), ADMITTED)
    with halted(place, "keep", statement) as doomed:
        doomed.kill()
    archive = opened(place).archive
    digest = content("two").reading.digest

    assert archive.history("c", "greet.py") == [first]
    assert archive.sources(digest, "greet.py") is None
    assert archive.add("c", content("two"), ADMITTED).number == 2
    assert archive.sources(digest, "greet.py") == {"greet.py": b"two"}


def test_readers_do_not_wait_for_a_writer(place: str, opened: Opener) -> None:
    archive = opened(place).archive
    first = archive.add("c", content("one"), ADMITTED)

    with halted(place, "keep", "COMMIT"):
        assert archive.history_of_tool("c", "greet") == [first]
        assert archive.sources(first.digest, "greet.py") == {"greet.py": b"one"}


def test_usages_recorded_concurrently_stay_within_the_limit(place: str, opened: Opener) -> None:
    archives = [opened(place).archive for _ in range(4)]

    def note(number: int) -> None:
        for count in range(30):
            prompt = f"{count} of {number % 2}"
            archives[number].add_usage("c", "greet", prompt, f"2026-01-01T00:00:{count:02}Z")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, range(4)))

    usages = archives[0].usages("c")["greet"]
    assert len(usages) == len(set(usages)) == count_rows(place, "toolkiln_usages") == 50


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_usage_recorded_twice_concurrently_is_stored_once(place: str, opened: Opener) -> None:
    archive = opened(place).archive
    with halted(place, "note", "COMMIT") as first, ThreadPoolExecutor(1) as pool:
        second: Future[object] = pool.submit(
            archive.add_usage, "c", "greet", "hello", "2026-01-01T00:00:00Z"
        )
        wait_until_blocked(place, second)
        first.communicate()
        second.result(timeout=60)

    assert archive.usages("c") == {"greet": ("hello",)}
