"""Icons and colors of tools: names, SVG and CSS. Layout is up to the surfaces."""

import logging
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_HEX = re.compile(r"#(?:[0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})")
_BARE_HEX = re.compile(r"(?:0x)?([0-9A-Fa-f]{6}|[0-9A-Fa-f]{3})")
_CLASS = re.compile(
    r"(?:[a-z0-9-]+:)*(?:(?:bg|text|border|ring|fill|stroke|from|via|to|accent|outline)-)?"
    r"(?P<name>[a-z]+)(?:-(?:50|[1-9]00|950))?(?:/[0-9]{1,3})?"
)
_TAILWIND = {
    "slate": "#64748b", "gray": "#6b7280", "zinc": "#71717a", "neutral": "#737373",
    "stone": "#78716c", "red": "#ef4444", "orange": "#f97316", "amber": "#f59e0b",
    "yellow": "#eab308", "lime": "#84cc16", "green": "#22c55e", "emerald": "#10b981",
    "teal": "#14b8a6", "cyan": "#06b6d4", "sky": "#0ea5e9", "blue": "#3b82f6",
    "indigo": "#6366f1", "violet": "#8b5cf6", "purple": "#a855f7", "fuchsia": "#d946ef",
    "pink": "#ec4899", "rose": "#f43f5e",
}  # fmt: skip
"""Tailwind hues in the middle shade; lines in the lightest or darkest are hard to see."""
_NO_COLORS = frozenset({"transparent", "current", "inherit"})
_CSS = """
black white
aliceblue antiquewhite aqua aquamarine azure beige bisque blanchedalmond blueviolet brown
burlywood cadetblue chartreuse chocolate coral cornflowerblue cornsilk crimson darkblue darkcyan
darkgoldenrod darkgray darkgreen darkgrey darkkhaki darkmagenta darkolivegreen darkorange
darkorchid darkred darksalmon darkseagreen darkslateblue darkslategray darkslategrey
darkturquoise darkviolet deeppink deepskyblue dimgray dimgrey dodgerblue firebrick floralwhite
forestgreen gainsboro ghostwhite gold goldenrod greenyellow grey honeydew hotpink indianred ivory
khaki lavender lavenderblush lawngreen lemonchiffon lightblue lightcoral lightcyan
lightgoldenrodyellow lightgray lightgreen lightgrey lightpink lightsalmon lightseagreen
lightskyblue lightslategray lightslategrey lightsteelblue lightyellow limegreen linen magenta
maroon mediumaquamarine mediumblue mediumorchid mediumpurple mediumseagreen mediumslateblue
mediumspringgreen mediumturquoise mediumvioletred midnightblue mintcream mistyrose moccasin
navajowhite navy oldlace olive olivedrab orangered orchid palegoldenrod palegreen paleturquoise
palevioletred papayawhip peachpuff peru plum powderblue rebeccapurple rosybrown royalblue
saddlebrown salmon sandybrown seagreen seashell sienna silver skyblue slateblue slategray
slategrey snow springgreen steelblue tan thistle tomato turquoise wheat whitesmoke yellowgreen
"""
_COLORS = frozenset({*_TAILWIND, *_NO_COLORS, *_CSS.split()})


def color_problem(color: str) -> str | None:
    """Return why a string is not a color, with a suggestion; None if it is one."""
    if _HEX.fullmatch(color) or all(_named(name) for name in color.split(" ")):
        return None
    problem = f"{quoted(color)} is not a color: #rgb, #rrggbb, a CSS name or a Tailwind class"
    guess = None
    if digits := _BARE_HEX.fullmatch(color):
        guess = f"#{digits[1]}"
    elif len(color) <= 40:
        guess = next(iter(get_close_matches(color.strip().lower(), sorted(_COLORS), 1, 0.7)), None)
    return f"{problem}; did you mean {guess!r}?" if guess else problem


def quoted(text: str) -> str:
    """Return the beginning of a text for messages, in ASCII."""
    return ascii(text) if len(text) <= 80 else f"{text[:77]!a}…"


def paint(color: str) -> str | None:
    """Return the CSS color for lines, if any; of several Tailwind classes, the first counts."""
    if _HEX.fullmatch(color):
        return color
    name = _named(color.partition(" ")[0])
    return None if name is None or name in _NO_COLORS else _TAILWIND.get(name, name)


def _named(text: str) -> str | None:
    match = _CLASS.fullmatch(text)
    return match["name"] if match and match["name"] in _COLORS else None


_PACKAGE, _FILE = "lucide", "data/lucide-icons.db"
_NAMES = """\
SELECT alias, svg FROM icon_aliases NATURAL JOIN icons UNION ALL SELECT name, svg FROM icons\
"""
_TEXT_COLOR = "currentColor"
_MAX_NAME = 60
_COMPONENT = re.compile(r"(?:Lucide(?=[A-Z]))?(?P<name>[A-Z][a-z0-9][A-Za-z0-9]{0,50}?)(?:Icon)?")
FALLBACK_ICON = "wrench"
"""The icon of tools whose own is unknown."""
_log = logging.getLogger(__name__)


def svg(name: str, color: str | None = None) -> str | None:
    """Return the SVG of an icon, by default in the color of the text; None if unknown."""
    drawing = _drawings().get(name)
    if drawing is None:
        return None
    compact = re.sub(r"\s+", " ", re.sub(r"(?<=>)\s+|\s+(?=/?>)", "", drawing))
    return compact.replace(_TEXT_COLOR, (color and paint(color)) or _TEXT_COLOR)


def icon_name(icon: str) -> str | None:
    """Return the name of an icon as Lucide writes it, if it is known; React writes `FolderOpen`."""
    names = _drawings()
    if icon in names or not names:
        return icon
    component = _COMPONENT.fullmatch(icon)
    return _spellings().get(_plain(component["name"])) if component else None


def icon_problem(icon: str) -> str | None:
    """Return why a string is not the name of an icon, with suggestions; None if it is one."""
    if icon_name(icon) is not None:
        return None
    problem = f"{quoted(icon)} is not the name of a Lucide icon"
    near = " or ".join(map(repr, _near(icon)))
    return f"{problem}; did you mean {near}?" if near else problem


def _near(icon: str) -> list[str]:
    if len(icon) > _MAX_NAME:
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
    """Load all SVGs by name and former name, which takes milliseconds."""
    spec = find_spec(_PACKAGE)
    folders = (spec and spec.submodule_search_locations) or []
    try:
        file = Path(folders[0], _FILE).as_uri()
        with closing(sqlite3.connect(f"{file}?mode=ro&immutable=1", uri=True)) as connection:
            return dict(connection.execute(_NAMES).fetchall())
    except (IndexError, sqlite3.Error) as error:
        _log.warning("tools have no icons: cannot read the package python-lucide: %s", error)
        return {}
