"""The catalog: what is served from a folder of tools, one immutable snapshot after another.

Readers take `snapshot` and never lock; whoever changes something publishes the next one.
Only versions on the manifest are served. With `dev` every version on disk that has no
errors is put there by the catalog itself, without any rights. What people decide about
files is in `admission`, noticing that files changed in `watch`.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
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
    Admission,
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


@dataclass(frozen=True)
class Options:
    """How a catalog is kept."""

    dev: bool = False
    """Whether what is on disk admits itself."""
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
        self._unkept: dict[str, Admission | None] = {}
        """What admitted itself and is not written down, with what was decided before."""
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
            _ = self.snapshot
        assert self._manifest is not None
        return self._manifest

    @property
    def archive(self) -> "Archive":
        """Where versions are kept."""
        return self._open_archive()

    def refresh(self, paths: Iterable[Path] | None = None, *, keep: bool = True) -> set[str]:
        """Look again: at these paths, or at everything; then publish what has changed.

        Without `keep` it is left to the caller to `keep` what admitted itself.

        Returns the files that were looked at.
        """
        with self._changing, without_collector() if paths is None else nullcontext():
            try:
                if paths is None or self._manifest is None:
                    keys = self._look_at_everything()
                else:
                    keys = self._look_at(list(paths))
            except InputError as problem:
                self._manifest, self.problem = None, problem
                self._unkept.clear()
                self._snapshots.publish(dict.fromkeys(self._snapshots.served), Manifest(), ())
                return set()
            if self.options.dev:
                self._admit_what_is_new(keys)
            self._publish(keys)
            self.problem = None
        if keep:
            self.keep()
        return keys

    def keep(self) -> None:
        """Write down what admitted itself. What is served does not wait for that.

        What cannot be written down is served all the same, and a finding says so.
        """
        if not self._unkept:
            return
        self._troubles.pop("", None)
        try:
            self._write_down()
        except (ToolkilnError, OSError) as error:
            with self._changing:
                self._troubles[""] = Finding(
                    rule="version-not-kept",
                    severity=Severity.WARNING,
                    message=f"versions are served, but not written down: {error}",
                    fix="make the tools' folder and the state folder writable",
                    path=str(self.root),
                )
                if self._manifest is not None:
                    self._publish(())

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
            self._ledger.write(edit, self._fallback, install, afresh=afresh)
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
        except MissingManifest:
            return {}

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
            theirs = self._load_manifest()
            manifest = theirs.model_copy(
                update={"files": {**theirs.files, **_undecided(theirs, before, self._unkept)}}
            )
            keys = before.differences(manifest)
            paths += [self.root / key for key in keys]  # whoever decided may have written it
            if before.enabled != manifest.enabled:
                keys |= self._snapshots.served.keys()
        keys |= self.disk.look_again(paths, None if self.options.dev else manifest.files)
        self._manifest = manifest  # last: after a failure the next look sees the same differences
        return keys

    def _load_manifest(self) -> Manifest:
        try:
            return self._ledger.read()
        except MissingManifest:
            if not self.root.exists():
                self.disk.everything()  # says so
            if not self.options.dev:
                raise
            return self._fallback

    @property
    def _fallback(self) -> Manifest:
        """The manifest to start from where there is none on disk."""
        return (self.options.dev and self._manifest) or Manifest()

    @property
    def _must_look(self) -> bool:
        is_missing = self.problem is not None and not isinstance(self.problem, ManifestError)
        return self.current.number == 0 or is_missing

    def _admit_what_is_new(self, keys: Iterable[str]) -> None:
        """Put what is on disk onto the manifest in memory; `keep` writes it down."""
        assert self._manifest is not None
        manifest, at = self._manifest, utc_now()
        arrived: dict[str, Admission] = {}
        for key in sorted(keys):
            read, old = self.disk.reads.get(key), manifest.files.get(key)
            if read is None or not read.sources or _is_decided(manifest, key, read.digest):
                continue
            if has_errors(read):
                continue
            arrived[key] = Admission(
                sha256=read.digest,
                version=old.version + 1 if old else 1,
                admitted_by="dev",
                admitted_at=at,
                since=old.since if old else at,
            )
            self._unkept.setdefault(key, old)
        if arrived:
            self._manifest = manifest.model_copy(update={"files": {**manifest.files, **arrived}})

    def _write_down(self) -> None:
        """Other threads go on publishing meanwhile: this takes longer the more files there are."""
        from toolkiln.store import Arrival, Content  # SQLAlchemy is slow to load

        with self._changing:
            ours, unkept, served = self._manifest, dict(self._unkept), self._snapshots.served
            if ours is None:
                return
            contents = [
                Content(file=key, reading=served[key].reading, sources=served[key].sources)
                for key in unkept
                if key in served
            ]
        arrival = Arrival(action="dev", by="dev", at=utc_now())
        versions = self.archive.keep_many(ours.catalog, contents, arrival)
        numbers = {version.file: version.number for version in versions}

        def edit(theirs: Manifest) -> Manifest:
            admitted = {
                key: entry.model_copy(update={"version": numbers[key]})
                for key, entry in _undecided(theirs, ours, unkept).items()
                if key in numbers
            }
            return theirs.model_copy(update={"files": {**theirs.files, **admitted}})

        after = self._ledger.write(edit, ours)
        with self._changing:
            for key in unkept.keys() & self._unkept.keys():
                if self._manifest and self._manifest.files.get(key) == ours.files.get(key):
                    del self._unkept[key]
                else:  # it has changed once more
                    self._unkept[key] = after.files.get(key)
            self.refresh([self.root / manifests.FILE_NAME], keep=False)

    def _publish(self, keys: Iterable[str]) -> None:
        manifest = self._manifest
        assert manifest is not None
        served = {key: self._serve(key, manifest.files.get(key)) for key in keys}
        self._snapshots.publish(served, manifest, tuple(self._troubles.values()))

    def _serve(self, key: str, admission: Admission | None) -> Served | None:
        self._troubles.pop(key, None)
        read, old = self.disk.reads.get(key), self._snapshots.served.get(key)
        if admission is None or read is None:
            return None
        if read.sources and read.digest == admission.sha256:
            return Served(key, read, admission)
        if old is not None and old.admission.sha256 == admission.sha256:
            return replace(old, admission=admission)
        kept = self._kept(admission.sha256, key)
        if kept is not None:
            return Served(key, kept, admission)
        self._troubles[key] = Finding(
            rule="version-not-kept",
            severity=Severity.ERROR,
            message="the file has changed, and its admitted version is not in the store",
            fix=f"admit the file as it is with `toolkiln admit {self.root / key}`",
            path=str(self.root / key),
        )
        return None

    def _kept(self, digest: str, key: str) -> Read | None:
        sources = self.version_sources(digest, key)
        return Read(read_sources(sources, self.root / key), sources) if sources else None


def utc_now() -> str:
    """The time as manifests and histories write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def has_errors(read: Read) -> bool:
    """Whether a file cannot be admitted as it is."""
    return any(finding.severity is Severity.ERROR for finding in read.reading.findings)


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


def _is_decided(manifest: Manifest, key: str, digest: str) -> bool:
    return manifest.state_of(key, digest) not in (FileState.NEW, FileState.CHANGED)


def _undecided(
    theirs: Manifest, ours: Manifest, unkept: Mapping[str, Admission | None]
) -> dict[str, Admission]:
    """What admitted itself, but for what somebody decided about meanwhile: that holds."""
    return {
        key: ours.files[key]
        for key, before in unkept.items()
        if key in ours.files
        and ((entry := theirs.files.get(key)) == before or (entry and entry.admitted_by == "dev"))
        and not _is_decided(theirs, key, ours.files[key].sha256)
    }


def _digest(sources: Sources) -> str:
    (_, own), *helpers = sources.items()
    return version_digest(own, dict(helpers))


def _cache_file(folder: Path | None, place: Path) -> Path | None:
    if folder is None:
        return None
    # The spelling counts too: readings carry the path that they were asked for by.
    name = hashlib.sha256(f"{place.absolute()}\0{place}".encode()).hexdigest()[:24]
    return folder / f"{name}.db"
