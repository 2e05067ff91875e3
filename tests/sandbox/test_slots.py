"""Slots of the sandbox, shared among callers."""

import asyncio

from toolkiln.sandbox.executor import Slots


async def taken(slots: Slots, *callers: str) -> list["asyncio.Task[None]"]:
    """Calls that ask for a slot in this order, once those that need not wait have one."""
    asking = [asyncio.create_task(slots.acquire(who, is_nested=False)) for who in callers]
    for _ in range(3):
        await asyncio.sleep(0)
    return asking


async def test_a_caller_alone_uses_every_slot() -> None:
    slots = Slots(4, first=1)

    calls = await taken(slots, *["ann"] * 5)

    assert [call.done() for call in calls] == [True] * 4 + [False]
    assert (slots.running, slots.waiting) == (4, 1)
    calls[-1].cancel()


async def test_a_caller_that_runs_nothing_gets_a_slot_at_once() -> None:
    slots = Slots(4, first=1)
    calls = await taken(slots, *["ann"] * 8)

    (bob,) = await taken(slots, "bob")

    assert bob.done()
    for call in calls:
        call.cancel()


async def test_a_free_slot_goes_to_the_caller_with_the_fewest_calls() -> None:
    slots = Slots(6, first=1)
    calls = await taken(slots, *["ann"] * 8, "bob", "bob", "eve")
    bobs_second, eves_first = calls[-2:]

    slots.release("ann", is_nested=False)
    await asyncio.sleep(0)
    is_eves_turn = eves_first.done() and not bobs_second.done()
    for _ in range(2):  # the slot for first calls is in use
        slots.release("ann", is_nested=False)
        await asyncio.sleep(0)

    assert is_eves_turn
    assert bobs_second.done()
    assert [call.done() for call in calls[6:8]] == [False] * 2
    for call in calls:
        call.cancel()


async def test_a_call_that_is_cancelled_while_it_waits_leaves_its_slot_to_others() -> None:
    slots = Slots(1, first=0)
    _, second, third = await taken(slots, "ann", "ann", "ann")

    slots.release("ann", is_nested=False)  # it is the turn of the second, which is cancelled
    second.cancel()
    await asyncio.wait([second, third])

    assert second.cancelled()
    assert third.done()
    assert (slots.running, slots.waiting) == (1, 0)
