"""The standard library and every installed package are read without an exception.

The usual run takes every twentieth file; `pytest -m corpus` takes them all.
"""

import json
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from toolkiln.spec.reader import read
from toolkiln.spec.syntax import MAX_BYTES, decode

STDLIB = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("purelib"))
EVERY = 20
CHUNKS = 40


@cache
def corpus() -> list[Path]:
    own = [file for file in sorted(STDLIB.rglob("*.py")) if "site-packages" not in file.parts]
    return [*own, *sorted(PACKAGES.rglob("*.py"))]


def check_reading(file: Path, path: str) -> None:
    """Read one file and check what is true of every reading."""
    try:
        source = decode(file.read_bytes())
    except (SyntaxError, UnicodeDecodeError):
        return  # one of Python's own tests of bad encodings
    result = read(source, path)

    lines = source.count("\n") + 1
    names = [tool.name for tool in result.tools]
    assert len(names) == len(set(names))
    for tool in result.tools:
        assert tool.parameters["type"] == "object"
        assert tool.description
        assert tool.display_name
        assert 1 <= tool.line <= lines
        json.dumps([tool.parameters, tool.returns, tool.settings], allow_nan=False)
    for finding in result.findings:
        assert finding.message
        assert finding.fix
        assert finding.line >= 1
        if finding.path == path:
            assert finding.line <= lines + 1


@pytest.mark.parametrize("chunk", range(4))
def test_a_sample_is_read_without_an_exception(chunk: int) -> None:
    for file in corpus()[::EVERY][chunk::4]:
        if file.stat().st_size <= 200_000:
            check_reading(file, "<memory>")


def test_a_sample_is_read_with_its_neighbours() -> None:
    for file in [f for f in corpus() if PACKAGES in f.parents][:: EVERY * 8]:
        check_reading(file, str(file))


@pytest.mark.corpus
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_everything_is_read_without_an_exception(chunk: int) -> None:
    for file in corpus()[chunk::CHUNKS]:
        if file.stat().st_size <= MAX_BYTES:
            check_reading(file, "<memory>")


@pytest.mark.corpus
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_everything_is_read_with_its_neighbours(chunk: int) -> None:
    for file in corpus()[chunk::CHUNKS]:
        if file.stat().st_size <= MAX_BYTES:
            check_reading(file, str(file))
