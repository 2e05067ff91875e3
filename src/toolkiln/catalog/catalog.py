"""The catalog: serves the tools of a folder as a sequence of immutable snapshots.

Readers take `snapshot` without locking; a change publishes the next one. Only versions on the
manifest are served. With `dev`, the files on disk are served without grants, and neither the
manifest nor the history is written. `admission` decides about versions; `watch` detects changed
files.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from toolkiln.catalog.files import EmptyFolder, printable
from toolkiln.catalog.folder import Cache, ToolFolder, read_sources, without_collector
from toolkiln.catalog.manifest import (
    MANIFEST,
    Installation,
    Manifest,
    ManifestError,
    ManifestFile,
    MissingManifest,
)
from toolkiln.catalog.snapshots import Snapshots
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.catalog import (
    Admission,
    FileState,
    FileStatus,
    FileVersion,
    ServedVersion,
    Snapshot,
    Sources,
)
from toolkiln.model.source import Finding, Severity
from toolkiln.spec.local_imports import version_digest

if TYPE_CHECKING:
    from toolkiln.store.version_archive import VersionArchive


_NO_DECISIONS = Manifest(catalog="")
"""Used in `dev` if the folder has no usable manifest. It has no history."""


@dataclass(frozen=True)
class CatalogOptions:
    """Options of a catalog."""

    dev: bool = False
    """Whether files on disk are served without admission."""
    key: str = ""
    """The key that seals the manifest."""
    cache: Path | None = None
    """The folder for cached readings of unchanged files."""
    reserved: frozenset[str] = frozenset()
    """Names that tools in files cannot have."""


class Catalog:
    """The tools of one folder, or of one file."""

    def __init__(
        self,
        place: Path,
        archive: "Callable[[], VersionArchive]",
        options: CatalogOptions | None = None,
    ) -> None:
        self.options = options or CatalogOptions()
        self._open_archive = archive
        self.folder = ToolFolder(place, Cache(_cache_file(self.options.cache, place)))
        self.root = self.folder.root
        self._snapshots = Snapshots(self.options.reserved)
        self._lock = threading.RLock()
        self._manifest: Manifest | None = None
        self._manifest_file = ManifestFile(self.root, self.options.key)
        self.problem: InputError | None = None
        """Why nothing is served."""
        self._findings: dict[str, Finding] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot; reads the folder on first use.

        Raises:
            ManifestError: nothing is served, because the manifest is unusable.
            InputError: the folder does not exist.
        """
        if self._needs_loading:
            with self._lock:
                if self._needs_loading:  # another thread may have loaded it meanwhile
                    self.refresh()
        problem = self.problem
        if problem is not None:
            raise problem
        return self._snapshots.current

    @property
    def current(self) -> Snapshot:
        """The snapshot published last, even if it is empty."""
        return self._snapshots.current

    @property
    def manifest(self) -> Manifest:
        """The allow-list behind the snapshot.

        Raises:
            ManifestError: it is missing or unusable.
        """
        if self._manifest is None:
            try:
                _ = self.snapshot
            except EmptyFolder:  # in `dev`, where files are read first
                return self._load_manifest()
        assert self._manifest is not None
        return self._manifest

    @property
    def archive(self) -> "VersionArchive":
        """The archive of versions."""
        return self._open_archive()

    def refresh(self, paths: Iterable[Path] | None = None) -> set[str]:
        """Reload these paths, or everything, and publish the changes.

        Returns the files that were read.
        """
        with self._lock, without_collector() if paths is None else nullcontext():
            try:
                if paths is None or self._manifest is None:
                    keys = self._load_all()
                else:
                    keys = self._reload(list(paths))
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
        reset: bool = False,
    ) -> None:
        """Change the manifest and, atomically with it, write or remove a file.

        `edit` gets the manifest on disk and may raise to cancel. With `reset` an unusable
        manifest is replaced.

        Raises:
            EditConflict: another process is changing the folder.
            ManifestError: the manifest is unusable.
        """
        with self._lock:
            self._manifest_file.write(edit, install, reset=reset)
            touched = [self.root / MANIFEST]
            touched += [self.root / install.file] if install else []
            self.refresh(touched)

    def statuses(self) -> list[FileStatus]:
        """Return the status of every file that declares tools or is admitted."""
        try:
            manifest = self.manifest
        except ManifestError:
            manifest = Manifest()
        try:
            reads = self.folder.everything()
        except EmptyFolder:
            if not manifest.files and not manifest.proposed:
                raise
            reads = {}
        keys = sorted(reads.keys() | filter(self.folder.includes, manifest.files))
        on_disk = [_status(key, reads.get(key), manifest) for key in keys]
        listed = {status.file for status in on_disk if status.state is FileState.PROPOSED}
        return on_disk + [
            FileStatus(
                file=printable(file),
                state=FileState.PROPOSED,
                tools=read.names,
                findings=read.reading.findings,
                proposed_by=manifest.proposed[file].by,
            )
            for file, read in self._proposals(manifest).items()
            if file not in listed
        ]

    def refusals(self) -> dict[Path, Admission]:
        """Return the admissions that refuse a tool, by file; reads nothing but the manifest."""
        try:
            files = self._manifest_file.read().files
        except ManifestError:
            return {}
        return {self.root / file: entry for file, entry in files.items() if entry.refused}

    def proposals(self) -> dict[str, FileVersion]:
        """Return proposed versions by file, except those served or no longer stored.

        Raises:
            ManifestError: the manifest is unusable.
        """
        try:
            return self._proposals(self.manifest)
        except ManifestError as error:
            if not isinstance(error, MissingManifest):
                raise
            return {}
        except InputError:
            return {}  # the folder does not exist yet

    def _proposals(self, manifest: Manifest) -> dict[str, FileVersion]:
        found = {file: self.proposal(file) for file in sorted(manifest.proposed)}
        served = manifest.files
        return {
            file: read
            for file, read in found.items()
            if read is not None and not (file in served and served[file].sha256 == read.digest)
        }

    def proposal(self, file: str) -> FileVersion | None:
        """Return the proposed version of a file; None if there is none or it is not stored.

        Proposals are in the store, and on disk only if a person put them there.
        """
        entry = self.manifest.proposed.get(file)
        if entry is None:
            return None
        version = self._stored_version(entry.sha256, file)
        if version is None:
            read = self.folder.read(file)
            version = read if read is not None and read.digest == entry.sha256 else None
        return version

    def pending(self, tool: str) -> FileStatus | None:
        """Return the status of an admitted tool's file if it differs from the served version.

        Raises:
            ManifestError: nothing is served, because the manifest is unusable.
        """
        served = self.snapshot.served.get(tool)
        read = self.folder.reads.get(served.file) if served else None
        if served is None or served.dev or read is None or read.digest == served.read.digest:
            return None
        return _status(served.file, read, self.manifest)

    def served_digest(self, file: str) -> str | None:
        """Return the digest of the served version of a file; None if none is served."""
        served = self._snapshots.served.get(file)
        return served.read.digest if served else None

    def served_version(self, file: str) -> ServedVersion | None:
        """Return the served version of a file; None if none is served."""
        return self._snapshots.served.get(file)

    def version_sources(self, digest: str, file: str) -> Sources | None:
        """Return the files of an archived version; None if they are missing or damaged."""
        try:
            sources = self.archive.sources(digest, file)
        except ToolkilnError:
            return None  # damaged or unreachable: affects this file only
        return sources if sources and _digest(sources) == digest else None

    def is_archived(self, file: str, read: FileVersion) -> bool:
        """Return whether a version is in the history of a file."""
        history = self.archive.history(self.manifest.catalog, file)
        return any(version.digest == read.digest for version in history)

    def _load_all(self) -> set[str]:
        self._manifest_file.recover()
        manifest = self._load_manifest()
        self.folder.load(None if self.options.dev else manifest.files)
        self._manifest = manifest
        return self._snapshots.served.keys() | self.folder.reads.keys()

    def _reload(self, paths: list[Path]) -> set[str]:
        manifest = before = self._manifest or Manifest()
        keys: set[str] = set()
        if self.root / MANIFEST in paths:
            paths.remove(self.root / MANIFEST)
            manifest = self._load_manifest()
            keys = before.differences(manifest)
            paths += [self.root / key for key in keys]  # a decision may have changed the files, too
            if before.enabled != manifest.enabled:
                keys |= self._snapshots.served.keys()
        keys |= self.folder.reload(paths, None if self.options.dev else manifest.files)
        self._manifest = manifest  # last: after a failure the next reload sees the same differences
        return keys

    def _load_manifest(self) -> Manifest:
        self._findings.pop("", None)
        try:
            return self._manifest_file.read()
        except ManifestError as error:
            if not self.root.exists():
                self.folder.everything()  # raises InputError
            if not self.options.dev:
                raise
            if not isinstance(error, MissingManifest):
                self._findings[""] = _unusable(error, self.root)
            return _NO_DECISIONS

    @property
    def _needs_loading(self) -> bool:
        is_missing = self.problem is not None and not isinstance(self.problem, ManifestError)
        return is_missing or self._snapshots.current.number == 0

    def _publish(self, keys: Iterable[str]) -> None:
        manifest = self._manifest
        assert manifest is not None
        served = {key: self._serve(key, manifest) for key in keys}
        self._snapshots.publish(served, manifest, tuple(self._findings.values()))

    def _serve(self, key: str, manifest: Manifest) -> ServedVersion | None:
        self._findings.pop(key, None)
        read, old = self.folder.reads.get(key), self._snapshots.served.get(key)
        if read is None:
            return None
        admission = manifest.files.get(key)
        if admission is not None and read.sources and read.digest == admission.sha256:
            return ServedVersion.admitted(key, read, admission)
        if self._is_served_by_dev(key, read, manifest):
            return ServedVersion(key, read, is_reviewed=_is_reviewed(key, read, manifest))
        if old is not None and old.dev and self._is_served_by_dev(key, old.read, manifest):
            return old  # until the file on disk has no errors
        if admission is None:
            return None
        if old is not None and old.read.digest == admission.sha256:
            return ServedVersion.admitted(key, old.read, admission)
        stored = self._stored_version(admission.sha256, key)
        if stored is not None:
            return ServedVersion.admitted(key, stored, admission)
        self._findings[key] = Finding(
            rule="version-not-kept",
            severity=Severity.ERROR,
            message="the file has changed, and its admitted version is not in the store",
            fix=f"admit the current file with `toolkiln admit {self.root / key}`",
            path=str(self.root / key),
        )
        return None

    def _is_served_by_dev(self, key: str, read: FileVersion, manifest: Manifest) -> bool:
        """Return whether `dev` serves a version: it has no errors and no decision about it."""
        return (
            self.options.dev
            and bool(read.sources)
            and manifest.state_of(key, read.digest) in (FileState.NEW, FileState.CHANGED)
            and not has_errors(read)
        )

    def _stored_version(self, digest: str, key: str) -> FileVersion | None:
        sources = self.version_sources(digest, key)
        if not sources:
            return None
        return FileVersion(read_sources(sources, self.root / key, self.folder.packages), sources)


