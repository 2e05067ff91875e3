"""No secret-looking value and no unprintable character gets into a record."""

import json
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.security.redaction import line, looks_secret, redacted_arguments

PLANTED = "hunter2-Planted"


@each_row(
    "key",
    [
        "password", "Password", "userPassword", "user_password", "PASSWORD2", "dbpassword",
        "passwd", "pwd", "pass", "passphrase", "secret", "client_secret", "clientSecret", "token",
        "accessToken", "id-token", "tokens", "api_key", "apikey", "api-key", "apiKey", "API_KEY",
        "x-api-key", "X-API-Key", "api key", "Authorization", "proxy-authorization", "auth",
        "basicAuth", "credential", "credentials", "private_key", "privateKey", "access_key",
        "AWSSecretAccessKey", "cookie", "Set-Cookie", "session", "session_id", "sessionId",
        "bearer", "pin", "PIN", "pinCode", "otp", "otp_code", "cvv", "sshKey", "signing_key",
        "ｐａｓｓｗｏｒｄ", "user.password", "$password", "password[]",
    ],
)  # fmt: skip
def test_a_key_looks_secret(key: str) -> None:
    assert looks_secret(key)


@each_row(
    "key",
    [
        "", "name", "key", "keys", "keyboard", "monkey", "primary_key", "spin", "opinion", "author",
        "authority", "authors", "compass", "passenger", "bypass", "path", "pattern", "description",
        "x", "漢字", "pinned",
    ],
)  # fmt: skip
def test_a_key_looks_harmless(key: str) -> None:
    assert not looks_secret(key)


@each_row(
    "arguments, shown",
    [
        ({"a": 1, "b": [True, None, 1.5, "x"]}, '{"a": 1, "b": [true, null, 1.5, "x"]}'),
        ({"password": PLANTED}, '{"password": "[redacted]"}'),
        ({"password": {"deep": [PLANTED]}}, '{"password": "[redacted]"}'),
        ({"pin": 1234}, '{"pin": "[redacted]"}'),
        ({"a": [{"b": {"token": PLANTED}}]}, '{"a": [{"b": {"token": "[redacted]"}}]}'),
        ({"name": "pin", "value": PLANTED}, '{"name": "pin", "value": "[redacted]"}'),
        ([["Cookie", PLANTED], ["Accept", "*"]], '[["Cookie", "[redacted]"], ["Accept", "*"]]'),
        ({"password": "secret:DB_PASSWORD"}, '{"password": "secret:DB_PASSWORD"}'),
        ({"password": "secret:db.key@eu"}, '{"password": "secret:db.key@eu"}'),
        ({"x": "secret:DB", "y": "Bearer secret:T"}, '{"x": "secret:DB", "y": "Bearer secret:T"}'),
        ("just text", '"just text"'),
        (None, "null"),
        ({"é": "漢字 🎉"}, '{"é": "漢字 🎉"}'),
        ({"x": "a\nb\x1b\u202e"}, '{"x": "a\\nb\\u001b\\u202e"}'),
        ({"x": b"bytes"}, '{"x": "[a value of type bytes]"}'),
        ({"x": 10**5000}, '{"x": "[an integer of 16610 bits]"}'),
    ],
)
def test_arguments_are_shown_without_secrets(arguments: Any, shown: str) -> None:
    assert redacted_arguments(arguments) == shown


@each_row(
    "text",
    [
        json.dumps({"user": "ann", "password": PLANTED}),
        json.dumps([{"token": [PLANTED]}]),
        json.dumps({"body": json.dumps({"api_key": PLANTED})}),
        f"{{'password': '{PLANTED}'}}",
        f'{{"password": "{PLANTED}", broken',
        f'{{"password": "two words {PLANTED}", broken',
        f'{{\\"password\\": \\"{PLANTED}\\", broken',
        f"https://example.test/?token={PLANTED}&x=1",
        f"https://ann:{PLANTED}@example.test/",
        f"curl -H 'Authorization: Bearer {PLANTED}' url",
        f"login --password={PLANTED}",
        f"login --password '{PLANTED}'".replace(" '", "='"),
        f"PASSWORD: {PLANTED}",
        f"Bearer {PLANTED}",
        f"api key = {PLANTED}",
        'password="' + "x " * 3000 + PLANTED,
        'password="' + PLANTED + " x" * 3000,
    ],
)
def test_secrets_in_texts_are_left_out(text: str) -> None:
    shown = redacted_arguments({"x": text})

    assert PLANTED not in shown
    assert "[redacted]" in shown


