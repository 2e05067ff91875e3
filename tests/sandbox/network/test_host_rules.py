"""Host rules: valid entries, what they cover, and the intersection of declared and granted."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.model.network import granted, host_name, parse_rules

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
NAME = st.lists(LABEL, min_size=2, max_size=4).map(".".join)
PORT = st.integers(1, 65535)
ENTRY = st.builds(
    lambda wild, name, port: f"{'*.' * wild}{name}{f':{port}' if port else ''}",
    st.booleans(),
    NAME,
    st.none() | st.sampled_from([80, 443, 8443]),
)


@each_row(
    "entry, host, ports",
    [
        ("api.example.com", "api.example.com", {80, 443}),
        ("api.example.com:8443", "api.example.com", {8443}),
        ("API.Example.COM", "api.example.com", {80, 443}),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", {80, 443}),
        # A star stands for exactly one label.
        ("*.example.org", "a.example.org", {80, 443}),
        *(
            ("*.example.org", host, set())
            for host in (
                "example.org", "a.b.example.org", "aexample.org", "a.example.org.evil.net",
                "example.org.evil.net",
            )
        ),
    ],
)  # fmt: skip
def test_an_entry_covers_its_host_on_the_ports_of_the_web_or_the_given_one(
    entry: str, host: str, ports: set[int]
) -> None:
    rules = parse_rules([entry])

    assert {port for port in (80, 443, 8443) if rules.allow(host, port)} == ports


def test_an_empty_list_denies_everything() -> None:
    assert not parse_rules([]).allow("example.org", 443)


REFUSED = {
    "not a host name": [
        "", " ", " example.org", "example.org\n", "*.", "example.org.", ".example.org",
        "a..example.org", "-a.example.org", "under_score.example.org", "a" * 64 + ".org",
        "a." * 130 + "org",
    ],
    "scheme": ["https://example.org"],
    "path": ["example.org/path", "example.org?q"],
    "user name": ["me@example.org"],
    "wrong place": ["*", "*:443", "*.*.example.org", "a*.example.org", "a.*.org", "*example.org"],
    "top-level": ["*.org"],
    "port": [
        "example.org:", "example.org:0", "example.org:65536", "example.org:99999999999999999999",
        "example.org:-1", "example.org:0443", "example.org:４４３",
    ],
    "IP address": [
        "example.org:443:443", "10.0.0.1", "10.0.0.1:443", "2130706433", "0x7f000001", "127.1",
        "0177.0.0.1", "example.0x7f", "*.0.0.1", "::1", "[::1]:443", "::ffff:10.0.0.1",
    ],
    "outside ASCII": [
        "bücher.example", "еxample.org", "example。org", "\u212aelvin.example.org",
    ],
}  # fmt: skip


@each_row("fault, entry", [(fault, entry) for fault, all_ in REFUSED.items() for entry in all_])
def test_an_entry_that_is_no_host_is_refused_with_its_fault(fault: str, entry: str) -> None:
    with pytest.raises(InputError, match=fault) as caught:
        parse_rules([entry])

    assert caught.value.hint


def test_a_text_in_place_of_the_list_is_refused() -> None:
    with pytest.raises(InputError, match="not a list"):
        parse_rules("api.example.com")


@each_row(
    "declared, operator, left",
    [
        (["a.example.org"], [], {}),
        ([], ["a.example.org"], {}),
        (["a.example.org"], ["a.example.org"], {"a.example.org": (80, 443)}),
        (["a.example.org"], ["*.example.org"], {"a.example.org": (80, 443)}),
        (["*.example.org"], ["a.example.org"], {"a.example.org": (80, 443)}),
        (["*.example.org"], ["*.example.org:443"], {"*.example.org": (443,)}),
        (["*.a.example.org"], ["*.example.org"], {}),
        (["a.example.org:8443"], ["a.example.org"], {}),
        (["a.example.org"], ["a.example.org:443"], {"a.example.org": (443,)}),
        (
            ["a.example.org", "a.example.org:8443"],
            ["*.example.org:8443", "a.example.org:80"],
            {"a.example.org": (80, 8443)},
        ),
        (["A.example.org"], ["a.EXAMPLE.org"], {"a.example.org": (80, 443)}),
    ],
)
def test_only_what_is_declared_and_granted_is_left(
    declared: list[str], operator: list[str], left: dict[str, tuple[int, ...]]
) -> None:
    rules = granted(declared, operator).rules

    assert {rule.host: rule.ports for rule in rules} == left


@given(st.lists(ENTRY, max_size=4), st.lists(ENTRY, max_size=4), NAME, PORT)
def test_granted_is_the_intersection(
    declared: list[str], operator: list[str], name: str, port: int
) -> None:
    both, ours, theirs = granted(declared, operator), parse_rules(declared), parse_rules(operator)
    named = {entry.split(":")[0].replace("*.", "www.") for entry in [*declared, *operator]}

    for host in {name, *named}:
        for at in (port, 80, 443, 8443):
            assert both.allow(host, at) is (ours.allow(host, at) and theirs.allow(host, at))


@given(st.text(string.printable + "．。①²٣Kſİé\x00", max_size=40))
def test_a_host_name_is_plain_or_nothing(text: str) -> None:
    name = host_name(text)

    assert name is None or (
        set(name) <= set(string.ascii_lowercase + string.digits + "-.")
        and name == text.lower()
        and text.isascii()
        and not name.startswith((".", "-"))
        and not name.endswith((".", "-"))
        and not name.rpartition(".")[2].isdigit()
    )


@given(NAME)
def test_any_case_of_a_name_is_the_same_name(name: str) -> None:
    assert host_name(name.upper()) == host_name(name) == name


@given(st.ip_addresses())
def test_no_address_is_a_host_name(address: object) -> None:
    assert host_name(str(address)) is None
    assert host_name(f"[{address}]") is None
    assert host_name(str(int(address))) is None  # type: ignore[call-overload]
    assert host_name(hex(int(address))) is None  # type: ignore[call-overload]
