"""Masks: what they put in the place of values, and what they leave alone."""

import json
import logging
import pickle
from base64 import b64encode
from typing import Any

import pytest

from tables import each_row
from toolkiln.security.masking import Mask, MaskedStream, SecretError

SECRET = 'pa"ss/word ünd \\ mehr'
PLAIN = "s3cr3t-value-0123456789"
PEM = "-----BEGIN KEY-----\n" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZn\n" * 80


def fed(mask: Mask, *pieces: str) -> list[str]:
    stream = MaskedStream(mask)
    return [*(stream.feed(piece) for piece in pieces), stream.end()]


@each_row(
    "secrets, text, masked",
    [
        ({"KEY": PLAIN}, f"<{PLAIN}> and <{PLAIN}>", "<[secret:KEY]> and <[secret:KEY]>"),
        ({"KEY": PLAIN}, f"\ud800\0{PLAIN}\udfff", "\ud800\0[secret:KEY]\udfff"),
        ({"hunter2": "hunter2"}, "<hunter2>", "<***>"),
        (
            {"SHORT": "hunter2", "LONG": "my hunter2 is long"},
            "my hunter2 is long, hunter2",
            "[secret:LONG], [secret:SHORT]",
        ),
        ({"PEM": PEM}, json.dumps({"key": PEM}), '{"key": "[secret:PEM]"}'),
    ],
)
def test_each_occurrence_becomes_the_name(secrets: dict[str, str], text: str, masked: str) -> None:
    assert Mask(secrets).text(text) == masked


@each_row(
    "text",
    [
        r"pa\u0022ss\/word \u00FCnd \u005C mehr",
        "pa%22ss%2fword+%c3%bcnd+%5c+mehr",
        "pa%2522ss/word%2520%25C3%25BCnd%2520%255C%2520mehr",
        "pa&quot;ss/word &#252;nd \\ mehr",
        "pa&amp;quot;ss/word &#xFC;nd \\ mehr",
        "%70%61%22ss/word ünd %5C mehr",
        r"pa\x22ss/word \xfcnd \\ mehr",
        r"pa\"ss/word \xc3\xbcnd \\ mehr",
        SECRET.encode().hex(),
    ],
)
def test_a_value_is_found_as_others_write_it(text: str) -> None:
    assert Mask({"KEY": SECRET}).text(f"<{text}>") == "<[secret:KEY]>"


def test_a_mask_of_nothing_is_false_and_changes_nothing() -> None:
    mask = Mask({})

    assert not mask
    assert mask.text(PLAIN) == PLAIN
    assert mask.value({"a": PLAIN}) == {"a": PLAIN}
    assert mask.data(PLAIN.encode()) == PLAIN.encode()
    assert fed(mask, PLAIN) == [PLAIN, ""]


def test_json_stays_json_where_a_value_was_in_it_at_any_level() -> None:
    mask = Mask({"KEY": SECRET})
    document = {"a": f"x{SECRET}", "b": [json.dumps({"c": f"{SECRET}y"})]}

    masked = json.loads(mask.text(json.dumps(document)))

    assert masked["a"] == "x[secret:KEY]"
    assert json.loads(masked["b"][0]) == {"c": "[secret:KEY]y"}
    text = SECRET
    for _ in range(6):
        text = json.dumps(text)
        assert mask.text(text).strip('\\"') == "[secret:KEY]"


def test_a_value_is_found_in_base64_of_what_held_it_rendered() -> None:
    coded = b64encode(json.dumps({"sub": "me", "key": SECRET}).encode()).decode()

    masked = Mask({"KEY": SECRET}).text(f"Bearer {coded}")

    assert masked.startswith("Bearer eyJzdWIi")
    assert "[secret:KEY]" in masked


def test_joined_masks_mask_what_either_does_even_of_one_name() -> None:
    mask = Mask({"A": "first value"}).joined(Mask({"A": "other value", "B": "third value"}))

    masked = mask.text("first value, other value, third value")

    assert masked == "[secret:A], [secret:A], [secret:B]"


@each_row("value", ["", "a", "abc", "äöü"])
def test_a_value_too_short_to_be_masked_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SecretError) as caught:
        Mask({"KEY": value})

    assert caught.value.code == "secret_unusable"
    assert "KEY" in caught.value.message
    assert not value or repr(value) not in repr(caught.value)


@each_row(
    "text, masked",
    [
        ('so: pa"s', "so: [secret:KEY]"),
        ('"so: pa\\"ss\\/word \\u00', '"so: [secret:KEY]'),
        ("so: pa%22s", "so: [secret:KEY]"),
        ('so: pa"', 'so: pa"'),
        ("so: 100%", "so: 100%"),
    ],
)
def test_an_end_that_begins_a_value_is_masked_if_it_was_cut(text: str, masked: str) -> None:
    mask = Mask({"KEY": SECRET})

    assert mask.text(text, cut=True) == masked
    assert mask.text(text) == text


