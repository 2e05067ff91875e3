"""Masks: what they put in the place of values, and what they leave alone."""

import json
import logging
import pickle
from base64 import b64encode
from typing import Any

import pytest

from toolkiln.security.masking import Mask, MaskedStream, SecretError

SECRET = 'pa"ss/word ünd \\ mehr'
PLAIN = "s3cr3t-value-0123456789"


def fed(mask: Mask, *pieces: str) -> list[str]:
    stream = MaskedStream(mask)
    return [*(stream.feed(piece) for piece in pieces), stream.end()]


def nested(value: Any, depth: int) -> Any:
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def test_each_occurrence_becomes_the_name() -> None:
    mask = Mask({"KEY": PLAIN})

    assert mask.text(f"<{PLAIN}> and <{PLAIN}>") == "<[secret:KEY]> and <[secret:KEY]>"


def test_a_mask_of_nothing_is_false_and_changes_nothing() -> None:
    mask = Mask({})

    assert not mask
    assert mask.text(PLAIN) == PLAIN
    assert mask.value({"a": PLAIN}) == {"a": PLAIN}
    assert mask.data(PLAIN.encode()) == PLAIN.encode()
    assert fed(mask, PLAIN) == [PLAIN, ""]


def test_json_stays_json_where_a_value_stood_in_it() -> None:
    document = {"a": f"x{SECRET}", "b": [json.dumps({"c": f"{SECRET}y"})]}

    masked = json.loads(Mask({"KEY": SECRET}).text(json.dumps(document)))

    assert masked["a"] == "x[secret:KEY]"
    assert json.loads(masked["b"][0]) == {"c": "[secret:KEY]y"}


@pytest.mark.parametrize("levels", range(1, 7))
def test_escapes_are_seen_through_at_any_level(levels: int) -> None:
    text = SECRET
    for _ in range(levels):
        text = json.dumps(text)

    assert Mask({"KEY": SECRET}).text(text).strip('\\"') == "[secret:KEY]"


@pytest.mark.parametrize(
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


def test_a_value_is_found_in_base64_of_what_held_it_rendered() -> None:
    coded = b64encode(json.dumps({"sub": "me", "key": SECRET}).encode()).decode()

    masked = Mask({"KEY": SECRET}).text(f"Bearer {coded}")

    assert masked.startswith("Bearer eyJzdWIi")
    assert "[secret:KEY]" in masked


def test_the_longer_of_two_secrets_is_masked_as_a_whole() -> None:
    mask = Mask({"SHORT": "hunter2", "LONG": "my hunter2 is long"})

    assert mask.text("my hunter2 is long, hunter2") == "[secret:LONG], [secret:SHORT]"


def test_a_label_does_not_repeat_a_value_that_is_its_own_name() -> None:
    assert Mask({"hunter2": "hunter2"}).text("<hunter2>") == "<***>"


def test_joined_masks_mask_what_either_does_even_of_one_name() -> None:
    mask = Mask({"A": "first value"}).joined(Mask({"A": "other value", "B": "third value"}))

    masked = mask.text("first value, other value, third value")

    assert masked == "[secret:A], [secret:A], [secret:B]"


@pytest.mark.parametrize("value", ["", "a", "abc", "äöü"])
def test_a_value_too_short_to_be_masked_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SecretError) as caught:
        Mask({"KEY": value})

    assert caught.value.code == "secret_unusable"
    assert "KEY" in caught.value.message
    assert not value or repr(value) not in repr(caught.value)


def test_a_cut_end_that_begins_a_value_is_masked() -> None:
    mask = Mask({"KEY": SECRET})

    assert mask.text('so: pa"s', cut=True) == "so: [secret:KEY]"
    assert mask.text('"so: pa\\"ss\\/word \\u00', cut=True) == '"so: [secret:KEY]'
    assert mask.text("so: pa%22s", cut=True) == "so: [secret:KEY]"


def test_an_end_that_was_not_cut_or_is_no_beginning_stays() -> None:
    mask = Mask({"KEY": SECRET})

    assert mask.text('so: pa"s') == 'so: pa"s'
    assert mask.text('so: pa"', cut=True) == 'so: pa"'
    assert mask.text("so: 100%", cut=True) == "so: 100%"


