"""The page's files as they are sent: with their types, and compressed for those who can."""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_SMALL = 500
"""Bytes below which compressing is not worth it."""
_STATIC = "{static}"
_BUNDLED = "vendor/preact.js"
"""Without it nothing of the page can run: nobody has run `make web`."""


@dataclass(frozen=True)
class Asset:
    """One file."""

    content: bytes
    kind: str

    @cached_property
    def compressed(self) -> bytes | None:
        """The same with gzip, unless that is of no use."""
        return gzip.compress(self.content, 9, mtime=0) if len(self.content) > _SMALL else None


@dataclass(frozen=True)
class Assets:
    """All files of the page."""

    version: str
    """Differs whenever one of them does, so that browsers may keep each for ever."""
    files: Mapping[str, Asset]
    """By path, as in `pages/catalog.js`."""
    shell: Asset
    """What every address of the page begins with."""


@cache
def assets() -> Assets:
    """The files that are installed, read once."""
    return assets_of(dict(_found(files(__package__) / "static")))


def assets_of(files_by_path: Mapping[str, bytes]) -> Assets:
    """Such files as a page; one that says what is missing, if that is so."""
    found = dict(files_by_path)
    version = sha256()
    for path, content in sorted(found.items()):
        version.update(b"%s %d\n" % (path.encode(), len(content)) + content)
    name = version.hexdigest()[:12]
    shells = {path: found.pop(path) for path in ("index.html", "incomplete.html")}
    whole = "index.html" if _BUNDLED in found else "incomplete.html"
    shell = shells[whole].decode().replace(_STATIC, f"static/{name}")
    kept = {path: Asset(content, _kind(path)) for path, content in found.items()}
    return Assets(name, kept, Asset(shell.encode(), _TYPES[".html"]))


def _found(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
        elif _kind(entry.name):
            yield prefix + entry.name, entry.read_bytes()


def _kind(name: str) -> str:
    return _TYPES.get(name[name.rfind(".") :], "")
