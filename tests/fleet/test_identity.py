"""What the fleet's seals prove, and where its key comes from."""

import asyncio
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkiln.config import Settings
from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.message_auth import (
    FleetKeys,
    fleet_keys,
    has_valid_seal,
    seal,
    seal_bytes,
    unseal_bytes,
)
from toolkiln.fleet.wire import Envelope, envelope_from_wire, envelope_to_wire, pack

from .servers import Server

KEY = FleetKeys(b"k" * 32)
CALL = Envelope(id="c1", record="r1", tool="pay", arguments=msgspec.Raw(pack({"to": "ann"})))
OTHERWISE: dict[str, Any] = {
    "id": "c2",
    "record": "r2",
    "tool": "hello",
    "digest": "d",
    "arguments": msgspec.Raw(pack({"to": "eve"})),
    "session": "s",
    "surface": "mcp",
    "timeout_ms": 1,
    "repeatable": True,
    "remember": True,
    "events": True,
    "reply_to": "x",
    "pool": "gpu",
    "traceparent": "p",
    "depth": 1,
    "asks": ("form",),
}


def test_a_sealed_call_is_genuine_after_its_journey() -> None:
    sent = msgspec.structs.replace(CALL, seal=seal(KEY, CALL))

    assert has_valid_seal(KEY, envelope_from_wire(envelope_to_wire(sent)))
    assert not has_valid_seal(FleetKeys(b"another key"), sent)
    assert not has_valid_seal(KEY, CALL)


def test_every_field_is_tried() -> None:
    assert {*OTHERWISE, "seal"} == set(Envelope.__struct_fields__)


@pytest.mark.parametrize("field", OTHERWISE)
def test_a_call_that_was_changed_on_its_way_is_forged(field: str) -> None:
    changed = msgspec.structs.replace(CALL, seal=seal(KEY, CALL), **{field: OTHERWISE[field]})

    assert not has_valid_seal(KEY, changed)


@given(data=st.binary(), purpose=st.text(max_size=20), other=st.text(max_size=20))
def test_data_comes_back_for_its_purpose_only(data: bytes, purpose: str, other: str) -> None:
    blob = seal_bytes(KEY, purpose, data)

    assert unseal_bytes(KEY, purpose, blob) == data
    assert (unseal_bytes(KEY, other, blob) is None) == (other != purpose)
    assert unseal_bytes(FleetKeys(b"another key"), purpose, blob) is None


@given(blob=st.binary(max_size=100))
def test_no_bytes_break_the_check(blob: bytes) -> None:
    assert unseal_bytes(KEY, "entry", blob) is None


async def test_of_many_that_start_at_once_all_have_one_key(server: Server, pipe: RedisPipe) -> None:
    found = await asyncio.gather(*(fleet_keys(pipe, Settings()) for _ in range(20)))

    assert len(set(found)) == 1
    assert len(found[0].sealing) == 32
    assert await fleet_keys(pipe, Settings()) == found[0]


async def test_a_key_that_is_set_is_not_in_redis(server: Server, pipe: RedisPipe) -> None:
    one = await fleet_keys(pipe, Settings(fleet_key="horse battery"))
    other = await fleet_keys(pipe, Settings(fleet_key="staple"))

    assert one != other
    assert await fleet_keys(pipe, Settings(fleet_key="horse battery")) == one
    with closing(server.client()) as client:
        assert not client.exists(keys.FLEET_KEY)