@pytest.mark.parametrize("gap", ["…", "...", "....."])
@pytest.mark.parametrize(
    "written",
    [
        PLAIN,
        PLAIN.encode().hex(),
        b64encode(PLAIN.encode()).decode(),
        "".join(f"\\u{ord(char):04x}" for char in PLAIN),
    ],
    ids=["plain", "hex", "base64", "escaped"],
)
def test_what_is_left_of_a_value_that_was_shortened_is_masked(written: str, gap: str) -> None:
    half = len(written) // 2 // 6 * 6
    begun, ended = written[:half], written[half:].rstrip("=")
    mask = Mask({"KEY": PLAIN})

    assert mask.text(f"got '{begun}{gap}'") == f"got '[secret:KEY]{gap}'"
    assert mask.text(f"got '{gap}{ended}'").startswith(f"got '{gap}[secret:KEY]")
    assert mask.text(f"'{begun}{gap}{ended}'").startswith(f"'[secret:KEY]{gap}[secret:KEY]")
    assert "".join(fed(mask, "got ", *f"'{begun}{gap}'")) == f"got '[secret:KEY]{gap}'"


@pytest.mark.parametrize(
    "text",
    ["s3c...", "s3c…", f"...{PLAIN[-3:]}", f"{PLAIN[:9]} ...", f"... {PLAIN[-9:]}", "..." * 9],
)
def test_what_is_no_shortened_value_stays(text: str) -> None:
    assert Mask({"KEY": PLAIN}).text(text) == text


def test_a_stream_lets_out_at_once_what_begins_nothing() -> None:
    stream = MaskedStream(Mask({"KEY": PLAIN}))

    assert stream.feed("working …\n") == "working …\n"
    assert stream.feed("half: s3cr3t-") == "half: "
    assert stream.feed("nothing\n") == "s3cr3t-nothing\n"


def test_a_stream_masks_a_value_that_comes_character_by_character() -> None:
    text = json.dumps({"key": SECRET, "again": SECRET})

    pieces = fed(Mask({"KEY": SECRET}), *text)

    assert "".join(pieces) == '{"key": "[secret:KEY]", "again": "[secret:KEY]"}'


def test_a_stream_gives_back_at_its_end_what_it_held() -> None:
    assert fed(Mask({"KEY": PLAIN}), "s3cr3t-val") == ["", "s3cr3t-val"]


def test_a_stream_that_was_cut_masks_a_beginning_at_its_end() -> None:
    stream = MaskedStream(Mask({"KEY": PLAIN}))
    stream.feed("so: s3cr3t-val")

    assert stream.end(cut=True) == "[secret:KEY]"


@pytest.mark.parametrize("noise", ["\\", "%25", "&amp;", "p\\", "pa%", "\\ud83d", "YWJh"])
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


def test_a_value_nested_deeper_than_the_stack_is_masked() -> None:
    masked = Mask({"KEY": PLAIN}).value(nested(PLAIN, 5_000))

    for _ in range(5_000):
        masked = masked[0] if isinstance(masked, list) else masked["in"]
    assert masked == "[secret:KEY]"


def test_bytes_that_are_not_text_are_masked_too() -> None:
    data = b"\xff\x00" + PLAIN.encode() + b"\xfe\x80" + PLAIN.encode().hex().encode()

    assert Mask({"KEY": PLAIN}).data(data) == b"\xff\x00[secret:KEY]\xfe\x80[secret:KEY]"


def test_text_with_lone_surrogates_and_nul_is_masked() -> None:
    masked = Mask({"KEY": PLAIN}).text(f"\ud800\0{PLAIN}\udfff")

    assert masked == "\ud800\0[secret:KEY]\udfff"


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


@pytest.mark.parametrize(
    "piece", [PLAIN[:12], PLAIN[:-1], "\\", "%", "%25", "&amp;", "\\" + PLAIN[:9]]
)
def test_a_megabyte_that_looks_like_a_secret_all_over_is_left_as_it_is(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))

    assert Mask({"KEY": PLAIN}).text(text) is text


def test_a_key_of_many_lines_is_found_escaped() -> None:
    key = "-----BEGIN KEY-----\n" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZn\n" * 80

    masked = Mask({"PEM": key}).text(json.dumps({"key": key}))

    assert masked == '{"key": "[secret:PEM]"}'
