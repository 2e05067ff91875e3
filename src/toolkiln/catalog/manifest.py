"""The manifest: the allow-list of a tools folder; nothing else is served.

It is one JSON file, `_manifest.json`, replaced as a whole. A checksum over its content reveals
manual edits and damage; with a key (the setting `manifest_key`), only holders of the key can
write a valid one. `admission` decides about entries; `transaction` replaces the file.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from toolkiln.errors import InputError
from toolkiln.model.base import Value
from toolkiln.model.catalog import Admission, DecisionRecord, FileState, Overruled
from toolkiln.model.source import Finding, Reading

MANIFEST = "_manifest.json"
_FORMAT = 1
_KEYED = "hmac-sha256:"


class ManifestError(InputError):
    """The manifest is missing or unusable, so nothing is served."""

    code: ClassVar[str] = "manifest_unusable"

    def __init__(self, folder: Path, reason: str, *, hint: str) -> None:
        super().__init__(f"nothing is served from {folder}: {reason}", hint=hint)
        self.reason = reason


class MissingManifest(ManifestError):
    """No tool of this folder was ever admitted."""


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


def _differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> set[str]:
    # Most entries are the same object, and comparing entries is slow.
    return {
        file
        for file in ours.keys() | theirs.keys()
        if ours.get(file) is not theirs.get(file) and ours.get(file) != theirs.get(file)
    }


def read_bytes(folder: Path) -> bytes:
    """Return the content of a folder's manifest file.

    Raises:
        MissingManifest: it does not exist.
        ManifestError: it cannot be read.
    """
    file = folder / MANIFEST
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise MissingManifest(
            folder,
            f"no tool has been admitted ({MANIFEST} is missing)",
            hint=f"review the tools and admit them with `toolkiln admit {folder}`, "
            "or work on them with `toolkiln dev`",
        ) from None
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error


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
    return "sha256:" + hashlib.sha256(text).hexdigest()


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


def note(findings: Iterable[Finding]) -> str:
    """Return the note about overruled errors for history and audit; may be empty."""
    named = dict.fromkeys(f"{finding.rule} (line {finding.line})" for finding in findings)
    return f"overruled: {', '.join(named)}" if named else ""
