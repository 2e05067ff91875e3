"""The manifest: the allow-list of a tools folder, and the only truth about what is served.

It is one JSON file, `_manifest.json`, replaced as a whole. A checksum over its content
tells when somebody edited it by hand or a disk damaged it; with a key (the setting
`manifest_key`) nobody without the key can write one that is accepted. Who decides what is
entered is not decided here, and how it is replaced is `transaction`'s business.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from toolkiln.errors import InputError
from toolkiln.model import Admission, FileState, Refusal, Value

FILE_NAME = "_manifest.json"
_FORMAT = 1
_KEYED = "hmac-sha256:"


class ManifestError(InputError):
    """There is no manifest that can be trusted, so that nothing is served."""

    code: ClassVar[str] = "manifest_unusable"

    def __init__(self, folder: Path, reason: str, *, hint: str) -> None:
        super().__init__(f"nothing is served from {folder}: {reason}", hint=hint)
        self.reason = reason


class MissingManifest(ManifestError):
    """Nothing was ever admitted in this folder."""


class Switch(Value):
    """Whether a tool or toolkit is offered, and which of its methods."""

    enabled: bool = True
    methods: dict[str, bool] = Field(default_factory=dict)


class Manifest(Value):
    """What may be served from one folder; files by their paths below it."""

    catalog: str = Field(default_factory=lambda: secrets.token_hex(16))
    """Names the catalog in the store, wherever the folder lies."""
    files: dict[str, Admission] = Field(default_factory=dict)
    proposed: dict[str, Refusal] = Field(default_factory=dict)
    rejected: dict[str, Refusal] = Field(default_factory=dict)
    enabled: dict[str, bool | Switch] = Field(default_factory=dict)
    """By tool or toolkit; what is not named is enabled."""

    def state_of(self, file: str, digest: str) -> FileState:
        """How a version of a file stands to what was decided."""
        decided: dict[FileState, Mapping[str, Admission | Refusal]] = {
            FileState.ADMITTED: self.files,
            FileState.PROPOSED: self.proposed,
            FileState.REJECTED: self.rejected,
        }
        for state, entries in decided.items():
            if file in entries and entries[file].sha256 == digest:
                return state
        return FileState.CHANGED if file in self.files else FileState.NEW

    def differences(self, other: "Manifest") -> set[str]:
        """The files about which another manifest has other decisions."""
        return (
            _differing(self.files, other.files)
            | _differing(self.proposed, other.proposed)
            | _differing(self.rejected, other.rejected)
        )

    def with_files(self, files: dict[str, Admission], decided: Mapping[str, str]) -> "Manifest":
        """Return the same with these files on the list.

        `decided` are the digests of the files that were decided upon: these no longer wait. A
        proposal of another version of such a file still does.
        """
        return self.model_copy(
            update={
                "files": files,
                "proposed": {k: v for k, v in self.proposed.items() if decided.get(k) != v.sha256},
                "rejected": {k: v for k, v in self.rejected.items() if k not in decided},
            }
        )


def _differing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> set[str]:
    # Most entries are the same object, and comparing two takes long.
    return {
        file
        for file in ours.keys() | theirs.keys()
        if ours.get(file) is not theirs.get(file) and ours.get(file) != theirs.get(file)
    }


def load(folder: Path, key: str = "") -> Manifest:
    """The manifest of a folder.

    Raises:
        MissingManifest: there is none.
        ManifestError: it cannot be read, or is not what was written.
    """
    file = folder / FILE_NAME
    try:
        content = json.loads(file.read_bytes())
        seal = content.pop("seal")
        if content.pop("format") != _FORMAT:
            raise _unusable(file, "was written by another version of Toolkiln")
        if not hmac.compare_digest(str(seal).encode(), _seal(content, key).encode()):
            raise _unusable(file, _suspicion(str(seal), key))
        return Manifest.model_validate(content)
    except FileNotFoundError:
        raise MissingManifest(
            folder,
            f"nobody has admitted anything ({FILE_NAME} is missing)",
            hint=f"look at the tools and admit them with `toolkiln admit {folder}`, "
            "or work on them with `toolkiln dev`",
        ) from None
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error
    except (
        ValueError, ValidationError, KeyError, AttributeError, TypeError, RecursionError,
    ) as error:  # fmt: skip
        raise _unusable(file, "is damaged") from error


def encode(manifest: Manifest, key: str = "") -> bytes:
    """The manifest as it is written to disk."""
    content = manifest.model_dump(mode="json", exclude_defaults=True)
    whole = {"format": _FORMAT, **content, "seal": _seal(content, key)}
    return (json.dumps(whole, indent=1) + "\n").encode()


def _seal(content: dict[str, Any], key: str) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    if key:
        return _KEYED + hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
    return "sha256:" + hashlib.sha256(text).hexdigest()


def _suspicion(seal: str, key: str) -> str:
    if seal.startswith(_KEYED) and not key:
        return "is sealed with a key, and the setting manifest_key is empty"
    with_another = ", or it was sealed without this manifest_key" if key else ""
    return "is not what Toolkiln wrote: somebody changed it" + with_another


def _unusable(file: Path, reason: str) -> ManifestError:
    return ManifestError(
        file.parent,
        f"{file} {reason}",
        hint="put the right one back (from version control or a backup), or look at every tool "
        f"again with `toolkiln admit --afresh {file.parent}`",
    )
