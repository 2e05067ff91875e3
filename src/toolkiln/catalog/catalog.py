"""The catalog: what is served from a folder of tools, one immutable snapshot after another.

Readers take `snapshot` and never lock; a change publishes the next one. Only versions on
the manifest are served. With `dev` the files on disk are served from memory, without any
grants: neither the manifest nor the history is written. Decisions about files are made in
`admission`; `watch` notices that files changed.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from toolkiln.catalog import manifest as manifests
from toolkiln.catalog.cache import Cache, read_sources, without_collector
from toolkiln.catalog.disk import Disk
from toolkiln.catalog.files import EmptyFolder, printable
from toolkiln.catalog.ledger import Ledger
from toolkiln.catalog.manifest import Manifest, ManifestError, MissingManifest
from toolkiln.catalog.snapshots import Snapshots
from toolkiln.catalog.transaction import Installation
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import (
    FileState,
    FileStatus,
    Finding,
    Read,
    Served,
    Severity,
    Snapshot,
    Sources,
)
from toolkiln.spec import version_digest

if TYPE_CHECKING:
    from toolkiln.store import Archive


_NO_DECISIONS = Manifest(catalog="")
"""Used in `dev` where the folder has no usable manifest. It has no history to name."""


@dataclass(frozen=True)
class Options:
    """How a catalog is kept."""

    dev: bool = False
    """Whether files on disk are served without an admission."""
    key: str = ""
    """The key that manifests are sealed with."""
    cache: Path | None = None
    """The folder for readings of unchanged files."""
    reserved: frozenset[str] = frozenset()
    """Names that no file can take."""


class Catalog:
    """The tools of one folder, or of one file."""

    def __init__(
        self, place: Path, archive: "Callable[[], Archive]", options: Options | None = None
    ) -> None:
        self.options = options or Options()
        self._open_archive = archive
        self.disk = Disk(place, Cache(_cache_file(self.options.cache, place)))
        self.root = self.disk.root
        self._snapshots = Snapshots(self.options.reserved)
        self._changing = threading.RLock()
        self._manifest: Manifest | None = None
        self._ledger = Ledger(self.root, self.options.key)
        self.problem: InputError | None = None
        """Why nothing is served."""
        self._troubles: dict[str, Finding] = {}

    @property
    def snapshot(self) -> Snapshot:
        """What is served.

        Raises:
            ManifestError: nothing, and why.
            InputError: there is no such folder.
        """
        if self._must_look:
            with self._changing:
                if self._must_look:  # nobody else looked meanwhile
                    self.refresh()
        problem = self.problem
        if problem is not None:
            raise problem
        return self.current

    @property
    def current(self) -> Snapshot:
        """What was last published, also if that is nothing."""
        return self._snapshots.current

    @property
    def manifest(self) -> Manifest:
        """The allow-list behind the snapshot.

        Raises:
            ManifestError: there is none that can be trusted.
        """
        if self._manifest is None:
            try:
                _ = self.snapshot
            except EmptyFolder:  # in `dev`, where files are read first
                return self._load_manifest()
        assert self._manifest is not None
        return self._manifest

    @property
    def archive(self) -> "Archive":
        """Where versions are kept."""
        return self._open_archive()

    def refresh(self, paths: Iterable[Path] | None = None) -> set[str]:
        """Read these paths again, or everything, and publish what changed.

        Returns the files that were read.
        """
        with self._changing, without_collector() if paths is None else nullcontext():
            try:
                if paths is None or self._manifest is None:
                    keys = self._look_at_everything()
                else:
                    keys = self._look_at(list(paths))
            except InputError as problem:
                self._manifest, self.problem = None, problem
                self._snapshots.publish(dict.fromkeys(self._snapshots.served), Manifest(), ())
                return set()
            self._publish(keys)
            self.problem = None
        return keys

    def update(
        self,
        edit: Callable[[Manifest], Manifest],
        install: Installation | None = None,
        *,
        afresh: bool = False,
    ) -> None:
        """Change the manifest, and with it perhaps write or remove a file: both or neither.

        `edit` sees the manifest as it is on disk and may refuse by raising. With `afresh`
        one that cannot be trusted is replaced.

        Raises:
            Conflict: somebody else is changing the folder.
            ManifestError: the manifest cannot be trusted.
        """
        with self._changing:
            self._ledger.write(edit, install, afresh=afresh)
            touched = [self.root / manifests.FILE_NAME]
            touched += [self.root / install.file] if install else []
            self.refresh(touched)

    def statuses(self) -> list[FileStatus]:
        """Every file that declares tools or is admitted, and how it stands."""
        try:
            manifest = self.manifest
        except ManifestError:
            manifest = Manifest()
        try:
            reads = self.disk.everything()
        except EmptyFolder:
            if not manifest.files and not manifest.proposed:
                raise
            reads = {}
        keys = sorted(reads.keys() | filter(self.disk.is_ours, manifest.files))
        on_disk = [_status(key, reads.get(key), manifest) for key in keys]
        known = {one.file for one in on_disk if one.state is FileState.PROPOSED}
        return on_disk + [
            FileStatus(
                file=printable(file),
                state=FileState.PROPOSED,
                tools=read.names,
                findings=read.reading.findings,
                proposed_by=manifest.proposed[file].by,
            )
            for file, read in self._proposals(manifest).items()
            if file not in known
        ]

    def proposals(self) -> dict[str, Read]:
        """The proposed versions by file, without those that are served or no longer kept.

        Raises:
            ManifestError: there is no manifest that can be trusted.
        """
        try:
            return self._proposals(self.manifest)
        except ManifestError as error:
            if not isinstance(error, MissingManifest):
                raise
            return {}
        except InputError:
            return {}  # there is no folder yet

    def _proposals(self, manifest: Manifest) -> dict[str, Read]:
        found = {file: self.proposal(file) for file in sorted(manifest.proposed)}
        served = manifest.files
        return {
            file: read
            for file, read in found.items()
            if read is not None and not (file in served and served[file].sha256 == read.digest)
        }

    def proposal(self, file: str) -> Read | None:
        """The proposed version of a file; None if there is none, or it is not kept.

        Proposals are kept in the store, and on disk only if a person put them there.
        """
        entry = self.manifest.proposed.get(file)
        if entry is None:
            return None
        kept = self._kept(entry.sha256, file)
        if kept is None:
            read = self.disk.read(file)
            kept = read if read is not None and read.digest == entry.sha256 else None
        return kept

    def pending(self, tool: str) -> FileStatus | None:
        """The file of an admitted tool, if it was read in another version than is served.

        Raises:
            ManifestError: nothing is served, and why.
        """
        served = self.snapshot.served.get(tool)
        read = self.disk.reads.get(served.file) if served else None
        if served is None or served.dev or read is None or read.digest == served.read.digest:
            return None
        return _status(served.file, read, self.manifest)

    def served_digest(self, file: str) -> str | None:
        """The digest of the version of a file that is served; None if none is."""
        served = self._snapshots.served.get(file)
        return served.read.digest if served else None

    def served_version(self, file: str) -> Served | None:
        """The version of a file that is served; None if none is."""
        return self._snapshots.served.get(file)

    def version_sources(self, digest: str, file: str) -> Sources | None:
        """The files of a version that was once admitted; None if they are not kept whole."""
        try:
            sources = self.archive.sources(digest, file)
        except ToolkilnError:
            return None  # damaged, or the store is out of reach: that is one file's trouble
        return sources if sources and _digest(sources) == digest else None

    def _look_at_everything(self) -> set[str]:
        self._ledger.try_to_recover()
        manifest = self._load_manifest()
        self.disk.load(None if self.options.dev else manifest.files)
        self._manifest = manifest
        return self._snapshots.served.keys() | self.disk.reads.keys()

    def _look_at(self, paths: list[Path]) -> set[str]:
        manifest = before = self._manifest or Manifest()
        keys: set[str] = set()
        if self.root / manifests.FILE_NAME in paths:
            paths.remove(self.root / manifests.FILE_NAME)
            manifest = self._load_manifest()
            keys = before.differences(manifest)
            paths += [self.root / key for key in keys]  # whoever decided may have written it
            if before.enabled != manifest.enabled:
                keys |= self._snapshots.served.keys()
        keys |= self.disk.look_again(paths, None if self.options.dev else manifest.files)
        self._manifest = manifest  # last: after a failure the next look sees the same differences
        return keys

    def _load_manifest(self) -> Manifest:
        self._troubles.pop("", None)
        try:
            return self._ledger.read()
        except ManifestError as error:
            if not self.root.exists():
                self.disk.everything()  # says so
            if not self.options.dev:
                raise
            if not isinstance(error, MissingManifest):
                self._troubles[""] = _unusable(error, self.root)
            return _NO_DECISIONS

    @property
    def _must_look(self) -> bool:
        is_missing = self.problem is not None and not isinstance(self.problem, ManifestError)
        return self.current.number == 0 or is_missing

    def _publish(self, keys: Iterable[str]) -> None:
        manifest = self._manifest
        assert manifest is not None
        served = {key: self._serve(key, manifest) for key in keys}
        self._snapshots.publish(served, manifest, tuple(self._troubles.values()))

    def _serve(self, key: str, manifest: Manifest) -> Served | None:
        self._troubles.pop(key, None)
        read, old = self.disk.reads.get(key), self._snapshots.served.get(key)
        if read is None:
            return None
        admission = manifest.files.get(key)
        if admission is not None and read.sources and read.digest == admission.sha256:
            return Served.admitted(key, read, admission)
        if self._is_served_by_dev(key, read, manifest):
            return Served(key, read, is_reviewed=_is_operators(key, read, manifest))
        if old is not None and old.dev and self._is_served_by_dev(key, old.read, manifest):
            return old  # until the file on disk can be served again
        if admission is None:
            return None
        if old is not None and old.read.digest == admission.sha256:
            return Served.admitted(key, old.read, admission)
        kept = self._kept(admission.sha256, key)
        if kept is not None:
            return Served.admitted(key, kept, admission)
        self._troubles[key] = Finding(
            rule="version-not-kept",
            severity=Severity.ERROR,
            message="the file has changed, and its admitted version is not in the store",
            fix=f"admit the file as it is with `toolkiln admit {self.root / key}`",
            path=str(self.root / key),
        )
        return None

    def _is_served_by_dev(self, key: str, read: Read, manifest: Manifest) -> bool:
        """Whether `dev` serves a version: it has no errors, and no decision was made about it."""
        return (
            self.options.dev
            and bool(read.sources)
            and manifest.state_of(key, read.digest) in (FileState.NEW, FileState.CHANGED)
            and not has_errors(read)
        )

    def _kept(self, digest: str, key: str) -> Read | None:
        sources = self.version_sources(digest, key)
        return Read(read_sources(sources, self.root / key), sources) if sources else None


def utc_now() -> str:
    """The time as manifests and histories write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def has_errors(read: Read) -> bool:
    """Whether a file cannot be admitted as it is."""
    return any(finding.severity is Severity.ERROR for finding in read.reading.findings)


