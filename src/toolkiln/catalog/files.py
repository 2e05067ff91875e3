"""Tool files on disk: discovery, reading, and file names for new tools."""

import hashlib
import keyword
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import chain
from pathlib import Path

from toolkiln.errors import InputError
from toolkiln.model.source import Finding, Reading, Severity
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.spec import data_files, local_imports, names
from toolkiln.spec.checks import text_lint
from toolkiln.spec.local_imports import version_digest
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import MAX_BYTES, decode

_NEVER_TOOLS = {"conftest.py", "setup.py", "noxfile.py"}
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "tests"}


class EmptyFolder(InputError):
    """A folder without Python files."""


def tool_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield these files and the tool files in these folders, in order, once each.

    Raises:
        InputError: a path does not exist.
        EmptyFolder: a folder contains no Python file.
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
                hint="add a .py file, or create one with `toolkiln new NAME`",
            )
        for file in chain([first], found):
            if file not in seen:
                yield file
                if len(paths) > 1:  # one path alone cannot name a file twice
                    seen.add(file)


def is_tool_path(path: str) -> bool:
    """Return whether a file with this relative path is read for tools."""
    folder, _, name = path.rpartition("/")
    return is_tool_file(name) and _is_searched(folder)


def is_tool_file(name: str) -> bool:
    """Return whether a file of this name is read for tools: not private, not a test."""
    is_public = name.endswith(".py") and not name.startswith((".", "_"))
    is_test = name.startswith("test_") or name.endswith("_test.py")
    return is_public and not is_test and name not in _NEVER_TOOLS


def read_file(file: Path, packages: Set[str] = frozenset()) -> Reading:
    """Read a file; an unreadable file gives a reading with one finding.

    `packages` are those that the tools folder lists for all its files.
    """
    if str(file) != printable(file):
        shown = Path(printable(file))
        return _unreadable(shown, "the file's name is not UTF-8", "rename the file")
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return _unreadable(file, "it is not a regular file", "name a Python file")
        if status.st_size > MAX_BYTES:
            fix = f"keep tools under {MAX_BYTES:,} bytes; load data at run time"
            return _unreadable(file, f"the file has {status.st_size:,} bytes", fix)
        data = file.read_bytes()
    except OSError as error:
        fix = "check that it is a file and that you have read permission"
        return _unreadable(file, f"the file cannot be read: {error.strerror or error}", fix)
    try:
        text = decode(data)
    except (UnicodeDecodeError, SyntaxError, LookupError) as error:
        return _unreadable(file, f"the file is not text: {error}", "save it as UTF-8 text", data)
    return read(text, file, data=data, packages=packages)


def printable(path: str | Path) -> str:
    """Return a path as valid text, even if its name is not UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def sources(reading: Reading) -> dict[str, bytes]:
    """Return the bytes of a version: the tool's file first, then its helpers and data files.

    Raises:
        InputError: a file has changed since it was read.
    """
    file = Path(reading.path)
    try:
        return with_companions(reading, file.read_bytes())
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be read: {error.strerror}",
            hint="restore the file, or reload the folder",
        ) from error


def with_companions(reading: Reading, own: bytes) -> dict[str, bytes]:
    """Return the bytes of a version with helpers and data files from disk.

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
        pass  # changed since it was read
    raise InputError(f"{reading.path} has changed since it was read", hint="reload the folder")


def _in_folder(folder: Path) -> Iterator[Path]:
    """Yield the tool files below a folder; does not follow links."""
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not _is_skipped(name))
        yield from (Path(parent, name) for name in sorted(files) if is_tool_file(name))


@lru_cache(1000)
def _is_searched(path: str) -> bool:
    return not any(map(_is_skipped, path.split("/")))


def _is_skipped(folder: str) -> bool:
    return folder.startswith((".", "_")) or folder in _SKIPPED_FOLDERS


def _refuse(error: OSError) -> None:
    raise InputError(
        f"the folder {error.filename!r} cannot be read: {error.strerror}",
        hint="make it readable, or use another folder",
    ) from error


def _where(path: Path) -> str:
    if path == Path("tools"):
        return "create a tool with `toolkiln new NAME`, or select a folder with --tools PATH"
    return "check the path; --tools takes a file or a folder"


def _unreadable(file: Path, message: str, fix: str, data: bytes = b"") -> Reading:
    finding = Finding(
        rule="unreadable-file", severity=Severity.ERROR, message=message, fix=fix, path=str(file)
    )
    return Reading(path=str(file), digest=hashlib.sha256(data).hexdigest(), findings=(finding,))


