"""Locks: which files of which versions a set of requirements was resolved to.

A lock is uv's own text, one pinned version with the SHA-2 digests of its files per package,
and nothing else: no URL, no option, no file without a digest. It is kept until another one
is adopted, so that the same requirements give the same packages.
"""

import hashlib
import json
import re
import sysconfig
from pathlib import Path

from pydantic import ValidationError, field_validator

from toolkiln.errors import EnvironmentFailed
from toolkiln.execution.environments import folders
from toolkiln.model import Value

_PIN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?: \\\n    --hash=sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128}))+\n"
)
_MADE_BY = "1: wheels only, copied, compiled"
"""How environments are made; another way makes other environments."""


def interpreter() -> tuple[str, str]:
    """The ABI and the platform that packages are chosen for."""
    abi = sysconfig.get_config_var("SOABI") or sysconfig.get_python_version()
    return str(abi), sysconfig.get_platform()


class Lock(Value):
    """What one set of requirements was resolved to."""

    requirements: tuple[str, ...]
    interpreter: tuple[str, str]
    text: str

    @field_validator("text")
    @classmethod
    def _is_pins_only(cls, text: str) -> str:
        if not text or _PIN.sub("", text):
            raise ValueError("a lock holds pinned versions with SHA-2 digests only")
        return text

    @property
    def packages(self) -> dict[str, str]:
        """The version of each package."""
        return packages(self.text)

    @property
    def key(self) -> str:
        """The name of the environment that has these packages."""
        return _digest(*self.interpreter, self.text, _MADE_BY)


def packages(text: str) -> dict[str, str]:
    """The version of each package in the text of a lock."""
    return {pin["name"]: pin["version"] for pin in _PIN.finditer(text)}


def resolved(requirements: tuple[str, ...], text: str) -> Lock:
    """The lock that uv's answer makes.

    Raises:
        EnvironmentFailed: an index gave a file without a digest.
    """
    try:
        return Lock(requirements=requirements, interpreter=interpreter(), text=text)
    except ValidationError as error:
        found = next(iter(_PIN.sub("", text).split()), "nothing")
        raise EnvironmentFailed(
            f"{found[:80]!r} cannot be locked: its index gives no SHA-2 digest for it",
            hint="require another version, or use an index that gives digests",
        ) from error


class Locks:
    """The locks in force, one file for each set of requirements, interpreter and policy."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        self._policy = policy

    def name(self, requirements: tuple[str, ...]) -> str:
        """The name of the lock of a set of requirements, whether there is one or not."""
        return _digest(*interpreter(), self._policy, *requirements)

    def get(self, requirements: tuple[str, ...]) -> Lock | None:
        """The lock in force for a set of requirements.

        Raises:
            EnvironmentFailed: there is one, but it is damaged.
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
                f"the lock {file} is damaged", hint="make another one with `toolkiln env upgrade`"
            )
        return lock

    def put(self, lock: Lock) -> None:
        """Bring a lock into force; blocks until it is on the disk."""
        with folders.disk_errors():
            folders.write(self._file(lock.requirements), lock.model_dump_json())

    def all(self) -> list[Lock]:
        """Every lock that can be read, for whatever interpreter and policy it was made."""
        found = []
        for file in sorted(self.folder.glob("*.lock")):
            try:
                found.append(Lock.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError):  # replaced or damaged; `get` says so to who needs it
                continue
        return found

    def _file(self, requirements: tuple[str, ...]) -> Path:
        return self.folder / f"{self.name(requirements)}.lock"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
