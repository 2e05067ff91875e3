"""Versions on disk: the exact bytes that were read, laid out for a sandbox to mount.

A version is its bytes. They are copied when it is first called, below a folder named
after their digest, so that editing the source afterwards changes no call, and a sandbox
sees the tool's own file and helpers and nothing else of their folder.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath

from toolkiln.errors import BackendError
from toolkiln.model import Sources, ToolSpec


class Versions:
    """The folder that holds them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[Path] = set()

    def folder(self, spec: ToolSpec, sources: Callable[[], Sources]) -> Path:
        """Where the files of a version lie; they are written if they do not.

        Raises:
            BackendError: they cannot be written.
        """
        # Of two files with the same bytes each keeps its name.
        name = hashlib.sha256(PurePath(spec.path).name.encode()).hexdigest()[:8]
        target = self._folder / f"{spec.digest}-{name}"
        if target in self._known or target.is_dir():
            self._known.add(target)
            return target
        try:
            # Sandboxes of root read versions as another user, by their digests; none lists them.
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            _write(target, sources())
        except OSError as error:
            raise BackendError(
                f"{target} cannot be written: {error.strerror}",
                hint="set TOOLKILN_STATE to a folder that can be",
            ) from error
        self._known.add(target)
        return target


def _write(target: Path, sources: Sources) -> None:
    """Write beside the target, then rename: nobody ever sees half a version."""
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    try:
        for name, data in sources.items():
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o444)
        for folder, _, _ in os.walk(partial):
            Path(folder).chmod(0o755)  # a sandbox reads it as another user
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else somebody else was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
