"""The manifest: the allow-list of a tools folder, and atomic changes of both.

It is one JSON file, `_manifest.json`, replaced as a whole. A checksum over its content reveals
manual edits and damage; with a key (the setting `manifest_key`), only holders of the key can
write a valid one. `admission` decides about entries.

A change writes a tool's file and the manifest, and a process may die in between. The journal
names both before either is touched; the new file is written to a temporary name and renamed (or
the old one removed) after the manifest is replaced. The next process that opens the folder
completes or discards an interrupted change.
"""

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field, ValidationError

from toolkiln.errors import EditConflict, InputError
from toolkiln.model.base import Value
from toolkiln.model.catalog import Admission, DecisionRecord, FileState, Overruled
from toolkiln.model.source import Finding, Reading

MANIFEST = "_manifest.json"
_FORMAT = 1
_KEYED = "hmac-sha256:"
_JOURNAL = ".toolkiln-journal.json"
_PATIENCE = 30.0
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class ManifestError(InputError):
    """The manifest is missing or unusable, so nothing is served."""

    code: ClassVar[str] = "manifest_unusable"

    def __init__(self, folder: Path, reason: str, *, hint: str) -> None:
        super().__init__(f"nothing is served from {folder}: {reason}", hint=hint)
        self.reason = reason


class MissingManifest(ManifestError):
    """No tool of this folder was ever admitted."""


class ProposalQuota(InputError):
    """The caller has the maximum number of pending proposals."""

    code: ClassVar[str] = "too_many_proposals"


class Switch(Value):
    """Whether a toolkit is enabled, and which of its methods."""

    enabled: bool = True
    methods: dict[str, bool] = Field(default_factory=dict)


class Manifest(Value):
    """The admission decisions for one folder, by file path relative to it."""

    catalog: str = Field(default_factory=lambda: secrets.token_hex(16))
    """Id of the catalog in the store, independent of the folder's location."""
    files: dict[str, Admission] = Field(default_factory=dict)
    proposed: dict[str, DecisionRecord] = Field(default_factory=dict)
    rejected: dict[str, DecisionRecord] = Field(default_factory=dict)
    enabled: dict[str, bool | Switch] = Field(default_factory=dict)
    """By tool or toolkit; enabled unless listed."""

    def state_of(self, file: str, digest: str) -> FileState:
        """Return the state of a version according to the decisions."""
        decided: dict[FileState, Mapping[str, Admission | DecisionRecord]] = {
            FileState.ADMITTED: self.files,
            FileState.PROPOSED: self.proposed,
            FileState.REJECTED: self.rejected,
        }
        for state, entries in decided.items():
            if file in entries and entries[file].sha256 == digest:
                return state
        return FileState.CHANGED if file in self.files else FileState.NEW

    def differences(self, other: "Manifest") -> set[str]:
        """Return the files with different decisions in another manifest."""
        return (
            _differences(self.files, other.files)
            | _differences(self.proposed, other.proposed)
            | _differences(self.rejected, other.rejected)
        )

    def with_files(self, files: dict[str, Admission], decided: Mapping[str, str]) -> "Manifest":
        """Return a manifest with these admitted files.

        `decided` maps files to the digests that were decided on: their proposals are dropped,
        those of other versions stay.
        """
        return self.model_copy(
            update={
                "files": files,
                "proposed": {k: v for k, v in self.proposed.items() if decided.get(k) != v.sha256},
                "rejected": {k: v for k, v in self.rejected.items() if k not in decided},
            }
        )

    def refuse_proposal(self, file: str, by: str, quota: int) -> None:
        """Refuse a proposal that would replace another caller's, or exceed the caller's quota.

        Raises:
            EditConflict: another caller's proposal for this file is pending.
            ProposalQuota: the caller has `quota` pending proposals.
        """
        pending = self.proposed.get(file)
        if pending is not None and pending.by != by:
            raise EditConflict(
                f"another caller's proposal for {file} waits for a decision",
                hint="choose another name, or wait until a person has decided about it",
            )
        count = sum(1 for key, entry in self.proposed.items() if entry.by == by and key != file)
        if count >= quota:
            raise ProposalQuota(
                f"{count} of your proposals wait for a decision, and {quota} are allowed",
                hint="wait until a person has decided about them; the setting is "
                "proposals_per_caller",
            )


