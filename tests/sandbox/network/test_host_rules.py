"""Host rules: valid entries, what they cover, and the intersection of declared and granted."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_an_entry_without_a_port_means_the_ports_of_the_web() -> None:
    rules = parse_rules(["api.example.com"])

    assert rules.allow("api.example.com", 443)
    assert rules.allow("api.example.com", 80)
    assert not rules.allow("api.example.com", 8443)


def test_an_entry_with_a_port_means_that_port_only() -> None:
    rules = parse_rules(["api.example.com:8443"])

    assert rules.allow("api.example.com", 8443)
    assert not rules.allow("api.example.com", 443)


@pytest.mark.parametrize(
    ("host", "covered"),
    [
        ("a.example.org", True),
        ("example.org", False),
        ("a.b.example.org", False),
        ("aexample.org", False),
        ("a.example.org.evil.net", False),
        ("example.org.evil.net", False),
    ],
)
def test_a_star_matches_exactly_one_label(host: str, covered: bool) -> None:
    assert parse_rules(["*.example.org"]).allow(host, 443) is covered


def test_an_empty_list_denies_everything() -> None:
    assert not parse_rules([]).allow("example.org", 443)


def test_upper_case_in_an_entry_is_no_difference() -> None:
    assert parse_rules(["API.Example.COM"]) == parse_rules(["api.example.com"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "not a host name"),
        (" ", "not a host name"),
        (" example.org", "not a host name"),
        ("example.org\n", "not a host name"),
        ("https://example.org", "scheme"),
        ("example.org/path", "path"),
        ("example.org?q", "path"),
        ("me@example.org", "user name"),
        ("*", "wrong place"),
        ("*:443", "wrong place"),
        ("*.*.example.org", "wrong place"),
        ("a*.example.org", "wrong place"),
        ("a.*.org", "wrong place"),
        ("*.", "not a host name"),
        ("*.org", "top-level"),
        ("*example.org", "wrong place"),
        ("example.org:", "port"),
        ("example.org:0", "port"),
        ("example.org:65536", "port"),
        ("example.org:99999999999999999999", "port"),
        ("example.org:-1", "port"),
        ("example.org:0443", "port"),
        ("example.org:４４３", "port"),
        ("example.org:443:443", "IP address"),
        ("example.org.", "not a host name"),
        (".example.org", "not a host name"),
        ("a..example.org", "not a host name"),
        ("-a.example.org", "not a host name"),
        ("under_score.example.org", "not a host name"),
        ("a" * 64 + ".org", "not a host name"),
        ("a." * 130 + "org", "not a host name"),
        ("10.0.0.1", "IP address"),
        ("10.0.0.1:443", "IP address"),
        ("2130706433", "IP address"),
        ("0x7f000001", "IP address"),
        ("127.1", "IP address"),
        ("0177.0.0.1", "IP address"),
        ("example.0x7f", "IP address"),
        ("*.0.0.1", "IP address"),
        ("::1", "IP address"),
        ("[::1]:443", "IP address"),
        ("::ffff:10.0.0.1", "IP address"),
        ("bücher.example", "outside ASCII"),
        ("еxample.org", "outside ASCII"),
        ("example。org", "outside ASCII"),
        ("\u212aelvin.example.org", "outside ASCII"),
    ],
)
def test_an_entry_that_is_no_host_is_refused_with_its_fault(entry: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_rules([entry])

    assert caught.value.hint


def test_a_text_in_place_of_the_list_is_refused() -> None:
    with pytest.raises(InputError, match="not a list"):
        parse_rules("api.example.com")


def test_an_international_name_is_written_in_its_ascii_form() -> None:
    assert parse_rules(["xn--bcher-kva.example"]).allow("xn--bcher-kva.example", 443)


@pytest.mark.parametrize(
    ("declared", "operator", "left"),
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