def test_a_long_description_is_cut_with_a_mark() -> None:
    shown = redacted_arguments({"x": "y" * 5000})
    mixed = redacted_arguments({"n": 1, "x": ["y" * 50] * 2, "z": {"k" * 99: "v"}}, limit=50)
    inner = redacted_arguments('["' + "b" * 3000 + '"]', limit=60)
    endless = redacted_arguments([1] * 100_000, limit=50)

    assert len(shown) == 2000
    assert shown.endswith("y…[+3023 chars]")  # of 5,008
    assert mixed == '{"n": 1, "x": ["' + "y" * 21 + "…[+201 chars]"
    assert inner.endswith("b…[+2961 chars]")
    assert endless.endswith("1,…[+30025 chars or more]")
    assert len(endless) == 50


@each_row(
    "huge",
    [
        "x" * 50_000_000,
        "{" + "x" * 50_000_000,
        ["x" * 1000] * 1_000_000,
        dict.fromkeys(map(str, range(1_000_000)), "x"),
        {"k" * 10_000_000: "v"},
        "[" * 90_000,
        "password" * 100_000,
        'password="' * 100_000,
        "\\" * 100_000,
        "://" * 100_000,
        "\0" * 10_000_000,
    ],
)
def test_huge_values_are_cut_not_written(huge: Any) -> None:
    assert len(redacted_arguments(huge)) <= 2000


def test_deep_values_are_cut() -> None:
    deep: Any = PLANTED
    for _ in range(10_000):
        deep = {"x": [deep]}

    shown = redacted_arguments(deep)

    assert "[deeper than is shown]" in shown
    assert PLANTED not in shown


WORDS = st.lists(st.sampled_from(["user", "my", "db", "x", "2", "main"]), max_size=2)
SECRET_WORDS = st.sampled_from(
    ["password", "passwd", "pwd", "secret", "token", "apikey", "api_key", "authorization", "auth",
     "credentials", "private_key", "access_key", "cookie", "session", "bearer", "pin", "otp"]
)  # fmt: skip


@st.composite
def secret_keys(draw: st.DrawFn) -> str:
    parts = [*draw(WORDS), *draw(SECRET_WORDS).split("_"), *draw(WORDS)[:1]]
    titles = [part.title() for part in parts]
    spellings = [
        "_".join(parts),
        "-".join(parts),
        "_".join(parts).upper(),
        parts[0] + "".join(titles[1:]),
        "".join(titles),
    ]
    return draw(st.sampled_from(spellings))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
planted = st.sampled_from([PLANTED, [PLANTED], {"value": PLANTED}, {"x": {"y": [1, PLANTED]}}])


def holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers with something in them, as values or as JSON texts."""
    keys, few = st.text(max_size=8), st.lists(leaves, max_size=2)
    around = st.dictionaries(keys, leaves, max_size=2)
    lists = st.builds(lambda a, value, b: [*a, value, *b], few, inner, few)
    objects = st.builds(lambda others, key, value: {**others, key: value}, around, keys, inner)
    return lists | objects | inner.map(json.dumps)


with_a_secret = st.recursive(
    st.builds(lambda key, value: {key: value}, secret_keys(), planted)
    | st.builds(lambda key: {"name": key, "value": PLANTED}, secret_keys())
    | st.builds(lambda key: [key, PLANTED], secret_keys()),
    holding,
    max_leaves=4,
)


@given(arguments=with_a_secret, limit=st.integers(20, 300) | st.just(2000))
def test_a_value_under_a_secret_key_never_survives(arguments: Any, limit: int) -> None:
    shown = redacted_arguments(arguments, limit=limit)

    assert PLANTED not in shown
    assert "hunter2" not in shown
    assert len(shown) <= limit
    assert shown.isprintable()


@given(
    value=st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
        ),
    )
)
def test_any_arguments_become_one_printable_line(value: Any) -> None:
    shown = redacted_arguments(value)

    assert shown.isprintable()
    assert len(shown) <= 2000


@given(text=st.text(), limit=st.integers(1, 60))
def test_a_line_is_printable_and_bounded(text: str, limit: int) -> None:
    shown = line(text, limit)

    assert len(shown) <= limit
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown)
    shown.encode()
    if text.isprintable() and len(text) <= limit:
        assert shown == text


@each_row(
    "text, shown",
    [
        ("plain", "plain"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\0", "\\x00"),
        ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
        ("\ud800", "\\ud800"),
        ("\u2028\x85", "\\u2028\\x85"),
        ("x" * 21, "x" * 8 + "…[+13 chars]"),
        ("\0" * 20, "\\x00\\x00…[+18 chars]"),
    ],
)
def test_a_line_shows_what_it_cannot_print(text: str, shown: str) -> None:
    assert line(text, limit=40 if "…" not in shown else 20) == shown