def utc_now() -> str:
    """Return the current time in the format of manifests and histories."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def has_errors(read: FileVersion) -> bool:
    """Return whether a version has errors, which prevent its admission."""
    return any(finding.severity is Severity.ERROR for finding in read.reading.findings)


def _is_reviewed(key: str, read: FileVersion, manifest: Manifest) -> bool:
    """Return whether a version served by `dev` counts as reviewed by the operator.

    The operator edits files on disk. A file that an agent wrote gets no grants before a person
    admits it, even as a helper module of another file.
    """
    folder = PurePosixPath(key).parent
    parts = (manifest.files.get((folder / path).as_posix()) for path in read.sources)
    return all(entry is None or entry.is_reviewed for entry in parts)


def _status(key: str, read: FileVersion | None, manifest: Manifest) -> FileStatus:
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
        message=f"the admission decisions for these tools are unknown: {error.reason}",
        fix=error.hint or "restore the manifest",
        path=str(root / MANIFEST),
    )


def _digest(sources: Sources) -> str:
    (_, own), *helpers = sources.items()
    return version_digest(own, dict(helpers))


def _cache_file(folder: Path | None, place: Path) -> Path | None:
    if folder is None:
        return None
    # Readings contain the path as given, so its spelling matters.
    name = hashlib.sha256(f"{place.absolute()}\0{place}".encode()).hexdigest()[:24]
    return folder / f"{name}.db"
