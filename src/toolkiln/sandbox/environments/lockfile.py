"""Requirements and locks: the versions and files that a set of requirements resolved to.

A lock is uv's output: per package one pinned version with the SHA-2 digests of its files, and
nothing else, so no URLs, options or files without a digest. It stays in force until another one
is adopted.
"""

import hashlib
import json
import re
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError, field_validator

from toolkiln.errors import EnvironmentFailed, InputError
from toolkiln.model.base import Value
from toolkiln.sandbox.environments import folders

_PIN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?: \\\n    --hash=sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128}))+\n"
)
_BUILD_METHOD = "1: wheels only, copied, compiled"
"""Part of an environment's key: change it when environments are built differently."""
_MAX_REQUIREMENT = 500
_MAX_FILE = 1 << 20
_PLAIN = re.compile(r"[]\[A-Za-z0-9._,<>=!~*+-]+")
"""Characters of a requirement. uv would expand `${…}` and join lines that end in a backslash."""
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_HINT = "write a package name and versions, such as 'httpx>=0.27'; no URLs, paths or options"


def interpreter() -> tuple[str, str]:
    """Return the ABI and the platform that packages are chosen for."""
    abi = sysconfig.get_config_var("SOABI") or sysconfig.get_python_version()
    return str(abi), sysconfig.get_platform()


class Lock(Value):
    """The packages that one set of requirements resolved to."""

    requirements: tuple[str, ...]
    interpreter: tuple[str, str]
    text: str

    @field_validator("text")
    @classmethod
    def _check_pins(cls, text: str) -> str:
        if not text or _PIN.sub("", text):
            raise ValueError("a lock may contain only pinned versions with SHA-2 digests")
        return text

    @property
    def packages(self) -> dict[str, str]:
        """The version of each package."""
        return packages(self.text)

    @property
    def key(self) -> str:
        """The key of the environment with these packages."""
        return _digest(*self.interpreter, self.text, _BUILD_METHOD)


def packages(text: str) -> dict[str, str]:
    """Return the version of each package in the text of a lock."""
    return {pin["name"]: pin["version"] for pin in _PIN.finditer(text)}


def parse_lock(requirements: tuple[str, ...], text: str) -> Lock:
    """Create a lock from uv's output.

    Raises:
        EnvironmentFailed: the index provides no digest for a file.
    """
    try:
        return Lock(requirements=requirements, interpreter=interpreter(), text=text)
    except ValidationError as error:
        found = next(iter(_PIN.sub("", text).split()), "nothing")
        raise EnvironmentFailed(
            f"cannot lock {found[:80]!r}: the index provides no SHA-2 digest",
            hint="require another version, or use an index that provides digests",
        ) from error


class Locks:
    """The locks in force: one file per set of requirements, interpreter and policy."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        self._policy = policy

    def name(self, requirements: tuple[str, ...]) -> str:
        """Return the id of the lock of a set of requirements."""
        return _digest(*interpreter(), self._policy, *requirements)

    def get(self, requirements: tuple[str, ...]) -> Lock | None:
        """Return the lock in force for a set of requirements.

        Raises:
            EnvironmentFailed: the lock is damaged.
        """
        file = self._file(requirements)
        with folders.disk_errors():
            try:
                content = file.read_bytes()
            except FileNotFoundError:
                return None
        try:
            lock = Lock.model_validate_json(content)
        except ValidationError:
            lock = None
        if lock is None or (lock.requirements, lock.interpreter) != (requirements, interpreter()):
            raise EnvironmentFailed(
                f"the lock {file} is damaged", hint="replace it with `toolkiln env upgrade`"
            )
        return lock

    def put(self, lock: Lock) -> None:
        """Save a lock, which puts it in force."""
        with folders.disk_errors():
            folders.write(self._file(lock.requirements), lock.model_dump_json())

    def all(self) -> list[Lock]:
        """Return every readable lock, for any interpreter and policy."""
        locks = []
        for file in sorted(self.folder.glob("*.lock")):
            try:
                locks.append(Lock.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError):  # replaced or damaged, which `get` reports
                continue
        return locks

    def _file(self, requirements: tuple[str, ...]) -> Path:
        return self.folder / f"{self.name(requirements)}.lock"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def normalise(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return the requirements whose markers match this interpreter, normalised and sorted.

    Raises:
        InputError: a requirement is malformed.
    """
    return tuple(sorted({text for item in requirements if (text := _normalise_one(item))}))


def read_requirements_file(file: Path) -> tuple[str, ...]:
    """Read a `requirements.txt`; empty if the file does not exist.

    Raises:
        InputError: the file is unreadable, or a line is not a requirement.
    """
    try:
        if not file.is_file():  # reading a pipe would block
            if file.exists():
                raise InputError(f"{file} is not a file", hint="replace it with a text file")
            return ()
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE + 1)
        if len(content) > _MAX_FILE:
            raise InputError(f"{file} is larger than {_MAX_FILE} bytes", hint="shorten it")
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}", hint="save it as UTF-8") from error
    found = []
    for number, text in _logical_lines(lines):
        try:
            _normalise_one(text)
        except InputError as error:
            raise InputError(f"{file}:{number}: {error.message}", hint=error.hint) from error
        found.append(text)
    return tuple(found)


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield logical lines with their line numbers, without comments, joined as in pip."""
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


# Called before every call of a tool, with the same few texts.
@lru_cache(maxsize=1024)
def _normalise_one(text: str) -> str | None:
    """Normalise a requirement; None if its marker does not match this interpreter."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    text = text.strip()
    if len(text) > _MAX_REQUIREMENT:
        raise InputError(
            f"a requirement has {len(text)} characters", hint=f"use at most {_MAX_REQUIREMENT}"
        )
    if text.startswith("-") or " --" in text:
        raise InputError(f"{text!r} contains an installer option", hint=_HINT)
    try:
        requirement = Requirement(text)
        matches = requirement.marker is None or requirement.marker.evaluate()
        # `six_` can be parsed, but is not a valid name.
        requirement.name = canonicalize_name(requirement.name, validate=True)
        requirement.extras = {
            canonicalize_name(extra, validate=True) for extra in requirement.extras
        }
    except (ValueError, KeyError, RecursionError) as error:  # KeyError: an undefined marker
        reason = str(error).partition("\n")[0]
        raise InputError(f"{text!r} is not a requirement: {reason}", hint=_HINT) from error
    if requirement.url:
        raise InputError(f"{text!r} is a direct URL", hint=_HINT)
    requirement.marker = None
    if not _PLAIN.fullmatch(str(requirement)):
        raise InputError(f"{text!r} is not a requirement: malformed version", hint=_HINT)
    return str(requirement) if matches else None
