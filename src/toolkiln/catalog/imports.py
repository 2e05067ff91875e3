"""Imports: foreign files, copied with their companions to a tools folder, where they wait.

The originals are only read. `spec.frameworks` knows what differs for a file, and `admission`
decides about the copies like about any other new file.
"""

import io
import os
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.files import is_tool_path, printable, tool_files
from toolkiln.catalog.folder import Cache, ToolFolder
from toolkiln.catalog.reports import report, with_requirements
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.catalog import FileVersion
from toolkiln.model.imports import ImportedFile, ImportOutcome, ImportReport
from toolkiln.model.source import Finding, Severity
from toolkiln.model.spec import BUILTIN_NAMES
from toolkiln.spec.frameworks import ForeignFile, inspect
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import decode

_MOST_FILES = 2_000
_REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class ImportOptions:
    """How files are imported."""

    folder: str = ""
    """Where to, below the tools folder."""
    overwrite: bool = False
    """Whether other content in the tools folder may be replaced."""
    add_requirements: bool = False
    """Whether the copies list the packages that they import."""
    dry_run: bool = False


@dataclass(frozen=True)
class ImportRules:
    """What the importer asks others."""

    read_requirements: Callable[[Path], tuple[str, ...]]
    """Reads a `requirements.txt`; empty if there is none, InputError if it cannot be used."""
    refuse_file: Callable[[str], None]
    """Raises ToolkilnError if the caller may not write a file of the tools folder."""


@dataclass(frozen=True)
class _Original:
    """A file to import."""

    path: Path
    key: str
    """Where it goes, relative to the tools folder."""
    version: FileVersion
    beside: tuple[str, ...]
    """Requirements of its folder."""
    is_named: bool
    """Whether it was named itself, rather than found in a folder."""


class _Refused(Exception):
    """Why a file is not copied."""


