from datetime import date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tables import each_row
from toolkiln.schema.arguments import Checked, Problems, check
from toolkiln.schema.fast_check import FORMAT_PATTERNS
from toolkiln.schema.validator_options import FORMATS

from .specs import params, spec


@each_row(
    "name, text",
    [
        ("date-time", "2024-01-01T10:00:00Z"),
        ("date-time", "2024-01-01T10:00:00"),
        ("date-time", "2024-01-01 10:00"),
        ("date-time", "2024-01-01t10:00:00.123456+02:00"),
        ("date-time", "2024-01-01"),
        ("date", "2024-02-29"),
        ("date", "2024-02-29T00:00:00"),
        ("time", "10:00"),
        ("time", "10:00:00.5Z"),
        ("duration", "P1DT2H"),
        ("duration", "-PT0.5S"),
        ("duration", "12:30:00"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("uuid", "123e4567e89b12d3a456426614174000"),
        ("email", "a@example.com"),
        ("uri", "https://example.com/a?b=c#d"),
        ("uri", "urn:isbn:1"),
        ("ipv4", "127.0.0.1"),
        ("ipv6", "::1"),
        ("ipvanyaddress", "::1"),
        ("ipv4network", "10.0.0.0/8"),
        ("hostname", "example.com"),
        ("regex", r"(?P<a>x)\Z"),
        *((name, "anything at all") for name in ("path", "binary", "json-string", "password")),
        *((name, "anything at all") for name in ("base64", "zip", "base64url", "file-path")),
    ],
)
def test_formats_accept_what_tools_accept(name: str, text: str) -> None:
    tool = spec(params(x={"type": "string", "format": name}))

    assert check(tool, {"x": text}) == Checked({"x": text})


@each_row(
    "name, text",
    [
        ("date-time", "tomorrow"),
        ("date-time", "2024-13-01T10:00:00Z"),
        ("date-time", "20240101"),
        ("date", "2023-02-29"),
        ("date", "2024-02-29T01:00:00"),
        ("time", "25:00"),
        ("time", "10"),
        ("duration", "P"),
        ("duration", "soon"),
        ("uuid", "123"),
        ("email", "a.example.com"),
        ("uri", "example.com/x"),
        ("ipv4", "256.0.0.1"),
        ("ipv6", "1.2.3.4"),
        ("hostname", "-x-"),
        ("regex", "("),
    ],
)
def test_formats_refuse_what_is_none(name: str, text: str) -> None:
    found = check(spec(params(x={"type": "string", "format": name})), {"x": text})

    assert isinstance(found, Problems)
    assert found.problems[0].message == f"x: {text!r} is not a valid {name}"


@each_row(
    "name, kind, values",
    [
        ("date-time", datetime, st.datetimes(timezones=st.none() | st.timezones())),
        ("date", date, st.dates()),
        ("time", time, st.times()),
        ("duration", timedelta, st.timedeltas(timedelta(-9999), timedelta(9999))),
    ],
)
def test_formats_accept_what_pydantic_writes(name: str, kind: Any, values: Any) -> None:
    adapter = TypeAdapter(kind)

    @given(values)
    def agrees(value: Any) -> None:
        assert FORMATS[name](adapter.dump_python(value, mode="json"))

    agrees()


@given(st.text())
def test_formats_never_raise(text: str) -> None:
    for accepts in FORMATS.values():
        assert accepts(text) in (True, False)


@pytest.mark.parametrize("name", FORMAT_PATTERNS)
@given(data=st.data())
def test_fast_check_is_narrower_than_the_format(name: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(FORMAT_PATTERNS[name], fullmatch=True))

    assert FORMATS[name](text)
