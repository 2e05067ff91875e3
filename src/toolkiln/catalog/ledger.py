"""The manifest of a folder as it lies on disk: read once, written by one at a time.

It knows what was last read or written, so that nothing is parsed twice however often
somebody asks. What a manifest says is in `manifest`, how writing cannot be left half done
in `transaction`; what is entered is decided by whoever edits.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from toolkiln.catalog import manifest as manifests
from toolkiln.catalog import transaction
from toolkiln.catalog.manifest import Manifest, ManifestError, MissingManifest
from toolkiln.catalog.transaction import Installation


class Ledger:
    """The manifest of one folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._known: tuple[str | None, Manifest] | None = None
        """As last read or written, with the digest of its bytes."""

    def read(self) -> Manifest:
        """The manifest as it is.

        Raises:
            ManifestError: there is none that can be trusted.
        """
        digest = self._digest()
        known = self._known
        if known is None or known[0] != digest:
            known = self._known = digest, manifests.load(self._folder, self._key)
        return known[1]

    def write(
        self,
        edit: Callable[[Manifest], Manifest],
        install: Installation | None = None,
        *,
        afresh: bool = False,
    ) -> Manifest:
        """Replace the manifest by an edited one, and with it perhaps one file.

        Where there is none, an empty one is edited; with `afresh` also one that cannot be
        trusted is replaced.

        Raises:
            Conflict: somebody else is changing the folder.
            ManifestError: the manifest cannot be trusted.
        """
        with transaction.writing(self._folder):
            transaction.recover(self._folder)
            try:
                before = self.read()
            except ManifestError as error:
                if not afresh and not isinstance(error, MissingManifest):
                    raise
                before = Manifest()
            after = edit(before)
            data = manifests.encode(after, self._key)
            transaction.commit(self._folder, data, install)
            self._known = hashlib.sha256(data).hexdigest(), after
        return after

    def try_to_recover(self) -> None:
        """Bring what somebody left half done to its end, if nobody else is at work."""
        if not transaction.needs_recovery(self._folder):
            return
        try:
            with transaction.writing(self._folder, patience=0):
                transaction.recover(self._folder)
        except (transaction.Conflict, OSError):
            return  # somebody is at work, or this user may only read: the manifest holds

    def _digest(self) -> str | None:
        try:
            return hashlib.sha256((self._folder / manifests.FILE_NAME).read_bytes()).hexdigest()
        except OSError:
            return None