@each_row("gap", ["…", "...", "....."])
@each_row(
    "written",
    [
        PLAIN,
        PLAIN.encode().hex(),
        b64encode(PLAIN.encode()).decode(),
        "".join(f"\\u{ord(char):04x}" for char in PLAIN),
    ],
)
def test_what_is_left_of_a_value_that_was_shortened_is_masked(written: str, gap: str) -> None:
    half = len(written) // 2 // 6 * 6
    begun, ended = written[:half], written[half:].rstrip("=")
    mask = Mask({"KEY": PLAIN})

    assert mask.text(f"got '{begun}{gap}'") == f"got '[secret:KEY]{gap}'"
    assert mask.text(f"got '{gap}{ended}'").startswith(f"got '{gap}[secret:KEY]")
    assert mask.text(f"'{begun}{gap}{ended}'").startswith(f"'[secret:KEY]{gap}[secret:KEY]")
    assert "".join(fed(mask, "got ", *f"'{begun}{gap}'")) == f"got '[secret:KEY]{gap}'"


@each_row(
    "text",
    ["s3c...", "s3c…", f"...{PLAIN[-3:]}", f"{PLAIN[:9]} ...", f"... {PLAIN[-9:]}", "..." * 9],
)
def test_what_is_no_shortened_value_stays(text: str) -> None:
    assert Mask({"KEY": PLAIN}).text(text) == text


def test_a_stream_holds_what_begins_a_value_until_it_goes_on_or_ends() -> None:
    stream = MaskedStream(Mask({"KEY": PLAIN}))

    assert stream.feed("working …\n") == "working …\n"
    assert stream.feed("half: s3cr3t-") == "half: "
    assert stream.feed("nothing\ns3cr3t-val") == "s3cr3t-nothing\n"
    assert stream.end() == "s3cr3t-val"
    cut = MaskedStream(Mask({"KEY": PLAIN}))
    cut.feed("so: s3cr3t-val")
    assert cut.end(cut=True) == "[secret:KEY]"


@each_row("noise", ["\\", "%25", "&amp;", "p\\", "pa%", "\\ud83d", "YWJh"])
def test_what_a_stream_holds_is_bounded(noise: str) -> None:
    stream = MaskedStream(Mask({"A": "abab", "B": "baba", "KEY": SECRET}))
    came = out = 0

    for _ in range(90):
        came += len(noise * 200)
        out += len(stream.feed(noise * 200))
    rest = stream.end()

    assert len(rest) < 70_000
    assert out > 0 or len(rest) == came


def test_two_secrets_that_overlap_without_end_are_let_out_masked() -> None:
    stream = MaskedStream(Mask({"A": "abab", "B": "baba"}))

    text = "".join(stream.feed("abab" * 8_000) for _ in range(3)) + stream.end()

    assert "abab" not in text
    assert len(text) < 1_000


def test_values_are_masked_in_strings_keys_and_numbers_at_any_depth() -> None:
    mask = Mask({"PIN": "271828", "KEY": PLAIN})
    value = {PLAIN: [1, True, None, f"x{PLAIN}"], "pin": 271828, "near": 1.5, "f": 271828.25}

    assert mask.value(value) == {
        "[secret:KEY]": [1, True, None, "x[secret:KEY]"],
        "pin": "[secret:PIN]",
        "near": 1.5,
        "f": "[secret:PIN].25",
    }


def test_parts_of_a_value_that_hold_no_secret_stay_the_same_objects() -> None:
    clean = {"a": [1, 2.5, "text"], "b": ()}
    value = [clean, (PLAIN, 1)]

    masked = Mask({"KEY": PLAIN}).value(value)

    assert masked == [clean, ("[secret:KEY]", 1)]
    assert masked[0] is clean
    assert value == [clean, (PLAIN, 1)]
    assert Mask({"KEY": PLAIN}).value(clean) is clean


def test_bytes_and_values_nested_deeper_than_the_stack_are_masked() -> None:
    mask = Mask({"KEY": PLAIN})
    data = b"\xff\x00" + PLAIN.encode() + b"\xfe\x80" + PLAIN.encode().hex().encode()
    deep: Any = PLAIN
    for _ in range(5_000):
        deep = {"in": [deep]}

    masked = mask.value(deep)

    assert mask.data(data) == b"\xff\x00[secret:KEY]\xfe\x80[secret:KEY]"
    for _ in range(5_000):
        (masked,) = masked["in"]
    assert masked == "[secret:KEY]"


def test_a_mask_shows_names_only_and_cannot_be_pickled(caplog: pytest.LogCaptureFixture) -> None:
    mask = Mask({"KEY": PLAIN})
    stream = MaskedStream(mask)
    stream.feed(PLAIN[:-1])

    logging.getLogger("test").warning("%r %s %r", mask, mask, stream)

    assert "KEY" in caplog.text
    assert PLAIN[:8] not in caplog.text
    for holder in (mask, stream):
        with pytest.raises(TypeError, match="KEY"):
            pickle.dumps(holder)


@each_row("piece", [PLAIN[:12], PLAIN[:-1], "\\", "%", "%25", "&amp;", "\\" + PLAIN[:9]])
def test_a_megabyte_that_looks_like_a_secret_all_over_is_left_as_it_is(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))

    assert Mask({"KEY": PLAIN}).text(text) is text