_MAX_NAME_LENGTH = 64
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}
_PLAIN = "use lower-case letters, digits and underscores, such as 'convert_currency'"
_ANOTHER = "choose another name"


def file_for(tool_name: str, folder: Path) -> Path:
    """Return the file in `folder` for a tool of this name.

    A `.py` suffix is removed. A regular file of that name may exist.

    Raises:
        InputError: the name is not usable; the hint suggests another one if possible.
    """
    name = tool_name.removesuffix(".py")
    if refusal := _refusal(name):
        raise InputError(refusal, hint=_hint(name))
    file = folder / f"{name}.py"
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                _compare(entry, file)
    except FileNotFoundError:
        pass  # the folder will be created
    except OSError as error:
        raise InputError(
            f"the folder {str(folder)!r} cannot be read: {error.strerror}",
            hint="make it a readable folder, or use another one",
        ) from error
    return file


def name_finding(file: Path) -> Finding | None:
    """Return a warning if clients would change the name of a file's tool."""
    problem = names.name_problem(file.stem)
    if problem is None:
        return None
    return Finding(
        rule="bad-name",
        severity=Severity.WARNING,
        message=problem,
        fix="use lower-case letters, digits and underscores, at most 40 of them",
        path=str(file),
    )


def other_name_finding(name: str | None, tools: Sequence[ToolSpec]) -> Finding | None:
    """Return a warning if the author named a tool, and `TOOL_NAME` is another name."""
    declared = [spec for spec in tools if spec.dialect is Dialect.CONSTANTS]
    if name is None or not declared or name in [spec.name for spec in tools]:
        return None
    spec = declared[0]
    return Finding(
        rule="other-name",
        severity=Severity.WARNING,
        message=f"the tool is named {spec.name!r}, by its TOOL_NAME; {name!r} is only its file",
        line=spec.line,
        fix=f"set TOOL_NAME to {name!r}, or write it as {spec.name!r}",
        tool=spec.name,
        path=spec.path,
    )


def _refusal(name: str) -> str | None:
    if not name:
        return "a tool needs a name"
    if len(name) > _MAX_NAME_LENGTH:
        return f"the name has {len(name):,} characters; the maximum is {_MAX_NAME_LENGTH}"
    shown = ascii(name) if len(ascii(name)) <= 80 else f"{ascii(name)[:77]}…"
    if name in (".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        return f"{shown} is a path, not a name"
    if odd := [(index, char) for index, char in enumerate(name) if not char.isascii()]:
        return f"{shown} is not plain ASCII: {text_lint.list_positions(odd)}"
    if name[0] in "._":
        return f"{shown} starts with {name[0]!r}, which marks files that are not read"
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{shown} cannot be the name of a Python module"
    if name in local_imports.NEVER_HELPERS:
        return f"{shown} would hide the module of that name"
    if not is_tool_file(f"{name.lower()}.py"):
        return f"{shown} is reserved: files of that name are not read for tools"
    if name.lower() in _DEVICES:
        return f"{shown} is a device on Windows, where no file can have that name"
    return None


def _hint(name: str) -> str:
    """Return a similar name that is usable, or the rules for names."""
    if len(name) > _MAX_NAME_LENGTH:
        return "shorten it; all clients accept 40 characters"
    decomposed = unicodedata.normalize("NFKD", text_lint.deobfuscate(name))
    ascii_only = "".join(char for char in decomposed if not unicodedata.combining(char))
    guess = re.sub(r"[^A-Za-z0-9]+", "_", ascii_only).strip("_")
    for spelling in (guess, f"{guess}_tool"):
        if guess and spelling != name and _refusal(spelling) is None:
            return f"did you mean {spelling!r}?"
    return _PLAIN


def _compare(entry: os.DirEntry[str], file: Path) -> None:
    if entry.name == file.name:
        if not entry.is_file(follow_symlinks=False):
            raise InputError(
                f"{file.name!r} exists and is not a regular file",
                hint=f"remove it, or {_ANOTHER}",
            )
    elif entry.name.lower() == file.name.lower():
        raise InputError(
            f"{file.name!r} differs from {entry.name!a} only in case",
            hint=f"use {entry.name.removesuffix('.py')!a}, or {_ANOTHER}",
        )
    elif entry.name.lower() == file.stem.lower() and Path(entry).is_dir():
        raise InputError(
            f"there is a folder {entry.name!r}, which Python would import instead",
            hint=_ANOTHER,
        )
