"""Names of tools as every client takes them: `^[a-z][a-z0-9_]{0,39}$`, and the way back.

A name that has this form stays. Any other becomes one that ends in a digest of the
original, so that no tool is renamed because another one comes or goes. A name that only
looks as if it ended in such a digest gets one of its own: nobody can take another's.
"""

import re
from collections.abc import Iterable
from hashlib import sha256

_FINE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LOOKS_MADE = re.compile(r".*_[0-9a-f]{12}")
_LONGEST = 40


def wire_name(name: str) -> str:
    """The name that clients are told."""
    if _FINE.fullmatch(name) and not _LOOKS_MADE.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    stem = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    stem = stem if stem[:1].isalpha() else f"tool_{stem}"
    return f"{stem[: _LONGEST - len(digest) - 1].rstrip('_')}_{digest}"


def originals(names: Iterable[str]) -> dict[str, str]:
    """The tools that clients know by another name, by that name."""
    return {made: name for name in names if (made := wire_name(name)) != name}
