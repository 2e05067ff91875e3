"""Colors: which texts are one, and what a browser paints for them.

A color is `#rgb`, `#rrggbb`, a CSS name, or Tailwind classes such as `bg-blue-100`.
"""

import re
from difflib import get_close_matches

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
"""Its hues, each in the middle shade: lines of the palest or darkest would hardly be seen."""
_NO_HUES = frozenset({"transparent", "current", "inherit"})
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
_COLORS = frozenset({*_TAILWIND, *_NO_HUES, *_CSS.split()})


def color_problem(color: str) -> str | None:
    """Why a text is not a color, with the one probably meant; None if it is one."""
    if _HEX.fullmatch(color) or all(_named(name) for name in color.split(" ")):
        return None
    shown = ascii(color) if len(color) <= 80 else f"{color[:77]!a}…"
    problem = f"{shown} is not a color: #rgb, #rrggbb, a CSS name or a Tailwind class"
    guess = None
    if digits := _BARE_HEX.fullmatch(color):
        guess = f"#{digits[1]}"
    elif len(color) <= 40:
        guess = next(iter(get_close_matches(color.strip().lower(), sorted(_COLORS), 1, 0.7)), None)
    return f"{problem}; did you mean {guess!r}?" if guess else problem


def paint(color: str) -> str | None:
    """The color that a browser draws lines in; None if there is none in it.

    Of Tailwind classes the first counts, by its hue.
    """
    if _HEX.fullmatch(color):
        return color
    name = _named(color.partition(" ")[0])
    return None if name is None or name in _NO_HUES else _TAILWIND.get(name, name)


def _named(text: str) -> str | None:
    """The color that a CSS name or a Tailwind class names."""
    match = _CLASS.fullmatch(text)
    return match["name"] if match and match["name"] in _COLORS else None
