"""Parsers of foreign bytes raise nothing but the error that they document; see `fuzz/`."""

import pytest
from fuzz.inputs import inputs
from fuzz.targets import TARGETS
from hypothesis import given
from hypothesis import strategies as st

FOUND = [
    ("source", b"# coding: rot13\n"),
    ("source", b"# coding: undefined\n"),
    ("source", b"# coding: punycode\n" + b"-9" * 2000),
    ("source", b"class A[B):\n  x: int\ndef f():\n  return a]\n"),
    ("docstring", b":param```Args:"),
]
"""Inputs that fuzzing found, each of which broke a parser."""


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_input_that_once_broke_a_parser_is_survived(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_input_that_parsers_accept(name: str) -> None:
    assert all(TARGETS[name].parse(seed) for seed in TARGETS[name].seeds)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_parsers_raise_only_their_documented_error(name: str, data: st.DataObject) -> None:
    TARGETS[name].check(data.draw(inputs(TARGETS[name])))
