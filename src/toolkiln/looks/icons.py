"""Lucide's icons: their names and their drawings.

They come from the data file of the python-lucide package. Its code is never imported: it
would load much more, and has a drawing for names that do not exist. Without the file no
icon is drawn, and no name called wrong.
"""

import logging
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from toolkiln.looks.colors import paint

_PACKAGE, _FILE = "lucide", "data/lucide-icons.db"
_NAMES = """\
SELECT alias, svg FROM icon_aliases NATURAL JOIN icons UNION ALL SELECT name, svg FROM icons\
"""
_DRAWN_IN = "currentColor"
_LONGEST = 60
"""Characters of a text that names like it are looked for."""
_log = logging.getLogger(__name__)


def svg(name: str, color: str | None = None) -> str | None:
    """The drawing of an icon, in a tool's color or else in that of the text around it.

    None if there is no icon of that name.
    """
    drawing = _drawings().get(name)
    if drawing is None:
        return None
    compact = re.sub(r"\s+", " ", re.sub(r"(?<=>)\s+|\s+(?=/?>)", "", drawing))
    return compact.replace(_DRAWN_IN, (color and paint(color)) or _DRAWN_IN)


def icon_problem(icon: str) -> str | None:
    """Why a text is not the name of an icon, with those probably meant; None if it is one."""
    names = _drawings()
    if icon in names or not names:
        return None
    shown = ascii(icon) if len(icon) <= 80 else f"{icon[:77]!a}…"
    problem = f"{shown} is not the name of a Lucide icon"
    near = " or ".join(map(repr, _near(icon)))
    return f"{problem}; did you mean {near}?" if near else problem


def _near(icon: str) -> list[str]:
    """The name in another spelling, or else names like it."""
    if len(icon) > _LONGEST:
        return []
    stem = re.sub(r"\A(?:lucide|icon)[-:/]?(?=.)|Icon\Z", "", icon, flags=re.IGNORECASE)
    if same := _spellings().get(_plain(stem)):
        return [same]
    return get_close_matches(stem.lower()[:60], _drawings(), 3, 0.75)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _spellings() -> Mapping[str, str]:
    return {_plain(name): name for name in _drawings()}


@cache
def _drawings() -> Mapping[str, str]:
    """All drawings by name, former names too: to read them at once takes milliseconds."""
    found = find_spec(_PACKAGE)
    folders = (found and found.submodule_search_locations) or []
    try:
        file = Path(folders[0], _FILE).as_uri()
        with closing(sqlite3.connect(f"{file}?mode=ro&immutable=1", uri=True)) as connection:
            return dict(connection.execute(_NAMES).fetchall())
    except (IndexError, sqlite3.Error) as error:
        _log.warning("tools are shown without icons: the package python-lucide: %s", error)
        return {}