def _differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> set[str]:
    # Most entries are the same object, and comparing entries is slow.
    return {
        file
        for file in ours.keys() | theirs.keys()
        if ours.get(file) is not theirs.get(file) and ours.get(file) != theirs.get(file)
    }


def decode(data: bytes, folder: Path, key: str = "") -> Manifest:
    """Decode the manifest of a folder.

    Raises:
        ManifestError: it is damaged, or its seal is wrong.
    """
    file = folder / MANIFEST
    try:
        content = json.loads(data)
        seal = content.pop("seal")
        if content.pop("format") != _FORMAT:
            raise _unusable(file, "was written by another version of Toolkiln")
        if not hmac.compare_digest(str(seal).encode(), _seal(content, key).encode()):
            raise _unusable(file, _seal_problem(str(seal), key))
        return Manifest.model_validate(content)
    except (
        ValueError, ValidationError, KeyError, AttributeError, TypeError, RecursionError,
    ) as error:  # fmt: skip
        raise _unusable(file, "is damaged") from error


def encode(manifest: Manifest, key: str = "") -> bytes:
    """Encode a manifest as written to disk."""
    content = manifest.model_dump(mode="json", exclude_defaults=True)
    whole = {"format": _FORMAT, **content, "seal": _seal(content, key)}
    return (json.dumps(whole, indent=1) + "\n").encode()


def _seal(content: dict[str, Any], key: str) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    if key:
        return _KEYED + hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
    return "sha256:" + _sha256(text)


def _seal_problem(seal: str, key: str) -> str:
    if seal.startswith(_KEYED) and not key:
        return "is sealed with a key, but the setting manifest_key is empty"
    other_key = ", or it was sealed without this manifest_key" if key else ""
    return "was changed since Toolkiln wrote it" + other_key


def _unusable(file: Path, reason: str) -> ManifestError:
    return ManifestError(
        file.parent,
        f"{file} {reason}",
        hint="restore it from version control or a backup, or review all tools again with "
        f"`toolkiln admit --reset {file.parent}`",
    )


def overruled_records(
    findings: Iterable[Finding], reading: Reading, before: Admission | None, by: str
) -> tuple[Overruled, ...]:
    """Return the records of errors that `by` overrules in an admission.

    If `before` admitted the same version, its records stay.
    """
    folder = Path(reading.path).parent
    found: dict[tuple[str, str, int], Overruled] = {}
    for finding in findings:
        file = os.path.relpath(finding.path or reading.path, folder)
        key = finding.rule, file, finding.line
        found[key] = Overruled(rule=finding.rule, file=file, line=finding.line, by=by)
    if before and before.sha256 == reading.digest:
        found |= {(record.rule, record.file, record.line): record for record in before.overruled}
    return tuple(found[key] for key in sorted(found))


def overruled_note(findings: Iterable[Finding]) -> str:
    """Return the note about overruled errors for history and audit; may be empty."""
    named = dict.fromkeys(f"{finding.rule} (line {finding.line})" for finding in findings)
    return f"overruled: {', '.join(named)}" if named else ""


class _JournalEntry(NamedTuple):
    """The content of the journal, with SHA-256 digests of files."""

    file: str
    before: str | None
    """Digest of the old file; None: it did not exist."""
    after: str | None
    """Digest of the new file; None: it is removed."""
    manifest: str
    """Digest of the new manifest."""


@dataclass(frozen=True)
class Installation:
    """A file to write or remove together with the manifest."""

    file: str
    data: bytes | None
    """None: remove the file."""


