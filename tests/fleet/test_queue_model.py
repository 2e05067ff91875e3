"""The queue against a model of it: whatever callers and workers do, in whichever order."""

import asyncio
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkiln.fleet import keys
from toolkiln.fleet.delivery import (
    Accepted,
    Admission,
    AlreadyRunning,
    Delivery,
    DeliveryConflict,
    Ending,
    Finished,
)
from toolkiln.fleet.wire import CallReply

from .queues import POOL, Desk, call, desk
from .servers import Server

REMEMBERED = {"r0", "r1"}
records = st.sampled_from(["r0", "r1", "r2"])
callers = st.sampled_from(["c1", "c2"])
consumers = st.sampled_from(["w1", "w2", "w3"])
# Which of all deliveries so far, counted from the last.
ages = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("enqueue"), records, callers, st.integers(0, 1)),
    st.tuples(st.just("read"), consumers, st.integers(1, 3)),
    st.tuples(st.just("finish"), ages, st.sampled_from(["result", "lost", "stale"])),
    st.tuples(st.just("requeue"), ages),
    st.tuples(st.just("bury"), ages),
    st.tuples(st.just("renew"), ages, consumers),
    st.tuples(st.just("abandoned"), consumers),
    st.tuples(st.just("cancel"), records),
    st.tuples(st.just("withdraw"), records),
)


@dataclass
class Known:
    """A call as the model knows it."""

    variant: int
    askers: list[str]
    state: Literal["waiting", "held", "done"] = "waiting"
    entry: str = ""
    holder: str = ""
    tries: int = 0
    reply: CallReply | None = None


@dataclass
class Model:
    """What has to happen."""

    calls: dict[str, Known] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    sent: dict[str, list[CallReply]] = field(default_factory=lambda: defaultdict(list))

    def enqueue(self, record: str, caller: str, variant: int) -> Admission:
        known = self.calls.get(record)
        if known is None:
            self.calls[record] = Known(variant, [caller])
            self.waiting.append(record)
            return Accepted()
        if record in REMEMBERED and known.variant != variant:
            return DeliveryConflict()
        if known.state == "done":
            return Finished(known.reply if record in REMEMBERED else None)
        if caller not in known.askers:
            known.askers.append(caller)
        return AlreadyRunning()

    def read(self, consumer: str, taken: list[Delivery], count: int) -> None:
        assert [one.record for one in taken] == self.waiting[:count]
        for delivery in taken:
            known = self.calls[delivery.record]
            assert delivery.tries == known.tries
            known.state, known.entry, known.holder = "held", delivery.entry, consumer
        del self.waiting[:count]

    def is_held(self, delivery: Delivery) -> bool:
        known = self.calls.get(delivery.record)
        return known is not None and known.state == "held" and known.entry == delivery.entry

    def end(self, record: str, kind: Literal["result", "end"], body: bytes) -> None:
        known = self.calls[record]
        known.state, known.reply = "done", CallReply(record, kind, body)
        for asker in known.askers:
            self.sent[asker].append(known.reply)
        if body in {b"stale", b"no_worker"}:
            del self.calls[record]

    def cancel(self, record: str, code: str) -> str:
        known = self.calls.get(record)
        if known is None:
            return "unknown"
        if known.state == "waiting":
            self.waiting.remove(record)
            self.end(record, "end", code.encode())
            return "cancelled"
        return "asked" if known.state == "held" else "done"


async def take_step(
    own: Desk, model: Model, seen: list[Delivery], step: tuple[object, ...]
) -> None:
    """One step of both, which must agree."""
    queue = own.queue
    match step:
        case ("enqueue", str(record), str(caller), int(variant)):
            made = call(record, variant, reply_to=caller, remember=record in REMEMBERED)
            assert await queue.enqueue(made) == model.enqueue(record, caller, variant)
        case ("read", str(consumer), int(count)):
            taken = await own.take(consumer, count) if model.waiting else []
            model.read(consumer, taken, count)
            seen += taken
        case ("abandoned", str(consumer)):
            _, taken = await queue.claim_abandoned(consumer, "0-0", 0)
            held = {r: known for r, known in model.calls.items() if known.state == "held"}
            assert {one.record: one.entry for one in taken} == {r: k.entry for r, k in held.items()}
            for known in held.values():
                known.holder = consumer
        case ("cancel", str(record)):
            assert await queue.cancel(record) == model.cancel(record, "cancelled")
        case ("withdraw", str(record)):
            waits = record in model.waiting
            assert await queue.withdraw(record, "no_worker") == waits
            if waits:
                model.cancel(record, "no_worker")
        case (str(act), int(age), *rest) if seen:
            await take_over(own, model, seen[-1 - age % len(seen)], act, rest)


async def take_over(
    own: Desk, model: Model, delivery: Delivery, act: str, rest: list[object]
) -> None:
    """What a worker does with a delivery that it has, or believes to have."""
    record, is_held = delivery.record, model.is_held(delivery)
    match act, rest:
        case "renew", [str(consumer)]:
            own_still = is_held and model.calls[record].holder == consumer
            assert await own.queue.renew(consumer, [delivery.entry]) == [own_still]
        case "finish", ["result"]:
            assert await own.queue.finish(Ending(delivery, "result", b"\x01")) == is_held
            if is_held:
                model.end(record, "result", b"\x01")
        case "finish", [str(code)]:
            assert await own.queue.finish(Ending(delivery, "end", code.encode())) == is_held
            if is_held:
                model.end(record, "end", code.encode())
        case "bury", _:
            assert await own.queue.bury(delivery, "why") == is_held
            if is_held:
                model.end(record, "end", b"poison")
        case "requeue", _:
            assert await own.queue.requeue(delivery, delivery.tries + 1) == is_held
            if is_held:
                known = model.calls[record]
                known.state, known.tries = "waiting", delivery.tries + 1
                model.waiting.append(record)


async def reckon(own: Desk, model: Model) -> None:
    """All that is left is worked off, and then each caller has got what the model says."""
    _, held = await own.queue.claim_abandoned("last", "0-0", 0)
    taken = await own.take("last") if model.waiting else []
    for delivery in [*held, *taken]:
        assert await own.queue.finish(Ending(delivery, "result", b"\x02"))
        model.end(delivery.record, "result", b"\x02")

    for caller in ("c1", "c2"):
        assert await own.replies_to(caller) == model.sent[caller]
    assert await own.queue.consumers.depth() == (0, 0)
    assert await own.pipe.command("XLEN", keys.calls(POOL)) == 0
    assert {known.state for known in model.calls.values()} <= {"done"}


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=30, max_size=60))
def test_whatever_happens_each_accepted_call_has_one_end_and_all_who_asked_hear_it(
    server: Server, todo: list[tuple[object, ...]]
) -> None:
    async def play() -> None:
        async with desk(server.url) as own:
            model, seen = Model(), list[Delivery]()
            for step in todo:
                await take_step(own, model, seen, step)
            await reckon(own, model)

    with closing(server.client()) as client:
        client.flushall()
    asyncio.run(play())
