"""What `toolkiln fleet` does: ask the fleet's Redis, print."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import NamedTuple, TypeVar

from toolkiln.app import DeadLetter, FleetState, Operator, generate_worker_keys, operating
from toolkiln.config import project_settings
from toolkiln.errors import InputError
from toolkiln.model import Privilege
from toolkiln.surfaces.cli.opening import open_kiln, require
from toolkiln.surfaces.cli.tables import print_table
from toolkiln.surfaces.cli.terminal import print_json, say, talk

T = TypeVar("T")


class Chosen(NamedTuple):
    """The dead letters that somebody means."""

    ids: tuple[str, ...]
    everything: bool
    pool: str


def status(redis: str | None, *, as_json: bool) -> None:
    """Print how the fleet stands."""
    state = _asked(redis, "fleet.show", lambda operator: operator.state())
    if as_json:
        print_json(asdict(state))
        return
    tools = f"{state.tools:,} tool{'' if state.tools == 1 else 's'}"
    say(f"{state.server}: Redis {state.version}, {_size(state.memory)}, {tools}")
    _print_pools(state)
    _print_workers(state)
    for one in state.refused:
        talk(
            f"warning: a worker on {one.host}, pool {one.pool}, refused to start "
            f"{_time(one.seconds)} ago: {one.why}"
        )
    for warning in state.warnings:
        talk(f"warning: {warning}")


def _print_pools(state: FleetState) -> None:
    if not state.pools:
        return
    say("")
    print_table(
        ("pool", "workers", "slots", "running", "waiting", "oldest", "dead letters"),
        [
            (
                pool.name,
                f"{sum(worker.pool == pool.name for worker in state.workers)}",
                f"{sum(worker.slots for worker in state.workers if worker.pool == pool.name)}",
                f"{pool.running:,}",
                f"{pool.waiting:,}",
                _time(pool.oldest) if pool.waiting else "",
                f"{pool.dead:,}",
            )
            for pool in state.pools
        ],
    )


def _print_workers(state: FleetState) -> None:
    if not state.workers:
        talk("no workers: start one with `toolkiln worker`")
        return
    say("")
    print_table(
        ("worker", "pool", "state", "running", "up", "version", "host", "pid"),
        [
            (
                worker.name,
                worker.pool,
                worker.state,
                f"{worker.running} of {worker.slots}",
                _time(worker.seconds),
                worker.version,
                worker.host,
                str(worker.pid),
            )
            for worker in state.workers
        ],
    )


def drain(redis: str | None, worker: str, pool: str, *, as_json: bool) -> None:
    """Ask workers to leave, and print whom."""
    if bool(worker) == bool(pool):
        raise InputError(
            "say whom to drain: one worker by its name, or --pool NAME",
            hint="`toolkiln fleet status` lists them",
        )
    asked = _asked(redis, "fleet.drain", lambda fleet: fleet.drain(worker=worker, pool=pool))
    if as_json:
        print_json([one.name for one in asked])
        return
    for one in asked:
        say(f"draining: {one.name}, {one.running} running")


def reload(redis: str | None, *, as_json: bool) -> None:
    """Ask all workers to read again what they serve."""
    count = _asked(redis, "fleet.reload", lambda operator: operator.reload())
    if as_json:
        print_json({"asked": count})
    else:
        say(f"asked {count} worker{'' if count == 1 else 's'}")


def clear_catalog(redis: str | None, *, yes: bool, as_json: bool) -> None:
    """Forget what is published, so that workers with other keys can publish."""
    if not yes:
        raise InputError(
            "callers see no tools until the workers have published theirs again",
            hint="--yes clears the catalog all the same",
        )
    count = _asked(redis, "fleet.clear_catalog", lambda operator: operator.clear_catalog())
    if as_json:
        print_json({"tools": count})
    else:
        say(f"cleared: {count:,} tool{'' if count == 1 else 's'}")


def keygen(*, as_json: bool) -> None:
    """Print a pair of keys for signing."""
    private, public = generate_worker_keys()
    if as_json:
        print_json({"worker_key": private, "worker_keys": [public]})
        return
    say(f'worker_key = "{private}"')
    say(f'worker_keys = ["{public}"]')
    talk("worker_key is for workers only; worker_keys is for workers and clients")


def letters_list(redis: str | None, pool: str, *, as_json: bool) -> None:
    """Print the calls that were given up."""
    letters = _asked(redis, "dead_letters.list", lambda fleet: fleet.dead_letters(pool))
    if as_json:
        print_json([asdict(letter) for letter in letters])
        return
    if not letters:
        talk("no dead letters")
        return
    print_table(
        ("id", "pool", "age", "tool", "call", "tries", "why"),
        [
            (
                letter.id,
                letter.pool,
                _time(letter.seconds),
                letter.tool or "?",
                letter.call_id,
                str(letter.tries),
                letter.why,
            )
            for letter in letters
        ],
    )


def letters_retry(redis: str | None, chosen: Chosen, *, as_json: bool) -> None:
    """Put calls in once more."""

    async def retry(operator: Operator) -> list[DeadLetter]:
        letters = await _chosen(operator, chosen)
        for letter in letters:
            await operator.retry(letter)
        return letters

    _tell("tried again", _asked(redis, "dead_letters.retry", retry), as_json=as_json)


def letters_drop(redis: str | None, chosen: Chosen, *, as_json: bool) -> None:
    """Forget calls that were given up."""

    async def drop(operator: Operator) -> list[DeadLetter]:
        letters = await _chosen(operator, chosen)
        await operator.drop(letters)
        return letters

    _tell("dropped", _asked(redis, "dead_letters.drop", drop), as_json=as_json)


async def _chosen(operator: Operator, chosen: Chosen) -> list[DeadLetter]:
    if bool(chosen.ids) == chosen.everything:
        raise InputError(
            "say which dead letters: their ids, or --all",
            hint="`toolkiln fleet dead-letters list` lists them",
        )
    found = await operator.dead_letters(chosen.pool)
    if chosen.everything:
        return found
    known = {letter.id: letter for letter in found}
    for missing in [one for one in chosen.ids if one not in known]:
        hint = "`toolkiln fleet dead-letters list` lists them"
        raise InputError(f"there is no dead letter {missing!r}", hint=hint)
    return [known[one] for one in dict.fromkeys(chosen.ids)]


def _tell(what: str, letters: list[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json([letter.id for letter in letters])
        return
    for letter in letters:
        say(f"{what}: {letter.id} {letter.tool}".rstrip())


def _asked(redis: str | None, act: str, ask: Callable[[Operator], Awaitable[T]]) -> T:
    """Ask the fleet for something, for a caller with ADMIN; `act` names it in a denial."""

    async def asking() -> T:
        async with operating(url) as operator:
            return await ask(operator)

    known = project_settings()
    url = redis or known.fleet or known.redis
    if not url:
        raise InputError(
            "there is no fleet to look after", hint="name its Redis: --redis redis://HOST:PORT"
        )
    with open_kiln(redis=url) as kiln:
        require(kiln, Privilege.ADMIN, act)
    return asyncio.run(asking())


def _time(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