def _is_operators(key: str, read: Read, manifest: Manifest) -> bool:
    """Whether no part of a version that `dev` serves was last admitted by a writer.

    The operator edits files on disk; a writer's file, also as a helper module of another, gets
    no grants before a person admits it.
    """
    folder = PurePosixPath(key).parent
    parts = (manifest.files.get((folder / path).as_posix()) for path in read.sources)
    return all(entry is None or entry.is_reviewed for entry in parts)


def _status(key: str, read: Read | None, manifest: Manifest) -> FileStatus:
    admission = manifest.files.get(key)
    if read is None:
        return FileStatus(file=key, state=FileState.MISSING, admission=admission)
    return FileStatus(
        file=printable(key),
        state=manifest.state_of(key, read.digest),
        tools=read.names,
        admission=admission,
        findings=read.reading.findings,
    )


def _unusable(error: ManifestError, root: Path) -> Finding:
    return Finding(
        rule="manifest-unusable",
        severity=Severity.WARNING,
        message=f"decisions about these tools are unknown: {error.reason}",
        fix=error.hint or "restore the manifest",
        path=str(root / manifests.FILE_NAME),
    )


def _digest(sources: Sources) -> str:
    (_, own), *helpers = sources.items()
    return version_digest(own, dict(helpers))


def _cache_file(folder: Path | None, place: Path) -> Path | None:
    if folder is None:
        return None
    # The spelling counts too: readings carry the path that they were asked for by.
    name = hashlib.sha256(f"{place.absolute()}\0{place}".encode()).hexdigest()[:24]
    return folder / f"{name}.db"
