"""Data files: files beside a tool that it declares with `files=[…]`, part of its version.

A pattern names regular files in or below the tool's folder. Wildcards skip hidden files and
files that Python could import, and do not follow links; naming such a file explicitly is a
finding. `catalog` decides when to read a file again, using `names` and `matches`.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from toolkiln.spec.findings import Findings

MAX_FILES = 100
"""Data files per tool file."""
MAX_BYTES = 10_000_000
"""Total size per tool file; every process that serves the tool keeps its data in memory."""
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders that contain neither helpers nor data files."""
_MAX_PATTERN = 200
_MAX_ENTRIES = 10_000
"""Directory entries that one pattern may scan."""
_IMPORTABLE = (".py", ".pyc", ".pyd", ".so")
_RESERVED = frozenset({"_manifest.json", "toolkiln.toml"})
_WILD = frozenset("*?[")


class UnusableFile(Exception):
    """A path or pattern that cannot be used as a data file; the message says why."""


def collect(folder: str, patterns: Mapping[str, int], findings: Findings) -> dict[str, bytes]:
    """Read the declared files by path relative to `folder`, and report unusable ones.

    `patterns` maps each pattern to its line.
    """
    files: dict[str, bytes] = {}
    size = 0
    for pattern, line in patterns.items():
        try:
            matched = names(folder, pattern)
            if not matched:
                message = f"no file beside the tool matches {pattern!r}"
                fix = "add the file, or correct files=[…]"
                findings.error("missing-file", message, line, fix)
            for name in matched:
                if name in files:
                    continue
                if len(files) == MAX_FILES:
                    raise UnusableFile(f"the file declares more than {MAX_FILES} data files")
                files[name] = read_bytes(folder, name, MAX_BYTES - size)
                size += len(files[name])
        except UnusableFile as problem:
            fix = "list regular files of the tool's folder in files=[…], such as 'data/rates.json'"
            findings.error("bad-file", str(problem), line, fix)
    return dict(sorted(files.items()))


def names(folder: str, pattern: str) -> list[str]:
    """Return the sorted paths below `folder` that match a pattern, excluding directories."""
    if problem := _pattern_problem(pattern):
        raise UnusableFile(f"{pattern!r} {problem}")
    if not is_wild(pattern):
        return [pattern] if os.path.lexists(f"{folder}/{pattern}") else []
    return sorted(name for name in _candidates(folder, pattern) if matches(pattern, name))


def matches(pattern: str, name: str) -> bool:
    """Return whether a path below the tool's folder matches a pattern; it need not exist."""
    if not is_wild(pattern):
        return name == pattern
    return _name_problem(name) is None and _match_parts(pattern.split("/"), name.split("/"))


def is_wild(pattern: str) -> bool:
    """Return whether a pattern has wildcards."""
    return not _WILD.isdisjoint(pattern)


def base(pattern: str) -> str:
    """Return the folder that a wildcard pattern starts from; "" for the tool's folder."""
    segments = pattern.split("/")
    first = next(at for at, segment in enumerate(segments) if is_wild(segment))
    return "/".join(segments[:first])


def read_bytes(folder: str, name: str, limit: int = MAX_BYTES) -> bytes:
    """Read a data file, or raise UnusableFile: only regular files of this folder are read."""
    path = f"{folder}/{name}"
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UnusableFile(f"{name!r} is a folder; use '{name}/*' for the files in it")
        if not stat.S_ISREG(mode):  # opening a device may have side effects
            raise UnusableFile(f"{name!r} is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as handle:
            # Check the open file, not the path: it may have been replaced by a link.
            link = f"/proc/self/fd/{descriptor}"
            opened = os.path.realpath(link if os.path.lexists(link) else path)
            inside = os.path.realpath(folder)
            if os.path.commonpath([inside, opened]) != inside:
                raise UnusableFile(f"{name!r} links to a file outside the tool's folder")
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnusableFile(f"{name!r} is not a regular file")
            data = handle.read(limit + 1)
    except OSError as error:
        raise UnusableFile(f"{name!r} cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise UnusableFile(f"the data files have more than {MAX_BYTES:,} bytes in total")
    return data


def _pattern_problem(pattern: str) -> str | None:
    if not pattern or len(pattern) > _MAX_PATTERN:
        return f"is not a path of 1 to {_MAX_PATTERN} characters"
    if not pattern.isprintable():
        return "contains unprintable characters"
    segments = pattern.split("/")
    if pattern.startswith(("/", "~")) or "\\" in pattern:
        return "is not a path relative to the tool's folder, with forward slashes"
    if ".." in segments:
        return "leaves the tool's folder"
    if "" in segments or "." in segments:
        return "has an empty part or a '.'; write a path such as 'data/rates.json'"
    if segments.count("**") > 1 or any("**" in s and s != "**" for s in segments):
        return "has '**' more than once, or next to other characters"
    return None if is_wild(pattern) else _name_problem(pattern)


def _name_problem(name: str) -> str | None:
    segments = name.split("/")
    if not name.isprintable():  # a line break could give two versions the same digest
        return "has a name with unprintable characters"
    if any(segment.startswith(".") for segment in segments):
        return "is hidden; hidden files are never part of a version"
    if not SKIPPED_FOLDERS.isdisjoint(segments):
        return "is in a folder that is never part of a version"
    if segments[-1] in _RESERVED:
        return "is reserved for Toolkiln"
    if segments[-1].endswith(_IMPORTABLE):
        return "is a Python module; import it instead"
    return None


def _match_parts(segments: Sequence[str], parts: Sequence[str]) -> bool:
    if not segments or not parts:
        return not segments and not parts
    if segments[0] == "**":  # any number of folders; at the end, any file below
        rest = segments[1:] or ["*"]
        return any(_match_parts(rest, parts[at:]) for at in range(len(parts)))
    return fnmatchcase(parts[0], segments[0]) and _match_parts(segments[1:], parts[1:])


def _candidates(folder: str, pattern: str) -> Iterator[str]:
    start = base(pattern)
    depth = None if "**" in pattern else pattern.count("/")
    entries = 0
    for parent, folders, files in os.walk(f"{folder}/{start}" if start else folder):
        relative = os.path.relpath(parent, folder).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        entries += len(folders) + len(files)
        if entries > _MAX_ENTRIES:
            raise UnusableFile(f"{pattern!r} scans more than {_MAX_ENTRIES:,} files")
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and (depth is None or prefix.count("/") < depth)
        ]
        yield from (prefix + name for name in files)
