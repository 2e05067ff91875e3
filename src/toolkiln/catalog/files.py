"""Tool files on disk: which ones there are, and reading one whatever is in it."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from toolkiln.errors import InputError
from toolkiln.model import Finding, Reading, Severity
from toolkiln.spec import MAX_BYTES, data_files, decode, read, version_digest

_NEVER_TOOLS = {"conftest.py", "setup.py", "noxfile.py"}
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "tests"}


class EmptyFolder(InputError):
    """A folder without any Python file."""


def tool_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files to read: those named, and those in the folders named, in order, once each.

    Raises:
        InputError: a path does not exist.
        EmptyFolder: a folder holds no Python file.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file or folder {str(path)!r}", hint=_where(path))
        found = _in_folder(path) if path.is_dir() else iter([path])
        first = next(found, None)
        if first is None:
            raise EmptyFolder(
                f"there is no Python file in {str(path)!r}",
                hint="put a .py file there, or make one with `toolkiln new NAME`",
            )
        for file in chain([first], found):
            if file not in seen:
                yield file
                if len(paths) > 1:  # one path alone cannot name a file twice
                    seen.add(file)


def is_tool_path(path: str) -> bool:
    """Whether a file at this place below a tools' folder is read for tools."""
    folder, _, name = path.rpartition("/")
    return is_tool_file(name) and _is_searched(folder)


def is_tool_file(name: str) -> bool:
    """Whether a file of this name in a folder is read for tools: no private or test file is."""
    is_public = name.endswith(".py") and not name.startswith((".", "_"))
    is_test = name.startswith("test_") or name.endswith("_test.py")
    return is_public and not is_test and name not in _NEVER_TOOLS


def read_file(file: Path) -> Reading:
    """All that a file says; one that cannot be read says just that."""
    if str(file) != printable(file):
        message, fix = "the file's name is not UTF-8", "rename the file"
        return _unreadable(Path(printable(file)), b"", message, fix)
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return _unreadable(file, b"", "it is not a regular file", "name a Python file")
        size = status.st_size
        if size > MAX_BYTES:
            return _unreadable(
                file,
                b"",
                f"the file has {size:,} bytes",
                f"keep tools under {MAX_BYTES:,} bytes; load data at run time",
            )
        data = file.read_bytes()
    except OSError as error:
        return _unreadable(
            file,
            b"",
            f"the file cannot be read: {error.strerror or error}",
            "check that it is a file and that you may read it",
        )
    try:
        text = decode(data)
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        return _unreadable(file, data, f"the file is not text: {error}", "save it as UTF-8 text")
    return read(text, file, data=data)


def printable(path: str | Path) -> str:
    """A path as text that can be shown and sent, whatever bytes somebody named a file by."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def sources(reading: Reading) -> dict[str, bytes]:
    """The bytes of a version: the tool's file first, then its helpers and data files.

    Raises:
        InputError: they are no longer what was read.
    """
    file = Path(reading.path)
    try:
        return with_companions(reading, file.read_bytes())
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be read: {error.strerror}",
            hint="put the file back, or read the folder again",
        ) from error


def with_companions(reading: Reading, own: bytes) -> dict[str, bytes]:
    """The bytes of a version whose own file need not be on disk: its helpers and data files are.

    Raises:
        InputError: they have changed since they were read.
        OSError: a helper cannot be read.
    """
    file = Path(reading.path)
    try:
        others = {name: (file.parent / name).read_bytes() for name in reading.helpers}
        folder = str(file.parent)
        others |= {name: data_files.read_bytes(folder, name) for name in reading.data_files}
        if version_digest(own, others) == reading.digest:
            return {file.name: own, **others}
    except data_files.UnusableFile:
        pass  # it was usable when it was read
    raise InputError(f"{reading.path} has changed since it was read", hint="read the folder again")


def _in_folder(folder: Path) -> Iterator[Path]:
    """Python files below a folder, links not followed, private and test files left out."""
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not _is_skipped(name))
        yield from (Path(parent, name) for name in sorted(names) if is_tool_file(name))


@lru_cache(1000)
def _is_searched(path: str) -> bool:
    return not any(map(_is_skipped, path.split("/")))


def _is_skipped(folder: str) -> bool:
    return folder.startswith((".", "_")) or folder in _SKIPPED_FOLDERS


def _refuse(error: OSError) -> None:
    raise InputError(
        f"the folder {error.filename!r} cannot be read: {error.strerror}",
        hint="make it readable, or name another folder",
    ) from error


def _where(path: Path) -> str:
    if path == Path("tools"):
        return "make a first tool with `toolkiln new NAME`, or name a folder with --tools PATH"
    return "check the path; --tools takes a file or a folder"


def _unreadable(file: Path, data: bytes, message: str, fix: str) -> Reading:
    finding = Finding(
        rule="unreadable-file",
        severity=Severity.ERROR,
        message=message,
        fix=fix,
        path=str(file),
    )
    return Reading(path=str(file), digest=hashlib.sha256(data).hexdigest(), findings=(finding,))
