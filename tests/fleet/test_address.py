"""What a URL says of where a server is."""

import pytest

from toolkiln.errors import StoreError
from toolkiln.fleet.address import Address, read_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", Address("redis://h:6379/0", (("h", 6379),))),
        ("redis://h:1/2", Address("redis://h:1/2", (("h", 1),), database=2)),
        ("redis://[::1]:1", Address("redis://[::1]:1/0", (("::1", 1),))),
        (
            "redis://u%40:p%2F@h",
            Address("redis://h:6379/0", (("h", 6379),), username="u@", password="p/"),
        ),
        (
            "rediss://h?ssl_ca_certs=f",
            Address("rediss://h:6379/0", (("h", 6379),), tls=True, ssl_ca_certs="f"),
        ),
        ("unix://:p@/s%20?db=1", Address("unix:///s%20", path="/s ", database=1, password="p")),
        (
            "redis+sentinel://u:p@a,b:1/main/3",
            Address(
                "redis+sentinel://a:26379,b:1/main/3",
                (("a", 26379), ("b", 1)),
                service="main",
                database=3,
                username="u",
                password="p",
            ),
        ),
        (
            "rediss+sentinel://[::1]:1/main",
            Address("rediss+sentinel://[::1]:1/main/0", (("::1", 1),), service="main", tls=True),
        ),
    ],
)
def test_a_url_says_where_a_server_is(url: str, address: Address) -> None:
    assert read_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a,b",
        "redis+sentinel://a,b/",
        "redis+sentinel:///main",
        "redis+sentinel://a,,b/main",
        "redis+sentinel://a/main/x",
        "redis+sentinel://a/main?x=y",
        "redis+sentinel://a:99999/main",
        "unix+sentinel:///main",
        "redis://a,b/0",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        read_address(url)

    assert caught.value.hint