class Importer:
    """Imports files into one catalog."""

    def __init__(self, catalog: Catalog, options: ImportOptions, rules: ImportRules) -> None:
        """Read which names are taken.

        Raises:
            InputError: nothing can be imported to there.
        """
        if catalog.folder.place.is_file():
            raise InputError(
                f"only {catalog.folder.place} is served, and no folder",
                hint="name a folder with --tools PATH",
            )
        folder = PurePosixPath(options.folder)
        is_read = is_tool_path((folder / "x.py").as_posix())
        if folder.is_absolute() or ".." in folder.parts or not is_read:
            raise InputError(
                f"{options.folder!r} cannot be a folder of tools",
                hint="name a folder below the tools folder, such as 'imported'",
            )
        self._root = catalog.root
        self._options = options
        self._rules = rules
        self._notes: dict[str, None] = {}
        self._served = self._requirements([catalog.root])
        taken = BUILTIN_NAMES | catalog.options.reserved
        self._owners = dict.fromkeys(taken, "Toolkiln or this program")
        with suppress(InputError):  # there is no folder yet, or nothing in it
            for status in catalog.statuses():
                for name in status.tools:
                    self._owners.setdefault(name, str(catalog.root / status.file))
        self._listed: dict[Path, bytes] = {}
        """Originals with requirements added, by path."""
        self._written: dict[str, bytes] = {}
        """What this import has written, or would write, by path in the tools folder."""

    def run(self, paths: Sequence[Path], observe: Callable[[str, int, int], None]) -> ImportReport:
        """Import files and the files of folders, and report each.

        Raises:
            InputError: a path does not exist, or is a folder without Python files.
        """
        originals = list({item.path: item for item in self._originals(paths)}.values())
        if self._options.add_requirements:
            originals = [self._with_requirements(original) for original in originals]
        imported = []
        for number, original in enumerate(originals):
            observe(printable(original.path), number, len(originals))
            imported.append(self._import(original))
        return ImportReport(
            files=tuple(imported), notes=tuple(self._notes), dry_run=self._options.dry_run
        )

    def _originals(self, paths: Sequence[Path]) -> Iterator[_Original]:
        for path in paths:
            if len(list(islice(tool_files([path]), _MOST_FILES + 1))) > _MOST_FILES:
                raise InputError(
                    f"{path} has more than {_MOST_FILES:,} Python files",
                    hint="import its folders of tools one by one",
                )
            folder = ToolFolder(path, Cache(None))
            for key, version in folder.everything().items():
                file = folder.root / key
                yield _Original(
                    path=file,
                    key=PurePosixPath(self._options.folder, key).as_posix(),
                    version=version,
                    beside=self._requirements(dict.fromkeys((file.parent, folder.root))),
                    is_named=file == path,
                )

    def _requirements(self, folders: Iterable[Path]) -> tuple[str, ...]:
        found: list[str] = []
        for folder in folders:
            try:
                found += self._rules.read_requirements(folder / _REQUIREMENTS)
            except InputError as error:
                self._notes[error.message] = None
        return tuple(found)

    def _with_requirements(self, original: _Original) -> _Original:
        """Return an original that lists the packages it imports, as far as they are known."""
        packages = self._inspect(original).packages
        wanted = [item.requirement for item in packages if item.requirement and not item.is_listed]
        if not wanted or not original.version.sources:
            return original
        (name, data), *companions = original.version.sources.items()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        data = with_requirements(data.decode(encoding), wanted).encode(encoding)
        self._listed[original.path] = data
        version = FileVersion(
            read(decode(data), original.path, data=data), {name: data, **dict(companions)}
        )
        return replace(original, version=version)

    def _inspect(self, original: _Original) -> ForeignFile:
        reading, sources = original.version.reading, original.version.sources
        is_readable = all(finding.rule != "unreadable-file" for finding in reading.findings)
        if not sources and is_readable:  # it declares no tool, perhaps because of errors
            with suppress(OSError):
                sources = {original.path.name: original.path.read_bytes()}
        return inspect(reading, sources, beside=original.beside, served=self._served)

    def _import(self, original: _Original) -> ImportedFile:
        reading, foreign = original.version.reading, self._inspect(original)
        owners = dict(self._owners)
        placed = reading.model_copy(update={"path": str(self._root / original.key)})
        findings = report(placed, owners).reading.findings
        imported = ImportedFile(
            source=printable(original.path),
            outcome="skipped",
            framework=foreign.framework,
            tools=original.version.names,
            differences=foreign.differences,
            packages=foreign.packages,
            findings=findings,
        )
        try:
            self._refuse(original, findings)
            outcome = self._copy(original)
        except _Refused as refusal:
            return imported.model_copy(update={"outcome": "refused", "reason": str(refusal)})
        except ToolkilnError as error:
            return imported.model_copy(update={"outcome": "refused", "reason": error.message})
        except OSError as error:
            reason = f"{printable(error.filename or '')}: {error.strerror}"
            return imported.model_copy(update={"outcome": "refused", "reason": reason})
        if outcome == "skipped":
            return imported.model_copy(update={"reason": "it declares no tool"})
        self._owners = owners
        (_, *companions) = self._targets(original)
        return imported.model_copy(
            update={"file": original.key, "outcome": outcome, "companions": tuple(companions)}
        )

    def _refuse(self, original: _Original, findings: Sequence[Finding]) -> None:
        if errors := sum(finding.severity is Severity.ERROR for finding in findings):
            raise _Refused("it has an error" if errors == 1 else f"it has {errors:,} errors")
        if not original.version.names and original.is_named:
            raise _Refused("it declares no tool")
        if not is_tool_path(original.key):
            raise _Refused("it is a private file or a test, and not read for tools; rename it")
        if original.path.resolve().is_relative_to(self._root.resolve()):
            raise _Refused("it is in the tools folder already; `toolkiln admit` admits it")
        self._rules.refuse_file(original.key)

    def _targets(self, original: _Original) -> dict[str, bytes]:
        """Return the content of a file and its companions, by path in the tools folder."""
        beside, here = original.path.parent, PurePosixPath(original.key).parent
        return {
            (here / name).as_posix(): self._listed.get(beside / name, data)
            for name, data in original.version.sources.items()
        }

    def _copy(self, original: _Original) -> ImportOutcome:
        targets = self._targets(original)
        outcomes = {self._outcome(file, data) for file, data in targets.items()}
        for file, data in reversed(targets.items()):  # the file itself last
            if not self._options.dry_run:
                _write(self._root / file, data)
            self._written[file] = data
        order: tuple[ImportOutcome, ...] = ("replaced", "copied", "unchanged")
        return next((outcome for outcome in order if outcome in outcomes), "skipped")

    def _outcome(self, file: str, data: bytes) -> ImportOutcome:
        """Return what copying a file does."""
        target = self._root / file
        written = self._written.get(file)
        if written is not None and written != data:
            raise _Refused(f"another imported file is {file} already; import them one by one")
        if target.parent.resolve() != Path(f"{self._root.resolve()}/{PurePosixPath(file).parent}"):
            raise _Refused(f"{target.parent} is a link out of the tools folder")
        if written is not None:
            return "unchanged"
        if not os.path.lexists(target):
            return "copied"
        if target.is_symlink() or not target.is_file():
            raise _Refused(f"{target} exists and is not a regular file")
        if target.read_bytes() == data:
            return "unchanged"
        if self._options.overwrite:
            return "replaced"
        raise _Refused(
            f"{target} exists with other content; --overwrite replaces it, --into imports elsewhere"
        )


def _write(file: Path, data: bytes) -> None:
    if file.is_file() and file.read_bytes() == data:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(data)
    part.replace(file)
