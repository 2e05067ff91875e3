"""A tool's name → the file it is written to, or the reason why not.

Names come from models, so every string is thought possible. What is accepted is a module
that Python can import, that shadows nothing, that the catalog reads, and that can be cloned
onto any system. Not here: whether an existing file may be overwritten, and the names that
tools themselves have in their source, which `spec` looks after.
"""

import keyword
import os
import re
import unicodedata
from pathlib import Path

from toolkiln.catalog.files import is_tool_file
from toolkiln.errors import InputError
from toolkiln.model import Finding, Severity
from toolkiln.spec import naming, neighbours
from toolkiln.spec.checks import unseen

_LONGEST = 64
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}
_PLAIN = "use lower-case letters, digits and underscores, such as 'convert_currency'"
_ANOTHER = "choose another name"


def file_for(tool_name: str, folder: Path) -> Path:
    """The file directly in `folder` that a tool of this name is written to.

    A trailing `.py` is taken off once. A regular file of exactly that name may exist.

    Raises:
        InputError: the name cannot be a file's here; the hint has one that can, if there is.
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
        pass  # a folder that is yet to be made holds nothing that could clash
    except OSError as error:
        raise InputError(
            f"the folder {str(folder)!r} cannot be read: {error.strerror}",
            hint="make it a readable folder, or name another one",
        ) from error
    return file


def name_finding(file: Path) -> Finding | None:
    """A warning if clients will mangle the name that a file was given."""
    problem = naming.name_problem(file.stem)
    if problem is None:
        return None
    return Finding(
        rule="bad-name",
        severity=Severity.WARNING,
        message=problem,
        fix="use lower-case letters, digits and underscores, at most 40 of them",
        path=str(file),
    )


def _refusal(name: str) -> str | None:
    """Why a name cannot be a tool file's in any folder."""
    if not name:
        return "a tool needs a name"
    if len(name) > _LONGEST:
        return f"the name has {len(name):,} characters, and names end at {_LONGEST}"
    shown = ascii(name) if len(ascii(name)) <= 80 else f"{ascii(name)[:77]}…"
    if name in (".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        return f"{shown} is a path, not a name"
    if odd := [(index, char) for index, char in enumerate(name) if not char.isascii()]:
        return f"{shown} is not plain ASCII: {unseen.listed(odd)}"
    if name[0] in "._":
        return f"{shown} starts with {name[0]!r}, which marks files that are not read"
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{shown} cannot be the name of a Python module"
    if name in neighbours.NEVER_HELPERS:
        return f"{shown} would hide the module of that name"
    if not is_tool_file(f"{name.lower()}.py"):
        return f"{shown} is reserved: files of that name are not read for tools"
    if name.lower() in _DEVICES:
        return f"{shown} is a device on Windows, where no file can have that name"
    return None


def _hint(name: str) -> str:
    """The nearest name that is accepted, or how names are made."""
    if len(name) > _LONGEST:
        return "shorten it; 40 characters reach every client"
    decomposed = unicodedata.normalize("NFKD", unseen.as_read(name))
    ascii_only = "".join(char for char in decomposed if not unicodedata.combining(char))
    guess = re.sub(r"[^A-Za-z0-9]+", "_", ascii_only).strip("_")
    for spelling in (guess, f"{guess}_tool"):
        if guess and spelling != name and _refusal(spelling) is None:
            return f"did you mean {spelling!r}?"
    return _PLAIN


def _compare(entry: os.DirEntry[str], file: Path) -> None:
    """Refuse the file if it cannot lie beside, or replace, what is in the folder."""
    if entry.name == file.name:
        if not entry.is_file(follow_symlinks=False):
            raise InputError(
                f"{file.name!r} exists and is no regular file",
                hint=f"remove it, or {_ANOTHER}",
            )
    elif entry.name.lower() == file.name.lower():
        raise InputError(
            f"{file.name!r} differs from {entry.name!a} in case alone",
            hint=f"use {entry.name.removesuffix('.py')!a}, or {_ANOTHER}",
        )
    elif entry.name.lower() == file.stem.lower() and Path(entry).is_dir():
        raise InputError(
            f"there is a folder {entry.name!r}, which Python would import in its place",
            hint=_ANOTHER,
        )
