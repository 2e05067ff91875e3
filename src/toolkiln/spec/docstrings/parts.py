"""The inside of a docstring's sections: margins, items with a name, types in front of prose.

Pure functions on text. Where a section starts and ends, and of which kind it is, is known
to `docstrings` alone.
"""

import re
from collections.abc import Iterable

_MARGIN = re.compile(r"\n( *)(?=[^ \n])")
_BLANK_LINE = re.compile(r"\n *\n")
_EMPTY_LINES = re.compile(r"\s*\n")

_VARIABLE = r"(?:\\?\*){0,2}`?[^\W\d]\w*`?\*{0,2}"
_BULLET = r"(?:[-*+•][ ]+)?"
_DASH = r"[ ]+(?:--?|–|—)[ ]+"
_PARAMETER = rf"""
    {_BULLET}(?P<names>{_VARIABLE}(?:[ ]*,[ ]*{_VARIABLE})*)
    (?:[ ]*\(.*?\)(?=[ ]*(?:$|:|[-–—])))?
    (?:[ ]*:(?!/)[ ]*|{_DASH}"""
PARAMETER = re.compile(rf"{_PARAMETER})", re.VERBOSE)
"""`amount (float): …`, `*args: …`, `x, y: …`, `- name - …`."""
NUMPY_PARAMETER = re.compile(rf"{_PARAMETER}|[ ]*$)", re.VERBOSE)
"""The same, where a name may stand alone and a type behind it: `x, y : int`."""
EXCEPTION = re.compile(
    rf"""
    {_BULLET}(?::\w+:)?`*~?
    (?P<names>[^\W\d]\w*(?:(?:\.|,[ ]?)[^\W\d]\w*)*)`*
    (?:[ ]*:[ ]*|{_DASH}|[ ]+(?=(?:if|when|on|for)\b)|[ ]*$)
    """,
    re.VERBOSE,
)
"""`ValueError: …`, `ValueError if …`, `OSError, ValueError`."""

_TYPE = r"""(?:
    (?:str|int|float|bool|bytes|bytearray|complex|list|dict|tuple|set|frozenset|object|type|None
    |string|integer|number|boolean|array|optional|Any|Optional|Union|List|Dict|Tuple|Set|Type
    |Iterable|Iterator|Generator|AsyncIterator|AsyncGenerator|Sequence|Mapping|Callable|Literal
    |Path|Decimal|UUID|datetime|date|time|timedelta)\b
    |\w+(?:\.\w+)+|\w+(?=\[)|(?:[A-Z][a-z0-9]+){2,}
    )(?:\[.*\])?"""
_TYPES = re.compile(rf"[{{(]?{_TYPE}(?:(?:[ ]*[|,][ ]*|[ ](?:or|of)[ ]){_TYPE})*[)}}]?", re.VERBOSE)


def clean(docstring: str) -> str:
    """As `inspect.cleandoc`, but the same under every Python and with Unix line ends."""
    if "\r" in docstring:
        docstring = docstring.replace("\r\n", "\n").replace("\r", "\n")
    text = docstring.expandtabs().lstrip(" ")
    margin = min(_MARGIN.findall(text), default="")
    if margin:
        text = text.replace(f"\n{margin}", "\n")
    return trim(text)


def trim(text: str) -> str:
    """Without empty lines above and white space below; the first line keeps its indentation."""
    text = text.rstrip()
    if text[:1].isspace() and (above := _EMPTY_LINES.match(text)):
        return text[above.end() :]
    return text


def dedent(text: str) -> str:
    """Trimmed, with the indentation that all lines share taken away."""
    text = trim(text)
    if "\n" not in text:
        return text.lstrip(" ")
    text = f"\n{text}"
    return text.replace(f"\n{min(_MARGIN.findall(text))}", "\n")[1:]


def hang(first: str, below: str) -> str:
    """A first line and, from its line break on, what hangs below it, however deep."""
    text = dedent(below) if below else ""
    if not first or not text:
        return first or text
    return f"{first}\n\n{text}" if _BLANK_LINE.match(below) else f"{first}\n{text}"


def paragraphs(parts: Iterable[str]) -> str:
    """The parts that are not empty, a blank line between them."""
    return "\n\n".join([part for part in map(trim, parts) if part])


def items(body: str, pattern: re.Pattern[str]) -> tuple[list[tuple[str, str]], str]:
    """The (names, text) pairs of a section, and what belongs to none of them.

    An item starts at the indentation of the first one or left of it. Deeper lines belong to
    the item above, and so do lines beside it unless a blank line parts them from it.
    """
    found: list[tuple[str, str, list[str]]] = []
    into = stray = []  # type: list[str]
    base = -1
    after_blank = False
    for line in trim(body).split("\n"):
        bare = line.lstrip(" ")
        if bare:
            depth = len(line) - len(bare)
            if base < 0:
                base = depth
            if depth <= base:
                if match := pattern.match(bare):
                    into = []
                    found.append((match["names"], bare[match.end() :].rstrip(), into))
                    continue
                if after_blank and into is not stray:
                    into = stray
                    into.append("")
        after_blank = not bare
        into.append(line)
    typed = pattern is NUMPY_PARAMETER
    described = [
        (names, _described(first, "\n".join(["", *below]), typed) if below or typed else first)
        for names, first, below in found
    ]
    return described, dedent("\n".join(stray)) if stray else ""


def _described(first: str, below: str, typed: bool) -> str:
    """The text of an item without the type that may stand in its first line."""
    is_prose = (first[:1].isupper() and " " in first) or first.endswith(".")
    if typed and not is_prose:
        return dedent(below)
    if is_type(first.partition(",")[0]) and not below.isspace():
        return dedent(below)
    return hang(first, below)


def is_type(text: str) -> bool:
    """Whether a text reads as a type rather than as a word of prose; in doubt it does not."""
    return _TYPES.fullmatch(text) is not None


def returned(first: str, below: str, underlined: bool) -> str:
    """What is returned, without the type in front of it; `underlined` sections put it above."""
    whole = hang(first, below)
    if not first:
        first, line_break, below = whole.partition("\n")
        below = line_break + below
    if underlined:
        entries = _entries(whole)
        if entries and all(text for _, text in entries):
            if len(entries) == 1:
                return entries[0][1]
            return "\n".join(f"{head.partition(' : ')[0]}: {text}" for head, text in entries)
    head, mark, text = first.partition(": ")
    if mark and is_type(head.rstrip()):
        return hang(text.strip(), below)
    if below.startswith("\n ") and is_type(first.rstrip(": ")):
        return dedent(below)
    return whole


def _entries(body: str) -> list[tuple[str, str]]:
    """The lines of a NumPy section that are not indented, each with what is indented below."""
    entries: list[tuple[str, list[str]]] = []
    for line in body.split("\n"):
        if entries and (line[:1] in ("", " ")):
            entries[-1][1].append(line)
        else:
            entries.append((line, []))
    return [(head, dedent("\n".join(below))) for head, below in entries]
