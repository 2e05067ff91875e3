"""Secrets: named values from the environment, a private file or the system keyring.

A name is looked up in the environment, then in the secrets file, then in the keyring of the
operating system. `execution.preflight` decides which call gets which secret; `masking` removes
values from everything that leaves a call. No message or `repr` here contains a value.
"""

import fcntl
import os
import re
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from toolkiln.errors import InputError
from toolkiln.security.masking import MIN_LENGTH, SecretError, rebuilt

__all__ = ["SecretError", "Secrets", "find_references", "resolve_references"]

_NAME = r"[A-Za-z_][A-Za-z0-9_.@-]{0,99}"
_REFERENCE = re.compile(f"secret:({_NAME})")
_PREFIX, _FILE = "TOOLKILN_SECRET_", "_FILE"
_MAX_FILE_BYTES = 1_048_576
_LOCK_TIMEOUT = 10.0
# Nonblocking: opening a pipe must not wait for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Content(NamedTuple):
    """The cached content of the secrets file."""

    identity: tuple[int, ...]
    values: dict[str, str]


class Secrets:
    """The secrets of this installation.

    Methods raise InputError for an invalid name, and SecretError if a source or a value cannot
    be used.
    """

    def __init__(self, environ: Mapping[str, str], file: Path, *, keyring: bool = False) -> None:
        """`file` need not exist; `keyring`: use the keyring of the operating system, too."""
        self._environ = environ
        self._file = file
        self._keyring = keyring
        self._content = _Content((), {})

    def __repr__(self) -> str:
        return f"Secrets({str(self._file)!r}, keyring={self._keyring})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} must not be pickled")

    def get(self, name: str) -> str | None:
        """Return the value of a secret, or None. With a keyring, this may take a while."""
        _check_name(name)
        value = next((value for value in self._lookup(name) if value is not None), None)
        if value is not None:
            _check_value(name, value)
        return value

    def _lookup(self, name: str) -> Iterator[str | None]:
        """Yield the value in each source, in order of precedence."""
        variable = _variable(name)
        if not variable.endswith(_FILE):  # such a variable always names a file
            yield self._environ.get(variable)
        yield self._from_named_file(variable + _FILE)
        yield self._read().get(name)
        if self._keyring:
            yield _from_keyring(name)

    def sources(self) -> dict[str, str]:
        """Return the source of each secret by name; a keyring cannot be listed.

        A secret that only the environment has is named as in the variable.
        """
        found = {name: str(self._file) for name in self._read()}
        known = {_variable(name): name for name in found}
        # Variables with a value come last, because they have precedence.
        for variable in sorted(self._environ, key=lambda key: not key.endswith(_FILE)):
            plain = variable.removesuffix(_FILE)
            name = known.get(plain, plain.removeprefix(_PREFIX))
            if plain.startswith(_PREFIX) and re.fullmatch(_NAME, name):
                found[name] = f"${variable}"
        return dict(sorted(found.items()))

    def set(self, name: str, value: str) -> None:
        """Store a secret in the file."""
        _check_name(name)
        try:
            _check_value(name, value)
        except SecretError as error:
            raise InputError(error.message, hint=error.hint) from None
        self._change(lambda values: values | {name: value})

    def remove(self, name: str) -> bool:
        """Remove a secret from the file. Returns whether it was there."""
        _check_name(name)
        return self._change(lambda values: {key: values[key] for key in values if key != name})

    def _from_named_file(self, variable: str) -> str | None:
        path = self._environ.get(variable)
        if path is None:
            return None
        with _file_errors(f"the file named by {variable}"):
            descriptor = os.open(path, _READ)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise SecretError(f"the file named by {variable} is not a regular file")
                text = _text(descriptor, f"the file named by {variable}")
            finally:
                os.close(descriptor)
        return text.removesuffix("\n")

    def _read(self) -> dict[str, str]:
        """Return the secrets in the file; none if it does not exist."""
        with _file_errors(str(self._file)):
            try:
                descriptor = os.open(self._file, _READ | os.O_NOFOLLOW)
            except FileNotFoundError:
                return {}
            try:
                status = os.fstat(descriptor)
                self._check_safe(status)
                identity = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                content = self._content
                if content.identity != identity:
                    content = _Content(identity, self._parsed(_text(descriptor, str(self._file))))
                    self._content = content
            finally:
                os.close(descriptor)
        return content.values

    def _check_safe(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(f"{self._file} is not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise SecretError(
                f"{self._file} belongs to another user", hint=f"chown {os.geteuid()} {self._file}"
            )
        if status.st_mode & 0o077:
            raise SecretError(f"{self._file} is readable by others", hint=f"chmod 600 {self._file}")

    def _parsed(self, text: str) -> dict[str, str]:
        position = ""
        values: dict[str, Any] = {}
        try:
            values = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            # The message and the error itself may contain secrets: quote the position only.
            found = re.search(r"\(at [a-z0-9 ,]+\)\Z", str(error))
            position = found[0] if found else "(somewhere)"
        if position:
            raise SecretError(f"{self._file} is not TOML {position}", hint='write NAME = "value"')
        for name, value in values.items():
            if not re.fullmatch(_NAME, name) or not isinstance(value, str):
                raise SecretError(
                    f"{self._file} contains something other than names and strings",
                    hint='write NAME = "value", with quotes around a name that has a dot',
                )
        return values

    def _change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> bool:
        """Write `change(values)` to the file. Returns whether anything changed."""
        with _file_errors(str(self._file)):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                self._content = _Content((), {})
                before = self._read()
                after = change(before)
                if after != before:
                    lines = [f"{_quoted(name)} = {_quoted(after[name])}\n" for name in after]
                    _replace(self._file, "".join(lines).encode())
                return after != before

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against changes by other threads and processes."""
        lock = self._file.with_name(self._file.name + ".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise SecretError(
                            f"another process is changing {self._file}", hint="try again later"
                        ) from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)


def find_references(arguments: Any) -> set[str]:
    """Return the names of the secrets that arguments refer to with `secret:NAME`."""
    names: set[str] = set()
    todo = [arguments]
    for item in todo:  # the list grows while it is iterated
        kind = type(item)
        if kind is str:
            if item[:7] == "secret:" and (found := _REFERENCE.fullmatch(item)):
                names.add(found[1])
        elif kind is dict:
            todo += item.values()
        elif kind is list or kind is tuple:
            todo += item
    return names


def resolve_references(arguments: Any, values: Mapping[str, str]) -> Any:
    """Replace references by values; parts without references are shared, not copied."""

    def leaf(item: Any) -> Any:
        found = _REFERENCE.fullmatch(item) if isinstance(item, str) else None
        if found is None:
            return item
        if found[1] not in values:
            raise SecretError(f"there is no secret {found[1]}")
        return values[found[1]]

    return rebuilt(arguments, leaf, lambda key: key)


def _check_name(name: str) -> None:
    if not re.fullmatch(_NAME, name):
        raise InputError(
            f"{name[:100]!r} is not a valid name of a secret",
            hint="use up to 100 of A-Z a-z 0-9 _ . @ -, starting with a letter or _",
        )


def _check_value(name: str, value: str) -> None:
    if not value:
        raise SecretError(f"the secret {name} is empty")
    if len(value) < MIN_LENGTH:
        raise SecretError(
            f"the secret {name} is too short to be masked",
            hint=f"its value must have at least {MIN_LENGTH} characters",
        )
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise SecretError(f"the secret {name} is not text")


def _variable(name: str) -> str:
    return _PREFIX + re.sub("[^A-Z0-9]", "_", name.upper())


def _from_keyring(name: str) -> str | None:
    try:
        import keyring
    except ImportError:
        raise SecretError(
            "the keyring cannot be used: its package is not installed",
            hint="pip install 'toolkiln[keyring]', or set keyring = false",
        ) from None
    try:
        return keyring.get_password("toolkiln", name)
    except Exception as error:  # noqa: BLE001 - backends raise errors of many kinds
        kind = type(error).__name__
    raise SecretError(
        f"the keyring cannot be used: {kind}",
        hint="unlock it, install a backend, or set keyring = false",
    )


def _text(descriptor: int, label: str) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise SecretError(f"{label} is larger than {_MAX_FILE_BYTES} bytes")
    with suppress(UnicodeDecodeError):  # that error contains the data
        return data.decode()
    raise SecretError(f"{label} is not UTF-8")


def _quoted(text: str) -> str:
    """Return a TOML basic string."""
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda char: f"\\u{ord(char[0]):04x}", text) + '"'


def _replace(file: Path, data: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(data)
            output.flush()
            os.fsync(descriptor)
        Path(name).replace(file)
    except BaseException:  # never leave a copy of the secrets behind
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _file_errors(label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SecretError(f"{label} cannot be used: {error.strerror or 'unknown'}") from None
    except ValueError:  # a NUL in a path
        raise SecretError(f"{label} cannot be used: invalid path") from None
