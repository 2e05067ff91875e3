"""Which addresses are public, and what listing a range changes."""

from ipaddress import ip_address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.sandbox.network.addresses import Address, is_reachable, parse_networks, unmapped

PRIVATE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.31.255.255", "192.0.0.192", "192.168.1.1",
    "198.18.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1",
    "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1",
]  # fmt: skip


@each_row("text", PRIVATE)
def test_an_address_that_is_not_public_is_out_of_reach(text: str) -> None:
    assert not is_reachable(ip_address(text), ())


@each_row(
    "text", ["1.1.1.1", "172.32.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1111"]
)
def test_a_public_address_is_in_reach(text: str) -> None:
    assert is_reachable(ip_address(text), ())


@each_row(
    "listed, text, expected",
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("fd00::/8", "fd00::1", True),
        ("fd00::/8", "127.0.0.1", False),
    ],
)
def test_listing_a_range_opens_that_range_only(listed: str, text: str, expected: bool) -> None:
    assert is_reachable(ip_address(text), parse_networks([listed])) is expected


@each_row("text", ["", "ten", "10.1.0.1/16", "10.0.0.0/33", "db.internal"])
def test_a_range_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="private networks"):
        parse_networks([text])


@given(st.ip_addresses())
def test_nothing_that_python_knows_to_be_special_is_public(address: Address) -> None:
    address = unmapped(address)
    assume(not str(address).startswith("64:ff9b::"))  # translated by a gateway, judged inside
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )

    assert not (special and is_reachable(address, ()))
