"""Secrets: values that calls are given by name, and where the operator keeps them.

A name is looked up in the environment, then in a file that nobody else may read, then in
the keyring of the operating system. Which call may have which secret is decided elsewhere,
and so is when; that no value comes out again is up to `masking`. No message or `repr`
here holds a value.
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
from toolkiln.execution.masking import SHORTEST, SecretError, rebuilt

__all__ = ["SecretError", "Secrets", "references", "resolved"]

_NAME = r"[A-Za-z_][A-Za-z0-9_.@-]{0,99}"
_REFERENCE = re.compile(f"secret:({_NAME})")
_PREFIX, _FILE = "TOOLKILN_SECRET_", "_FILE"
_SERVICE = "toolkiln"
_LONGEST = 1_048_576
"""Bytes of a file that secrets are read from."""
_PATIENCE = 10.0
"""Seconds that a change waits for another to be done."""
# Opening a pipe must not wait for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Content(NamedTuple):
    """What was in the file when it was read."""

    identity: tuple[int, ...]
    values: dict[str, str]


class Secrets:
    """The secrets of this installation."""

    def __init__(self, environ: Mapping[str, str], file: Path, *, keyring: bool = False) -> None:
        """`file` need not exist; `keyring`: whether the operating system's is asked too."""
        self._environ = environ
        self._file = file
        self._keyring = keyring
        self._content = _Content((), {})

    def __repr__(self) -> str:
        return f"Secrets({str(self._file)!r}, keyring={self._keyring})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is not to be pickled")

    def get(self, name: str) -> str | None:
        """The value of a secret, None if it is nowhere. With a keyring, this may take a while.

        Raises:
            InputError: it is no name.
            SecretError: it is there, but unusable; or a place cannot be looked at.
        """
        _check_name(name)
        value = next((value for value in self._found(name) if value is not None), None)
        if value is not None:
            _check_value(name, value)
        return value

    def _found(self, name: str) -> Iterator[str | None]:
        """What each place has, looked at only when it is asked for."""
        variable = _variable(name)
        if not variable.endswith(_FILE):  # such a variable names a file, whatever it is read for
            yield self._environ.get(variable)
        yield self._from_named_file(variable + _FILE)
        yield self._read().get(name)
        if self._keyring:
            yield _from_keyring(name)

    def sources(self) -> dict[str, str]:
        """Where each secret comes from; a keyring cannot be listed.

        What only the environment names is called as the variable calls it.

        Raises:
            SecretError: the file cannot be used.
        """
        found = {name: str(self._file) for name in self._read()}
        known = {_variable(name): name for name in found}
        # Variables that hold a value go last, as they come first.
        for variable in sorted(self._environ, key=lambda key: not key.endswith(_FILE)):
            plain = variable.removesuffix(_FILE)
            name = known.get(plain, plain.removeprefix(_PREFIX))
            if plain.startswith(_PREFIX) and re.fullmatch(_NAME, name):
                found[name] = f"${variable}"
        return dict(sorted(found.items()))

    def set(self, name: str, value: str) -> None:
        """Keep a value in the file.

        Raises:
            InputError: it is no name, or the value can be no secret.
            SecretError: the file cannot be used.
        """
        _check_name(name)
        try:
            _check_value(name, value)
        except SecretError as error:
            raise InputError(error.message, hint=error.hint) from None
        self._change(lambda values: values | {name: value})

    def remove(self, name: str) -> bool:
        """Take a secret out of the file; whether it was there.

        Raises:
            InputError: it is no name.
            SecretError: the file cannot be used.
        """
        _check_name(name)
        return self._change(lambda values: {key: values[key] for key in values if key != name})

    def _from_named_file(self, variable: str) -> str | None:
        path = self._environ.get(variable)
        if path is None:
            return None
        with _disk_errors(f"the file that {variable} names"):
            descriptor = os.open(path, _READ)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise SecretError(f"what {variable} names is not a regular file")
                text = _text(descriptor, f"the file that {variable} names")
            finally:
                os.close(descriptor)
        return text.removesuffix("\n")

    def _read(self) -> dict[str, str]:
        """What the file holds at this moment; nothing, if it is not there."""
        with _disk_errors(str(self._file)):
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
            raise SecretError(f"others may read {self._file}", hint=f"chmod 600 {self._file}")

    def _parsed(self, text: str) -> dict[str, str]:
        place = ""
        values: dict[str, Any] = {}
        try:
            values = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            # The rest of the message, and the error itself, may hold what the file does.
            at = re.search(r"\(at [a-z0-9 ,]+\)\Z", str(error))
            place = at[0] if at else "(somewhere)"
        if place:
            raise SecretError(f"{self._file} is not TOML {place}", hint='write NAME = "value"')
        for name, value in values.items():
            if not re.fullmatch(_NAME, name) or not isinstance(value, str):
                raise SecretError(
                    f"{self._file} holds something else than names and strings",
                    hint='write NAME = "value", and "NAME" in quotes if there is a dot in it',
                )
        return values

    def _change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> bool:
        """Write what `change` makes of the values; whether they are others than before."""
        with _disk_errors(str(self._file)):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                self._content = _Content((), {})
                before = self._read()
                after = change(before)
                if after != before:
                    lines = [f"{_quoted(name)} = {_quoted(after[name])}\n" for name in after]
                    _replace(self._file, "".join(lines).encode())
                return after != before

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one who changes the file, of all threads and processes."""
        lock = self._file.with_name(self._file.name + ".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise SecretError(
                            f"somebody else is changing {self._file}", hint="try again in a moment"
                        ) from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)


def references(arguments: Any) -> set[str]:
    """The names of the secrets that arguments ask for: strings that are `secret:NAME`."""
    names: set[str] = set()
    todo = [arguments]
    for item in todo:  # which grows meanwhile
        kind = type(item)
        if kind is str:
            if item[:7] == "secret:" and (found := _REFERENCE.fullmatch(item)):
                names.add(found[1])
        elif kind is dict:
            todo += item.values()
        elif kind is list or kind is tuple:
            todo += item
    return names


def resolved(arguments: Any, values: Mapping[str, str]) -> Any:
    """The arguments with values for references; what holds none is shared, not copied.

    Raises:
        SecretError: a name has no value.
    """

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
            f"{name[:100]!r} is no name for a secret",
            hint="up to 100 of A-Z a-z 0-9 _ . @ -, the first a letter or _",
        )


def _check_value(name: str, value: str) -> None:
    if not value:
        raise SecretError(f"the secret {name} is empty")
    if len(value) < SHORTEST:
        raise SecretError(
            f"the secret {name} is too short to be kept out of results",
            hint=f"its value must have at least {SHORTEST} characters",
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
        return keyring.get_password(_SERVICE, name)
    except Exception as error:  # noqa: BLE001 - a backend raises whatever its service does
        kind = type(error).__name__
    raise SecretError(
        f"the keyring cannot be used: {kind}",
        hint="unlock it, install a backend, or set keyring = false",
    )


def _text(descriptor: int, what: str) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise SecretError(f"{what} is larger than {_LONGEST} bytes")
    with suppress(UnicodeDecodeError):  # that error holds the data
        return data.decode()
    raise SecretError(f"{what} is not UTF-8")


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda char: f"\\u{ord(char[0]):04x}", text) + '"'


def _replace(file: Path, data: bytes) -> None:
    """Put a file in the place of another: all of it or nothing, for its owner only."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(data)
            output.flush()
            os.fsync(descriptor)
        Path(name).replace(file)
    except BaseException:  # whatever it was, no copy of the secrets stays behind
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SecretError(f"{what} cannot be used: {error.strerror or 'unknown'}") from None
    except ValueError:  # a NUL in a path
        raise SecretError(f"{what} cannot be used: it is no path") from None
