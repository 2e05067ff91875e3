"""The data files that a tool declares with `files=[…]`: part of its version, beside its file.

A pattern names regular files in or below the tool's folder. Wildcards match no hidden file, nothing
that Python could import, and do not follow links; naming such a file outright is a finding. Nothing
is decided here about when a file is read again: `catalog` asks `names` and `matches`.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from toolkiln.spec.report import Findings

MAX_FILES = 100
"""Data files of one tool file."""
MAX_BYTES = 10_000_000
"""Bytes of them together: every process that serves the tool keeps them in memory."""
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders that hold neither helpers nor data."""
_LONGEST_PATTERN = 200
_MOST_ENTRIES = 10_000
"""Names that one pattern looks at; more are a folder that nobody meant."""
_IMPORTABLE = (".py", ".pyc", ".pyd", ".so")
_RESERVED = frozenset({"_manifest.json", "toolkiln.toml"})
_WILD = frozenset("*?[")


class UnusableFile(Exception):
    """Why something cannot be a data file."""


def collect(folder: str, declared: Mapping[str, int], findings: Findings) -> dict[str, bytes]:
    """The declared files by their paths below `folder`; what is wrong with them is reported.

    `declared` has the line of each pattern.
    """
    found: dict[str, bytes] = {}
    size = 0
    for pattern, line in declared.items():
        try:
            matched = names(folder, pattern)
            if not matched:
                message = f"no file beside the tool matches {pattern!r}"
                fix = "put the file there, or correct files=[…]"
                findings.error("missing-file", message, line, fix)
            for name in matched:
                if name in found:
                    continue
                if len(found) == MAX_FILES:
                    raise UnusableFile(f"the file declares more than {MAX_FILES} data files")
                found[name] = read_bytes(folder, name, MAX_BYTES - size)
                size += len(found[name])
        except UnusableFile as problem:
            fix = "name regular files of the tool's folder in files=[…], as in 'data/rates.json'"
            findings.error("bad-file", str(problem), line, fix)
    return dict(sorted(found.items()))


def names(folder: str, pattern: str) -> list[str]:
    """The paths below `folder` that a pattern means, in order; they may be anything but folders.

    Raises:
        UnusableFile: the pattern is not allowed, or too much would have to be looked at.
    """
    if problem := _pattern_problem(pattern):
        raise UnusableFile(f"{pattern!r} {problem}")
    if not is_wild(pattern):
        return [pattern] if os.path.lexists(f"{folder}/{pattern}") else []
    return sorted(name for name in _below(folder, pattern) if matches(pattern, name))


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern means a path below the tool's folder, whether or not it is there."""
    if not is_wild(pattern):
        return name == pattern
    return _unusable(name) is None and _fits(pattern.split("/"), name.split("/"))


def is_wild(pattern: str) -> bool:
    """Whether a pattern may mean several files."""
    return not _WILD.isdisjoint(pattern)


def base(pattern: str) -> str:
    """The folder that a pattern with wildcards starts from; empty for the tool's own."""
    segments = pattern.split("/")
    first = next(at for at, segment in enumerate(segments) if is_wild(segment))
    return "/".join(segments[:first])


def read_bytes(folder: str, name: str, most: int = MAX_BYTES) -> bytes:
    """The content of a data file.

    Raises:
        UnusableFile: it is not a regular file of this folder, too large, or cannot be read.
    """
    path = f"{folder}/{name}"
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UnusableFile(f"{name!r} is a folder; '{name}/*' means the files in it")
        if not stat.S_ISREG(mode):  # opening a device may do something
            raise UnusableFile(f"{name!r} is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as handle:
            # Of what is open, not of the path: that may have become a link by now.
            link = f"/proc/self/fd/{descriptor}"
            opened = os.path.realpath(link if os.path.lexists(link) else path)
            inside = os.path.realpath(folder)
            if os.path.commonpath([inside, opened]) != inside:
                raise UnusableFile(f"{name!r} is a link out of the folder of the tool")
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnusableFile(f"{name!r} is not a regular file")
            data = handle.read(most + 1)
    except OSError as error:
        raise UnusableFile(f"{name!r} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise UnusableFile(f"the data files have more than {MAX_BYTES:,} bytes together")
    return data


def _pattern_problem(pattern: str) -> str | None:
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        return f"is not a path of 1 to {_LONGEST_PATTERN} characters"
    if not pattern.isprintable():
        return "has characters that cannot be printed"
    segments = pattern.split("/")
    if pattern.startswith(("/", "~")) or "\\" in pattern:
        return "is not a path relative to the tool's folder, with forward slashes"
    if ".." in segments:
        return "leaves the folder of the tool"
    if "" in segments or "." in segments:
        return "has an empty part or a '.'; write it as in 'data/rates.json'"
    if segments.count("**") > 1 or any("**" in s and s != "**" for s in segments):
        return "has '**' more than once, or beside other characters"
    return None if is_wild(pattern) else _unusable(pattern)


def _unusable(name: str) -> str | None:
    """Why a path cannot be that of a data file."""
    segments = name.split("/")
    if not name.isprintable():  # a line break could make two versions look like one
        return "has a name with characters that cannot be printed"
    if any(segment.startswith(".") for segment in segments):
        return "is hidden; hidden files are never part of a version"
    if not SKIPPED_FOLDERS.isdisjoint(segments):
        return "lies in a folder that is never part of a version"
    if segments[-1] in _RESERVED:
        return "is Toolkiln's own file"
    if segments[-1].endswith(_IMPORTABLE):
        return "is something that Python imports; import it as a module instead"
    return None


def _fits(segments: Sequence[str], parts: Sequence[str]) -> bool:
    if not segments or not parts:
        return not segments and not parts
    if segments[0] == "**":  # any number of folders; at the end, any file below
        rest = segments[1:] or ["*"]
        return any(_fits(rest, parts[at:]) for at in range(len(parts)))
    return fnmatchcase(parts[0], segments[0]) and _fits(segments[1:], parts[1:])


def _below(folder: str, pattern: str) -> Iterator[str]:
    """What lies where a pattern may find something."""
    start = base(pattern)
    depth = None if "**" in pattern else pattern.count("/")
    seen = 0
    for parent, folders, files in os.walk(f"{folder}/{start}" if start else folder):
        relative = os.path.relpath(parent, folder).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        seen += len(folders) + len(files)
        if seen > _MOST_ENTRIES:
            raise UnusableFile(f"{pattern!r} looks at more than {_MOST_ENTRIES:,} files")
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and (depth is None or prefix.count("/") < depth)
        ]
        yield from (prefix + name for name in files)
