"""What travels: all of it comes back, and any other bytes are refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.fleet import wire
from toolkiln.fleet.wire import CallReply, Envelope, Malformed
from toolkiln.model.call import CallError, Event, Result, SentFile, Status, Timing, Truncation

any_text = st.text(st.characters(exclude_categories=()))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner) | st.dictionaries(any_text, inner),
    max_leaves=20,
)
results = st.builds(
    Result,
    call_id=any_text,
    tool=any_text,
    digest=st.none() | any_text,
    status=st.sampled_from(Status),
    value=any_json,
    text=any_text,
    stdout=any_text,
    stderr=any_text,
    error=st.none()
    | st.builds(CallError, code=any_text, message=any_text, retry_after=st.none() | st.just(1.5)),
    notes=st.lists(any_text).map(tuple),
    files=st.lists(st.builds(SentFile, name=any_text, data=st.binary())).map(tuple),
    messages=st.lists(any_json).map(tuple),
    injected_tools=st.lists(any_text).map(tuple),
    truncation=st.none() | st.builds(Truncation, shown=st.integers(0), total=st.integers(0)),
    sandbox=st.sampled_from(["", "A"]),
    timing=st.builds(Timing, started=st.just(1.5), memory=st.none() | st.integers(0)),
)
READERS: list[Callable[[bytes], object]] = [
    wire.envelope_from_wire,
    wire.result_from_wire,
    wire.event_from_wire,
    wire.reply_from_wire,
    wire.replies_from_wire,
    wire.unpack,
]


@given(any_json)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    assert wire.unpack(wire.pack(value)) == value


@each_row(
    "value",
    [1 << 64, -(1 << 63) - 1, 1 << 20_000, "\ud83d\ude00", {"\ud800": b"\xff"}, [b"", (1,)]],
)
def test_what_msgpack_has_no_words_for_comes_back_as_it_was(value: Any) -> None:
    back = wire.unpack(wire.pack([value, "\ud800"]))

    assert back == [[b"", [1]] if isinstance(value, list) else value, "\ud800"]


@settings(max_examples=50)
@given(results)
def test_a_result_comes_back_with_all_its_fields(result: Result) -> None:
    assert wire.result_from_wire(wire.result_to_wire(result)) == result


def test_a_plain_result_is_short() -> None:
    result = Result(call_id="c", tool="t", status=Status.OK, value=1)

    assert len(wire.result_to_wire(result)) < 50


@given(st.builds(Event, kind=st.just("progress"), text=any_text, done=st.none() | st.just(0.5)))
def test_an_event_comes_back(event: Event) -> None:
    assert wire.event_from_wire(wire.event_to_wire(event)) == event


@settings(max_examples=50)
@given(st.binary() | any_json.map(wire.pack) | results.map(wire.result_to_wire))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in READERS:
        try:
            read(data)
        except Malformed:
            continue


@each_row(
    "data",
    [
        b"",
        b"\x91" * 1_000_000,
        b"\x81\x01" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa2\xed\xa0",
        b"\xc7\x01\x09\x00",
        b"\xc7\x01\x02z",
        b"\xc7\x02\x03\x91\x91",
        b"\xc7\x04\x03\x91\x92\x90\x01",
        b"\xc1",
        b"\xc0\xc0",
    ],
)
def test_hostile_bytes_are_malformed(data: bytes) -> None:
    for read in READERS:
        with pytest.raises(Malformed):
            read(data)


@each_row(
    "fields",
    [
        {"record": ""},
        {"record": "x" * 65},
        {"record": "a b"},
        {"record": "a\n"},
        {"reply_to": "a b"},
        {"reply_to": "c1\nother"},
        {"timeout_ms": -1},
        {"timeout_ms": 1 << 60},
        {"id": "x" * 201},
        {"depth": -1},
    ],
)
def test_an_envelope_with_impossible_fields_is_malformed(fields: dict[str, Any]) -> None:
    envelope = Envelope(**{"id": "i", "record": "r", "tool": "t", **fields})

    with pytest.raises(Malformed):
        wire.envelope_from_wire(wire.envelope_to_wire(envelope))


def test_an_envelope_of_a_later_version_is_read() -> None:
    envelope = Envelope(id="i", record="r", tool="t", arguments=Raw(wire.pack([1])), seal=b"s")
    fields = wire.unpack(wire.envelope_to_wire(envelope))

    assert wire.envelope_from_wire(wire.pack([*fields, "more"])) == envelope


def test_what_is_not_plain_or_nests_too_deep_is_refused_with_a_hint() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    for value in (object(), {1, object()}, lambda: 1, deep, [deep, "\ud800"]):
        with pytest.raises(InputError) as caught:
            wire.pack(value)
        assert caught.value.hint


def test_a_result_above_the_limit_is_refused() -> None:
    result = Result(call_id="c", tool="t", status=Status.OK, text="x" * wire.BODY_LIMIT)

    with pytest.raises(InputError):
        wire.result_to_wire(result)


def test_fingerprints_differ_by_call_and_not_by_the_order_of_arguments() -> None:
    def mark(arguments: Any, tool: str = "t") -> str:
        made = Envelope(id="i", record="r", tool=tool, arguments=Raw(wire.pack(arguments)))
        return wire.fingerprint(made)

    assert mark({"a": 1, "\ud800": 1 << 70}) == mark({"\ud800": 1 << 70, "a": 1})
    assert mark({"a": 1, "b": {"c": 1, "d": 2}}) == mark({"b": {"d": 2, "c": 1}, "a": 1})
    different = [{"a": 1}, {"a": 2}, {"a": "1"}, [["a", 1]], None, {"a": True}, {"a": 1.5}]
    assert len({mark(one) for one in different} | {mark({"a": 1}, "u")}) == len(different) + 1


def test_several_replies_are_read_as_they_are_packed() -> None:
    replies = [CallReply("r", "result", b"x"), CallReply("s", "end", b"lost")]
    packed = b"\xdc\x00\x02" + b"".join(wire.reply_to_wire(reply) for reply in replies)

    assert wire.replies_from_wire(packed) == replies
    assert wire.replies_from_wire(wire.replies_to_wire(replies)) == replies


@each_row("code", [*sorted(wire.CODES), "unheard-of"])
def test_every_end_code_has_a_result_that_says_what_to_do(code: str) -> None:
    result = wire.end_result(code, call_id="c", tool="t")

    assert result.error
    assert result.error.code == (code if code in wire.CODES else "lost")
    assert result.status is not Status.OK
    assert result.text == result.error.message