@contextmanager
def lock_folder(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Lock a folder against changes by other threads and processes.

    Raises:
        EditConflict: the lock was not released in time.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise EditConflict(
                        f"another process is changing {folder}", hint="try again later"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def commit(folder: Path, manifest: bytes, install: Installation | None = None) -> None:
    """Replace the manifest and, atomically with it, write or remove a file.

    The caller must have the lock.

    Raises:
        OSError: writing failed; the folder is unchanged.
    """
    try:
        if install is not None:
            target = folder / install.file
            if target.is_dir():
                raise InputError(f"{target} is a folder", hint="choose another name")
            after = None if install.data is None else _sha256(install.data)
            entry = _JournalEntry(install.file, _sha256_of(target), after, _sha256(manifest))
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(folder / _JOURNAL, json.dumps(entry._asdict()).encode())
            if install.data is not None:
                _write_temporary(target, install.data)
        _replace(folder / MANIFEST, manifest)
    except BaseException:  # undo after any failure
        recover(folder)
        raise
    with suppress(OSError):  # the change is committed: the next process completes it
        recover(folder)


def needs_recovery(folder: Path) -> bool:
    """Return whether a change is in progress or was interrupted."""
    names = (folder / _JOURNAL, _temporary(folder / _JOURNAL), _temporary(folder / MANIFEST))
    return any(name.exists() for name in names)


def recover(folder: Path) -> None:
    """Complete an interrupted change if its manifest was written, or else discard it.

    The caller must have the lock. A file edited in the meantime is left alone.
    """
    journal = folder / _JOURNAL
    entry = _journal_entry(folder)
    if entry is not None:
        target = folder / entry.file
        written = _temporary(target)
        expected = entry.manifest, entry.before, entry.after
        if tuple(map(_sha256_of, (folder / MANIFEST, target, written))) == expected:
            if entry.after is None:
                target.unlink(missing_ok=True)
            else:
                written.replace(target)
        written.unlink(missing_ok=True)
    for leftover in (_temporary(folder / MANIFEST), _temporary(journal), journal):
        leftover.unlink(missing_ok=True)


def _journal_entry(folder: Path) -> _JournalEntry | None:
    try:
        entry = _JournalEntry(**json.loads((folder / _JOURNAL).read_bytes()))
        parent = (folder / entry.file).parent.resolve()
        return entry if parent.is_relative_to(folder.resolve()) else None
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError):
        return None  # not ours: journals are written atomically


def _replace(file: Path, data: bytes) -> None:
    """Replace a file atomically, even across a power failure."""
    _write_temporary(file, data)
    _temporary(file).replace(file)


def _write_temporary(file: Path, data: bytes) -> None:
    part = _temporary(file)
    with part.open("wb") as handle:
        if file.exists():
            part.chmod(file.stat().st_mode & 0o777)
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _temporary(file: Path) -> Path:
    """Return the temporary name of a file; always the same, so recovery finds it."""
    # A hash, because the file's own name may have the maximum length.
    return file.with_name(f".toolkiln-{_sha256(os.fsencode(file.name))[:16]}.part")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sha256_of(file: Path) -> str | None:
    try:
        return _sha256(file.read_bytes())
    except ValueError:
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


class ManifestFile:
    """Reads and replaces the manifest of one folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._cached: tuple[str, Manifest] | None = None
        """As last read or written, with its digest."""

    def read(self) -> Manifest:
        """Return the current manifest.

        Raises:
            ManifestError: it is missing or unusable.
        """
        data = self._read_bytes()
        digest = _sha256(data)
        cached = self._cached
        if cached is None or cached[0] != digest:
            # Of the same bytes: another process may replace the file at any moment.
            cached = self._cached = digest, decode(data, self._folder, self._key)
        return cached[1]

    def _read_bytes(self) -> bytes:
        file = self._folder / MANIFEST
        try:
            return file.read_bytes()
        except FileNotFoundError:
            raise MissingManifest(
                self._folder,
                f"no tool has been admitted ({MANIFEST} is missing)",
                hint=f"review the tools and admit them with `toolkiln admit {self._folder}`, "
                "or work on them with `toolkiln dev`",
            ) from None
        except OSError as error:
            raise _unusable(file, f"cannot be read: {error.strerror}") from error

    def write(
        self,
        edit: Callable[[Manifest], Manifest],
        install: Installation | None = None,
        *,
        reset: bool = False,
    ) -> Manifest:
        """Replace the manifest by an edited one, together with a file.

        A missing manifest counts as empty; with `reset`, so does an unusable one.

        Raises:
            EditConflict: another process is changing the folder.
            ManifestError: the manifest is unusable.
        """
        with lock_folder(self._folder):
            recover(self._folder)
            try:
                before = self.read()
            except ManifestError as error:
                if not reset and not isinstance(error, MissingManifest):
                    raise
                before = Manifest()
            after = edit(before)
            data = encode(after, self._key)
            commit(self._folder, data, install)
            self._cached = _sha256(data), after
        return after

    def recover(self) -> None:
        """Recover from an interrupted change, unless another process has the lock."""
        if not needs_recovery(self._folder):
            return
        try:
            with lock_folder(self._folder, patience=0):
                recover(self._folder)
        except (EditConflict, OSError):
            return  # locked or read-only: the manifest is valid in any case
