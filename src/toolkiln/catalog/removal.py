"""Removal: whether a tool's file may leave a folder, and the manifest without it.

Nothing may be lost by it: the version that goes is in the archive, and the file on disk is
that version or one that was. Carrying it out, all or nothing, is for `admission`.
"""

from typing import ClassVar

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.manifest import Manifest
from toolkiln.catalog.transaction import EditConflict
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model.catalog import ServedVersion


class RemovesOtherTools(EditConflict):
    """Other tools of the same file would be removed too, without consent."""

    code: ClassVar[str] = "takes_others"


class StaleVersion(EditConflict):
    """The version that the request names is no longer served."""

    code: ClassVar[str] = "outdated"


def removable(
    catalog: Catalog, tool: str, digest: str | None, *, with_others: bool
) -> tuple[ServedVersion, bytes | None]:
    """What goes with a tool, and what its file holds.

    Raises:
        UnknownTool: no file serves one of that name.
        Outdated: another version than `digest` is served.
        TakesOthers: it is not the only tool of its file.
        Conflict: the file has changes that were not admitted.
        InputError: it is a core tool, others import its file, or it could not be brought back.
    """
    snapshot = catalog.snapshot
    served = snapshot.served.get(tool)
    if served is None:
        raise UnknownTool(tool, snapshot.served)
    file = catalog.root / served.file
    if served.dev:
        raise EditConflict(
            f"{served.file} has unadmitted changes",
            hint="admit or undo them, then remove the tool",
        )
    refuse_outdated(tool, served.read.digest, digest)
    for spec in served.reading.tools:
        if spec.cannot_be_disabled:
            raise InputError(
                f"{spec.name} is a core tool and cannot be removed",
                hint="its author marked it with is_core=True",
            )
    others = [name for name in served.read.names if name != tool]
    if others and not with_others:
        raise RemovesOtherTools(
            f"{served.file} has other tools, which would go too: {', '.join(others)}",
            hint="say that they may go, or write the file without this one",
        )
    if file == catalog.folder.place:
        raise InputError(f"{file} is all that is served", hint="remove the file itself")
    if users := sorted(catalog.folder.users(served.file)):
        raise InputError(
            f"{', '.join(users)} imports {served.file}", hint="change or remove that first"
        )
    if catalog.version_sources(served.read.digest, served.file) is None:
        raise InputError(
            f"the version of {served.file} is not in the store, so it could not be restored",
            hint="admit it again, or restore the store from a backup",
        )
    return served, _held(catalog, served)


def refuse_outdated(tool: str, served: str | None, wanted: str | None) -> None:
    """Raise Outdated unless the version that is wanted, if one is, is the one served."""
    if wanted is not None and served != wanted:
        is_at = f"is at version {served}" if served else "is not served"
        raise StaleVersion(f"{tool} {is_at}", hint="look at the current version, then try again")


def without(manifest: Manifest, file: str) -> Manifest:
    """A manifest that does not list a file."""
    files = {key: entry for key, entry in manifest.files.items() if key != file}
    return manifest.with_files(files, decided={file: manifest.files[file].sha256})


def _held(catalog: Catalog, served: ServedVersion) -> bytes | None:
    """What the file holds, which is in some version of it."""
    read = catalog.folder.read(served.file)
    if read is None:
        return None
    own = next(iter(read.sources.values()), None)
    kept = catalog.archive.history(catalog.manifest.catalog, served.file)
    if own is None or read.digest not in {version.digest for version in kept}:
        raise EditConflict(
            f"{served.file} has unadmitted changes",
            hint="admit them, or undo them, then remove it",
        )
    return own
