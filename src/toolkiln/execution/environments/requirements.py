"""Requirements as text: which of them count here, in one spelling, and nothing but names.

A requirement names a package of an index, with extras, versions and a marker. Direct URLs,
paths, version control and options of an installer are refused. Nothing is resolved here.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from toolkiln.errors import InputError

_LONGEST = 500
"""Characters of one requirement."""
_LARGEST = 1 << 20
"""Bytes of a requirements file."""
_PLAIN = re.compile(r"[]\[A-Za-z0-9._,<>=!~*+-]+")
"""What a requirement consists of. uv expands `${…}` and joins lines that end in a backslash."""
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HINT = "name a package and versions, as in 'httpx>=0.27'; URLs, paths and options are not taken"


def normalise(requirements: Iterable[str]) -> tuple[str, ...]:
    """The requirements whose markers hold on this interpreter, in one spelling, sorted.

    Raises:
        InputError: one of them is not the name of a package with versions.
    """
    return tuple(sorted({text for item in requirements if (text := _normal(item))}))


def read_requirements_file(file: Path) -> tuple[str, ...]:
    """What a `requirements.txt` asks for; nothing if there is no such file.

    Raises:
        InputError: it cannot be read, or a line holds something else than a requirement.
    """
    try:
        if not file.is_file():  # a pipe of that name would be waited for without end
            if file.exists():
                raise InputError(f"{file} is not a file", hint="write requirements into a file")
            return ()
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InputError(f"{file} is larger than {_LARGEST} bytes", hint="shorten it")
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}", hint="write it as UTF-8") from error
    found = []
    for number, text in _logical_lines(lines):
        try:
            _normal(text)
        except InputError as error:
            raise InputError(f"{file}:{number}: {error.message}", hint=error.hint) from error
        found.append(text)
    return tuple(found)


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with content, joined and freed of comments as pip does it, with where they start."""
    start, joined = 1, ""
    for number, line in enumerate(lines, 1):
        start = start if joined else number
        comment = line.lstrip().startswith("#")
        joined += f" {line}" if comment else line
        if joined.endswith("\\") and not comment:
            joined = joined[:-1]
            continue
        if text := _COMMENT.sub("", joined).strip():
            yield start, text
        joined = ""
    if text := _COMMENT.sub("", joined).strip():
        yield start, text


# Asked before every call of a tool, for the same few texts.
@lru_cache(maxsize=1024)
def _normal(text: str) -> str | None:
    """One requirement in its one spelling, None if its marker does not hold here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    text = text.strip()
    if len(text) > _LONGEST:
        raise InputError(f"a requirement of {len(text)} characters", hint=f"at most {_LONGEST}")
    if text.startswith("-") or " --" in text:
        raise InputError(f"{text!r} holds an option for an installer", hint=_HINT)
    try:
        requirement = Requirement(text)
        holds = requirement.marker is None or requirement.marker.evaluate()
        # `six_` can be parsed, but no package has such a name.
        requirement.name = canonicalize_name(requirement.name, validate=True)
        requirement.extras = {
            canonicalize_name(extra, validate=True) for extra in requirement.extras
        }
    except (ValueError, KeyError, RecursionError) as error:  # KeyError: a marker without meaning
        reason = str(error).partition("\n")[0]
        raise InputError(f"{text!r} is not a requirement: {reason}", hint=_HINT) from error
    if requirement.url:
        raise InputError(f"{text!r} is a direct URL", hint=_HINT)
    requirement.marker = None
    if not _PLAIN.fullmatch(str(requirement)):
        raise InputError(f"{text!r} is not a requirement: a version cannot be so", hint=_HINT)
    return str(requirement) if holds else None
