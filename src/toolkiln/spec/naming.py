"""Names: how tools are shown to people, and what clients do to names, icons and colors.

Each `…_problem` function answers with a sentence for a finding, or None. They look at the
shape of a name only: whether an icon of that name exists is not known here.
"""

import re
from difflib import get_close_matches

_SEPARATORS = re.compile(r"[_\-./:\s]+")
_PORTABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ICON = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_HEX = re.compile(r"#(?:[0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})")
_BARE_HEX = re.compile(r"(?:0x)?([0-9A-Fa-f]{6}|[0-9A-Fa-f]{3})")
_CLASS = re.compile(
    r"(?:[a-z0-9-]+:)*(?:(?:bg|text|border|ring|fill|stroke|from|via|to|accent|outline)-)?"
    r"(?P<name>[a-z]+)(?:-(?:50|[1-9]00|950))?(?:/[0-9]{1,3})?"
)
_TAILWIND = (
    "slate gray zinc neutral stone red orange amber yellow lime green emerald teal cyan sky blue "
    "indigo violet purple fuchsia pink rose black white transparent current inherit"
)
_CSS = """
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
_COLORS = frozenset(f"{_TAILWIND} {_CSS}".split())


def display_name(identifier: str) -> str:
    """The name for people: `SandboxFilesTool` → `Sandbox Files`, `sb_shell_tool` → `Sb Shell`."""
    stem = _SEPARATORS.sub("_", identifier).removesuffix("_tool").removesuffix("Tool")
    words = _words(stem) or _words(identifier)[-1:]
    return " ".join([word[0].title() + word[1:] for word in words]) or identifier or "Tool"


def portable_name(name: str) -> bool:
    """Whether every client and provider takes the name as it is, with its prefix."""
    return _PORTABLE.fullmatch(name) is not None


def accepted_name(name: str) -> bool:
    """Whether a tool may have the name at all, be it mangled by some clients."""
    return _ACCEPTED.fullmatch(name) is not None


def name_problem(name: str) -> str | None:
    """What clients do to a name that is not portable; None if it travels everywhere."""
    if portable_name(name):
        return None
    if not name:
        return "a tool needs a name"
    if not accepted_name(name):
        return f"no client can be relied on to accept {_shown(name)}: {_refusal(name)}"
    effects = [effect for applies, effect in _effects(name) if applies]
    return f"{_shown(name)} does not reach every client as written: {'; '.join(effects)}"


def lucide_icon(icon: str) -> bool:
    """Whether a name has the shape of a Lucide icon's: lower-case words and hyphens."""
    return _ICON.fullmatch(icon) is not None


def icon_problem(icon: str) -> str | None:
    """Why a name cannot be a Lucide icon's, with the one probably meant; None if it can."""
    if lucide_icon(icon):
        return None
    problem = f"{_shown(icon)} is not the name of a Lucide icon: lower-case words and hyphens"
    stem = re.sub(r"\A(?:lucide|icon)[-:/]?(?=.)|Icon\Z", "", icon, flags=re.IGNORECASE)
    parts = [re.sub(r"(?<=[a-z])(?=[0-9])", "-", word.lower(), count=1) for word in _words(stem)]
    guess = "-".join(parts)
    return f"{problem}; did you mean {guess!r}?" if lucide_icon(guess) else problem


def color_problem(color: str) -> str | None:
    """Why a text is not a color, with the one probably meant; None if it is one.

    A color is `#rgb`, `#rrggbb`, a CSS name, or Tailwind classes such as `bg-blue-100`.
    """
    classes = color.split(" ")
    if _HEX.fullmatch(color) or all(_is_color_class(name) for name in classes):
        return None
    problem = f"{_shown(color)} is not a color: #rgb, #rrggbb, a CSS name or a Tailwind class"
    guess = None
    if digits := _BARE_HEX.fullmatch(color):
        guess = f"#{digits[1]}"
    elif len(color) <= 40:
        guess = next(iter(get_close_matches(color.strip().lower(), sorted(_COLORS), 1, 0.7)), None)
    return f"{problem}; did you mean {guess!r}?" if guess else problem


def _words(identifier: str) -> list[str]:
    """The parts of a snake_case, kebab-case or CamelCase name; acronyms and numbers stay whole."""
    words: list[str] = []
    for part in _SEPARATORS.split(identifier):
        start = 0
        for at in range(1, len(part)):
            if part[at].isupper() and (not part[at - 1].isupper() or _starts_word(part, at)):
                words.append(part[start:at])
                start = at
        if part:
            words.append(part[start:])
    return words


def _starts_word(part: str, at: int) -> bool:
    """Whether the last capital of an acronym belongs to the next word, as in `HTTPServer`."""
    after = part[at + 1 : at + 3]
    is_plural = after[:1] == "s" and not after[1:].islower()
    return after[:1].islower() and not is_plural


def _refusal(name: str) -> str:
    odd = sorted(set(re.sub(r"[A-Za-z0-9_-]", "", name)))
    if not odd:
        return f"it has {len(name)} characters, and names end at 64"
    if odd == ["."]:
        return "OpenAI and Anthropic refuse '.', Claude Code, Codex and OpenCode turn it into '_'"
    shown = ", ".join(map(ascii, odd[:5]))
    return f"names have letters A-Z, digits, '_' and '-' only, not {shown}"


def _effects(name: str) -> list[tuple[bool, str]]:
    return [
        (
            len(name) > 40,
            "Gemini CLI cuts the middle out of names over 63 characters, prefix and all",
        ),
        ("-" in name, "Codex turns '-' into '_'"),
        (name[0] in "-0123456789", "Gemini refuses names that start with a digit or '-'"),
        (name[0] == "_", "a leading '_' marks what is private"),
        (
            any("A" <= letter <= "Z" for letter in name),
            "upper-case letters are passed on, but names that differ in case alone get mixed up",
        ),
    ]


def _is_color_class(name: str) -> bool:
    match = _CLASS.fullmatch(name)
    return match is not None and match["name"] in _COLORS


def _shown(text: str) -> str:
    """Quoted, and cut where it is too long to read."""
    return ascii(text) if len(text) <= 80 else f"{text[:77]!a}…"
