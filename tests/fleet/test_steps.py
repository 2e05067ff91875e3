"""What is done with a call, for any call at any time."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolkiln.fleet import steps
from toolkiln.fleet.delivery import Delivery
from toolkiln.fleet.steps import Begin, Bury, End, Requeue
from toolkiln.fleet.wire import Envelope

times = st.integers(0, 1 << 48)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    envelope = Envelope(id="r", record="r", tool="t", repeatable=draw(st.booleans()))
    deadline, tries = draw(st.none() | times), draw(st.integers(0, 10))
    return Delivery("1-0", envelope, deadline, tries, doubtful=draw(st.booleans()))


calls = deliveries()


@given(calls, times)
def test_a_call_runs_only_in_time_and_only_so_often(call: Delivery, now: int) -> None:
    step = steps.next_step(call, now)

    if isinstance(step, Begin):
        assert step.start == call.tries + 1 <= steps.MOST_STARTS
        assert call.deadline_ms is None or now < call.deadline_ms
        assert call.repeatable or not call.doubtful
    elif step == End("lost"):
        assert call.doubtful
        assert not call.repeatable
    elif step == End("timeout"):
        assert call.deadline_ms is not None
        assert call.deadline_ms <= now
    else:
        assert isinstance(step, Bury)
        assert call.tries >= steps.MOST_STARTS


@given(calls, times)
def test_a_call_that_may_have_run_is_begun_again_only_if_that_does_no_harm(
    call: Delivery, now: int
) -> None:
    step = steps.after_loss(call, now)

    if not call.repeatable:
        assert step == End("lost")
    if isinstance(step, Requeue):
        assert step.tries == call.tries + 1
        again = steps.next_step(replace(call, tries=step.tries, doubtful=False), now)
        assert isinstance(again, Begin)


@given(calls, times)
def test_a_call_that_was_not_started_is_requeued_unchanged(call: Delivery, now: int) -> None:
    step = steps.before_leaving(call, now, begun=False)

    if call.doubtful:
        assert step == steps.after_loss(call, now)
    else:
        assert step in (Requeue(call.tries), End("timeout"))
    assert steps.before_leaving(call, now, begun=True) == steps.after_loss(call, now)


@given(st.integers(0, 1), st.booleans())
def test_every_call_ends_after_so_many_losses(tries: int, repeatable: bool) -> None:
    envelope = Envelope(id="r", record="r", tool="t", repeatable=repeatable)
    call, losses = Delivery("1-0", envelope, None, tries), 0
    while isinstance(step := steps.after_loss(call, 0), Requeue):
        call, losses = replace(call, tries=step.tries), losses + 1

    assert losses < steps.MOST_STARTS
    assert isinstance(step, End | Bury)


def test_what_did_not_run_frees_its_id_and_the_rest_is_known_for_a_while() -> None:
    assert steps.horizon_ms("no_worker", remember=True) == 0
    assert steps.horizon_ms("stale", remember=False) == 0
    assert steps.horizon_ms(None, remember=True) == steps.LONG_MS
    assert steps.horizon_ms("lost", remember=True) == steps.LONG_MS
    assert steps.horizon_ms("timeout", remember=False) == steps.SHORT_MS
