"""Docstrings → `Docstring`. Google, NumPy, Sphinx and Markdown styles may be mixed.

It needs only the standard library: `BaseTool.get_detailed_description` runs it in the sandbox.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

_MARGIN = re.compile(r"\n( *)(?=[^ \n])")
_BLANK_LINE = re.compile(r"\n *\n")
_EMPTY_LINES = re.compile(r"\s*\n")

_VARIABLE = r"(?:\\?\*){0,2}`?[^\W\d]\w*`?\*{0,2}"
_BULLET = r"(?:[-*+•][ ]+)?"
_DASH = r"[ ]+(?:--?|–|—)[ ]+"
_FIELD = r"(?:[:@](?:param|parameter|arg|argument|key|keyword)[ ]+(?:[^\s:]+[ ]+)?)?"
_PARAMETER = rf"""
    {_BULLET}{_FIELD}(?P<names>{_VARIABLE}(?:[ ]*,[ ]*{_VARIABLE})*)
    (?:[ ]*\(.*?\)(?=[ ]*(?:$|:|[-–—])))?
    (?:[ ]*:(?!/)[ ]*|{_DASH}"""
_PARAMETER_ITEM = re.compile(rf"{_PARAMETER})", re.VERBOSE)
"""`amount (float): …`, `*args: …`, `x, y: …`, `- name - …`, `:param x: …`."""
_NUMPY_ITEM = re.compile(rf"{_PARAMETER}|[ ]*$)", re.VERBOSE)
"""The same, but the text after a name is its type and may be missing: `x, y : int`."""
_LISTED_ITEM = re.compile(
    rf"""
    {_BULLET}(?P<names>-{{0,2}}[^\W\d][\w-]*)
    (?:[ ]*\(.*?\)(?=[ ]*(?:$|:|[-–—])))?
    (?:[ ]*:(?!/)[ ]*|{_DASH})
    """,
    re.VERBOSE,
)
"""A key of a dict of arguments, which may be called `-A`."""
_EXCEPTION_ITEM = re.compile(
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


def _clean(docstring: str) -> str:
    """Clean like `inspect.cleandoc`, but the same in every Python version."""
    if "\r" in docstring:
        docstring = docstring.replace("\r\n", "\n").replace("\r", "\n")
    text = docstring.expandtabs().lstrip(" ")
    margin = min(_MARGIN.findall(text), default="")
    if margin:
        text = text.replace(f"\n{margin}", "\n")
    return _trim(text)


def _trim(text: str) -> str:
    """Strip leading empty lines and trailing whitespace; keep the first line's indentation."""
    text = text.rstrip()
    if text[:1].isspace() and (empty_lines := _EMPTY_LINES.match(text)):
        return text[empty_lines.end() :]
    return text


def _dedent(text: str) -> str:
    text = _trim(text)
    if "\n" not in text:
        return text.lstrip(" ")
    text = f"\n{text}"
    return text.replace(f"\n{min(_MARGIN.findall(text))}", "\n")[1:]


def _join(first: str, below: str) -> str:
    """Join a first line with the indented lines below it."""
    text = _dedent(below) if below else ""
    if not first or not text:
        return first or text
    return f"{first}\n\n{text}" if _BLANK_LINE.match(below) else f"{first}\n{text}"


def _paragraphs(parts: Iterable[str]) -> str:
    return "\n\n".join([part for part in map(_trim, parts) if part])


def _items(body: str, pattern: re.Pattern[str]) -> tuple[list[tuple[str, str]], str]:
    """Return the (names, text) items of a section, and the text that belongs to none.

    An item starts at the indentation of the first one or left of it. Deeper lines belong to
    the item above, and so do lines at its indentation unless a blank line separates them.
    """
    found: list[tuple[str, str, list[str]]] = []
    current = stray = []  # type: list[str]
    base = -1
    after_blank = False
    for line in _trim(body).split("\n"):
        stripped = line.lstrip(" ")
        if stripped:
            depth = len(line) - len(stripped)
            if base < 0:
                base = depth
            if depth <= base:
                if match := pattern.match(stripped):
                    current = []
                    found.append((match["names"], stripped[match.end() :].rstrip(), current))
                    continue
                if after_blank and current is not stray:
                    current = stray
                    current.append("")
        after_blank = not stripped
        current.append(line)
    typed = pattern is _NUMPY_ITEM
    items = [
        (names, _item_text(first, "\n".join(["", *below]), typed) if below or typed else first)
        for names, first, below in found
    ]
    return items, _dedent("\n".join(stray)) if stray else ""


def _item_text(first: str, below: str, typed: bool) -> str:
    is_prose = (first[:1].isupper() and " " in first) or first.endswith(".")
    if typed and not is_prose:
        return _dedent(below)
    if _is_type(first.partition(",")[0]) and not below.isspace():
        return _dedent(below)
    return _join(first, below)


def _is_type(text: str) -> bool:
    return _TYPES.fullmatch(text) is not None


def _returns_text(first: str, below: str, underlined: bool) -> str:
    """Return the text of a returns section without its type; NumPy puts the type on top."""
    whole = _join(first, below)
    if not first:
        first, line_break, below = whole.partition("\n")
        below = line_break + below
    if underlined:
        entries = _entries(whole)
        if entries and all(text for _, text in entries):
            if len(entries) == 1:
                return entries[0][1]
            return "\n".join(f"{head.partition(' : ')[0]}: {text}" for head, text in entries)
    head, colon, text = first.partition(": ")
    if colon and _is_type(head.rstrip()):
        return _join(text.strip(), below)
    if below.startswith("\n ") and _is_type(first.rstrip(": ")):
        return _dedent(below)
    return whole


def _entries(body: str) -> list[tuple[str, str]]:
    """Return the unindented lines of a NumPy section, each with the indented text below it."""
    entries: list[tuple[str, list[str]]] = []
    for line in body.split("\n"):
        if entries and (line[:1] in ("", " ")):
            entries[-1][1].append(line)
        else:
            entries.append((line, []))
    return [(head, _dedent("\n".join(below))) for head, below in entries]


Kind = Literal["parameters", "returns", "raises", "examples", "free", "type"]
"""The kind of a section. Free sections keep their title; types are dropped in favour of
annotations. Not an enum: looking up its members took a tenth of the time.
"""


def _by_word(words: dict[Kind, str]) -> dict[str, Kind]:
    return {word: kind for kind, group in words.items() for word in group.split(", ")}


_TITLES = _by_word(
    {
        "parameters": "args, arguments, params, parameters, kwargs, keyword args, "
        "keyword arguments, keyword parameters, other args, other arguments, other params, "
        "other parameters",
        "returns": "returns, return, yields, yield",
        "raises": "raises, raise, exceptions, throws",
        "examples": "examples, example, example usage, usage example, usage examples",
        "free": "note, notes, important, important note, important notes, critical, warning, "
        "warnings, caution, danger, attention, hint, tip, tips, see also, references, todo, "
        "attributes, methods, warns, receives, deprecated, limitations, best practices, usage, "
        "usage notes, use case, use cases, use when, benefits, difference, differences, "
        "key differences, not for",
    }
)
"""`Args:`, `**Examples**`, `Returns` above a line of dashes; in lower case."""

_FIELDS = _by_word(
    {
        "parameters": "param, parameter, arg, argument, key, keyword, kwarg",
        "returns": "return, returns, yield, yields",
        "raises": "raise, raises, except, exception, throws",
        "free": "note, warning, important, attention, see, todo, deprecated",
        "type": "type, rtype, ytype",
    }
)
"""`:param x:` and `@param x:`."""

_DIRECTIVES = _by_word(
    {
        "free": "note, warning, important, caution, danger, attention, error, hint, tip, todo, "
        "admonition, seealso, deprecated, versionadded, versionchanged",
        "examples": "code, code-block, sourcecode, doctest, testcode",
    }
)
"""`.. note::`."""

_LONG_TITLE = re.compile(
    r"(?:when (?:not )?to use|use this(?: tool)? (?:when|for|if)|why use"
    r"|(?:key )?differences? (?:from|to|between|with))(?: [\w`'.-]+){0,4}"
)
_ORNAMENT = " !⚠️❗🚨💡📝"


def _kind_of(title: str) -> Kind | None:
    words = title.strip(_ORNAMENT).lower()
    return _TITLES.get(words) or ("free" if _LONG_TITLE.fullmatch(words) else None)


def _title_of(word: str) -> str:
    titles = {"seealso": "See Also", "see": "See Also", "versionadded": "Added"}
    return titles.get(word) or word.removeprefix("version").capitalize()


class Docstring(NamedTuple):
    """The parts of a docstring; pairs are a title or name and its text."""

    text: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    returns: str = ""
    raises: tuple[tuple[str, str], ...] = ()
    examples: str = ""


def parse(docstring: str) -> Docstring:
    """Parse a docstring as it appears in the source; every text is valid."""
    return _Parser(f"\n{_clean(docstring)}\n").parse()


def listed_parameters(text: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters that the description of another one lists."""
    return tuple(_items(text, _LISTED_ITEM)[0])


# Every pattern starts at the line break above its match, so a search only stops at line
# breaks. Character classes that exclude their successor keep all patterns linear (ADR 7).
_HEADER = re.compile(
    rf"""
    \n(?P<indent>[ ]*)
    (?:
        (?P<title>[A-Za-z][^:\n]*)::?(?=[ \n])
      | (?P<bold>\*\*[^*\n]+\*\*:?)
      | [:@](?P<field>(?:{"|".join(_FIELDS)})(?=[ :])[^:\n]*):(?=[ \n])
      | \.\.[ ]+(?P<directive>[a-z-]+)::
      | (?P<doctest>>>>[ ])
      | (?P<fence>```|~~~)
      | (?P<underline>-{{3,}}|={{3,}})[ ]*(?=\n)
    )[^\n]*
    """,
    re.VERBOSE,
)
_LINE = re.compile(r"\n *[^ \n][^\n]*")
_LINES = re.compile(rf"(?:{_LINE.pattern})*")
_BLANKS = re.compile(r"(?:\n *(?=\n))*")
_UNDERLINE = re.compile(r"\n *(?:-{3,}|={3,}) *(?=\n)")
_FENCE = re.compile(r"\n *(```|~~~)[^`\n]*(?:\n(?! *\1)[^\n]*)*\n *\1[^\n]*")
_OPTIONS = re.compile(r"(?:\n *:[\w-]+:[^\n]*)*")
_NAME = re.compile(r"[^\W\d]\w*")
_NOTHING = frozenset(("none", "nothing", "n/a", "-"))


@dataclass(slots=True)
class _OpenSection:
    """A section with a bold or underlined header, which lasts until the next header."""

    kind: Kind
    title: str
    indent: int
    underlined: bool
    header: str
    parts: list[str]
    """The text beside the header, then the texts below it."""


class _Parser:
    """Parses one docstring in a single pass.

    Each `_read_…` method handles a possible header and returns where to continue: after its
    section, or after the match if it is not a header.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._done = 0
        self._open: _OpenSection | None = None
        self._prose: list[str] = []
        self._sections: list[tuple[str, str]] = []
        self._parameters: dict[str, str] = {}
        self._returns: list[str] = []
        self._raises: list[tuple[str, str]] = []
        self._examples: list[str] = []

    def parse(self) -> Docstring:
        text, at = self._text, 0
        while match := _HEADER.search(text, at):
            at = _READERS[match.lastgroup or ""](self, match)
        self._close(len(text), len(text))
        return Docstring(
            text=_paragraphs(self._prose),
            sections=tuple(self._sections),
            parameters=tuple(self._parameters.items()),
            returns=_paragraphs(self._returns),
            raises=tuple(self._raises),
            examples=_paragraphs(self._examples),
        )

    def _read_title(self, match: re.Match[str]) -> int:
        title, indent = match["title"].rstrip(), len(match["indent"])
        kind = _kind_of(title)
        if kind is None or self._is_content(indent):
            return match.end()
        text, line_end = self._text, match.end()
        first = text[match.end("title") + 1 : line_end].removeprefix(":").strip()
        doubts = title[0].islower() + bool(indent and self._open is None)
        if doubts > (not first and kind != "free"):  # one doubt is acceptable on a line of its own
            return line_end
        if (
            kind == "parameters"
            and first
            and not (_says_none(first) or _PARAMETER_ITEM.match(first))
        ):
            return line_end
        if not first and (underline := _UNDERLINE.match(text, line_end)):
            return self._start(
                _OpenSection(kind, title, indent, True, "", [""]), match.start(), underline.end()
            )
        end = self._body_end(line_end, indent, loose=bool(first))
        if not first and (end == line_end or text[line_end:end].isspace()):
            end = self._loose_end(line_end, kind)
            if kind == "free" and end == line_end:
                return line_end
        self._close(match.start(), end)
        self._add(kind, title, first, text[line_end:end])
        return end

    def _read_bold(self, match: re.Match[str]) -> int:
        bold, start, indent = match["bold"], match.start(), len(match["indent"])
        first, line_end = self._text[match.end("bold") : match.end()].strip(), match.end()
        inner = bold.rstrip(":")[2:-2].strip()
        title = inner.rstrip(": ")
        has_colon = bold.endswith(":") or inner.endswith(":")
        head, _, tail = title.partition(": ")
        if tail and (kind := _kind_of(head)) and (kind == "free" or not has_colon):
            text = f"{tail}: {first}" if first and has_colon else f"{tail} {first}"
            title, has_colon, first = head, True, text.rstrip()
        if not title or len(title) > 80 or self._is_content(indent):
            return match.end()
        if not has_colon and (first or title[-1] in ".,;" or not self._is_fresh(start)):
            return match.end()
        kind = _kind_of(title)
        if kind is None and (start == 0 or (self._in("parameters") and title.isidentifier())):
            return match.end()
        header = self._text[start:line_end]
        section = _OpenSection(kind or "free", title, indent, False, header, [first])
        return self._start(section, start, line_end)

    def _read_underline(self, match: re.Match[str]) -> int:
        text, indent = self._text, len(match["indent"])
        start = text.rfind("\n", self._done, match.start())
        title = text[start + 1 : match.start()].strip().rstrip(":")
        if start < 0 or not title or self._is_content(indent):
            return match.end()
        kind = _kind_of(title)
        if kind is None:
            above = text[text.rfind("\n", 0, start) + 1 : start].strip()
            is_long = len(title) > len(match["underline"])
            if start == 0 or above or is_long or title[-1] in ".,;":
                return match.end()
        header = text[start : match.end()]
        section = _OpenSection(kind or "free", title, indent, True, header, [""])
        return self._start(section, start, match.end())

    def _read_field(self, match: re.Match[str]) -> int:
        indent = len(match["indent"])
        if self._is_content(indent):
            return match.end()
        first, line_end = self._text[match.end("field") + 1 : match.end()].strip(), match.end()
        end = self._body_end(line_end, indent, loose=True)
        self._close(match.start(), end)
        text = _join(first, self._text[line_end:end])
        word, _, about = match["field"].partition(" ")
        kind = _FIELDS[word]
        if kind == "parameters":
            self._describe(_NAME.findall(about)[-1:], text)
        elif kind == "raises":
            types = about.replace(",", " ").split()
            self._raises += [(type_, text) for type_ in types]
            if not types:
                self._add_raises(first + self._text[line_end:end])
        elif text:
            self._add(kind, _title_of(word), text, "")
        return end

    def _read_directive(self, match: re.Match[str]) -> int:
        word, indent = match["directive"], len(match["indent"])
        kind = _DIRECTIVES.get(word)
        if kind is None or self._is_content(indent) or self._in("examples"):
            return match.end()
        first, line_end = self._text[match.end("directive") + 2 : match.end()].strip(), match.end()
        end = self._body_end(line_end, indent)
        self._cut(match.start(), end)
        body = self._text[line_end:end]
        if kind == "examples":
            options = _OPTIONS.match(body)
            self._examples.append(_dedent(body[options.end() :] if options else body))
        elif word == "admonition":
            self._add(kind, first, "", body)
        else:
            self._add(kind, _title_of(word), first, body)
        return end

    def _read_doctest(self, match: re.Match[str]) -> int:
        if self._open and (self._open.kind != "free" or self._open.underlined):
            return match.end()
        block = _LINES.match(self._text, match.start())
        end = block.end() if block else match.end()
        self._cut(match.start(), end)
        self._examples.append(_dedent(self._text[match.start() : end]))
        return end

    def _read_fence(self, match: re.Match[str]) -> int:
        fence = _FENCE.match(self._text, match.start())
        return fence.end() if fence else match.end()

    def _in(self, kind: Kind) -> bool:
        return self._open is not None and self._open.kind is kind

    def _is_content(self, indent: int) -> bool:
        return self._open is not None and indent > self._open.indent

    def _is_fresh(self, start: int) -> bool:
        """Return whether a line starts a sentence rather than continue the line above."""
        return start == self._done or self._text[start - 1] in "\n .!?:;)`"

    def _body_end(self, at: int, indent: int, loose: bool = False) -> int:
        """Return the end of the deeper lines below `at`, after the paragraph if `loose`."""
        if loose:
            at = self._paragraph_end(at)
        deeper = _deeper(indent).match(self._text, at)
        return deeper.end() if deeper else at

    def _paragraph_end(self, at: int) -> int:
        while line := _LINE.match(self._text, at):
            header = _HEADER.match(self._text, at)
            if header and (header.lastgroup != "title" or _kind_of(header["title"])):
                break
            at = line.end()
        return at

    def _loose_end(self, at: int, kind: Kind) -> int:
        """Return the end of an unindented body: a paragraph, a fenced block or items."""
        while True:
            blanks = _BLANKS.match(self._text, at)
            start = blanks.end() if blanks else at
            if kind == "parameters":
                line = _LINE.match(self._text, start)
                if line is None or _PARAMETER_ITEM.match(line[0].strip()) is None:
                    return at
            elif fence := _FENCE.match(self._text, start):
                return fence.end()
            end = self._paragraph_end(start)
            if end == start:
                return at
            if kind != "parameters":
                return end
            at = end

    def _cut(self, start: int, end: int) -> None:
        """Consume a part; text before it belongs to the open section or to the description."""
        if start > self._done:
            parts = self._open.parts if self._open else self._prose
            parts.append(self._text[self._done : start])
        self._done = end

    def _close(self, start: int, end: int) -> None:
        """Consume a part, and close the open section."""
        self._cut(start, end)
        section, self._open = self._open, None
        if section is None:
            return
        first, *below = section.parts
        if body := _paragraphs([_join(first, "".join(below[:1])), *below[1:]]):
            self._add(section.kind, section.title, "", body, section.underlined)
        elif section.kind == "free":
            self._prose.append(section.header)

    def _start(self, section: _OpenSection, start: int, end: int) -> int:
        self._close(start, end)
        self._open = section
        return end

    def _add(self, kind: Kind, title: str, first: str, body: str, underlined: bool = False) -> None:
        if kind == "parameters":
            for part in filter(None, (first, body)):
                self._add_parameters(title, part, _NUMPY_ITEM if underlined else _PARAMETER_ITEM)
        elif kind == "returns":
            self._returns.append(_returns_text(first, body, underlined))
        elif kind == "raises":
            self._add_raises(f"{first}\n{body}")
        elif kind == "examples":
            self._examples.append(_join(first, body))
        elif kind == "free":
            self._sections.append((title, _join(first, body)))

    def _add_parameters(self, title: str, body: str, pattern: re.Pattern[str]) -> None:
        found, stray = _items(body, pattern)
        for names, text in found:
            if names[0].isupper() and (kind := _TITLES.get(names.lower())):
                self._add(kind, names, text, "")  # `Returns:` indented like a parameter
            elif not _says_none(names):
                self._describe([names] if names.isidentifier() else _NAME.findall(names), text)
        if stray and not _says_none(stray):
            if found:
                self._prose.append(stray)
            else:
                self._sections.append((title, stray))

    def _add_raises(self, body: str) -> None:
        found, stray = _items(body, _EXCEPTION_ITEM)
        for types, text in found:
            if not _says_none(types):
                self._raises += [(type_.strip(), text) for type_ in types.split(",")]
        if stray:
            self._raises.append(("Exception", stray))

    def _describe(self, names: list[str], text: str) -> None:
        for name in names:
            self._parameters[name] = self._parameters.get(name) or text


_READERS: dict[str, Callable[[_Parser, re.Match[str]], int]] = {
    "title": _Parser._read_title,
    "bold": _Parser._read_bold,
    "field": _Parser._read_field,
    "directive": _Parser._read_directive,
    "doctest": _Parser._read_doctest,
    "fence": _Parser._read_fence,
    "underline": _Parser._read_underline,
}


@lru_cache(maxsize=64)
def _deeper(indent: int) -> re.Pattern[str]:
    """Return a pattern of lines with more than this indentation, and blank lines between them."""
    return re.compile(rf"(?:\n(?: {{{indent + 1}}}[^\n]*| *(?=\n)))*")


def _says_none(text: str) -> bool:
    return text.rstrip(".").lower() in _NOTHING
