"""Docstrings → `Documentation`: Google, NumPy, Sphinx, Epytext and bold Markdown sections, mixed.

One pass from header to header; whatever belongs to no section is the text, unchanged. It
is lenient as people are: no blank line above `Args:`, bodies that are not indented,
bullets before the names. Types written in a docstring are dropped, since annotations say
them better. It never raises and takes linear time. `docstring_titles` has the vocabulary,
`docstring_parts` the inside of sections; which text a model gets to see is decided elsewhere.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from toolkiln.model import Documentation, ParameterDoc, RaisesDoc, Section
from toolkiln.spec.docstrings.parts import (
    EXCEPTION,
    NUMPY_PARAMETER,
    PARAMETER,
    clean,
    dedent,
    hang,
    items,
    paragraphs,
    returned,
)
from toolkiln.spec.docstrings.titles import DIRECTIVES, FIELDS, TITLES, Kind, kind_of, title_of


def parse(docstring: str) -> Documentation:
    """Read a docstring as it stands in the source; any text is a docstring."""
    return _Reader(f"\n{clean(docstring)}\n").read()


# Every pattern starts at the line break above what it matches: a search then only stops at
# line breaks. Classes that exclude what follows them keep all of them linear (ADR 7).
_HEADER = re.compile(
    rf"""
    \n(?P<indent>[ ]*)
    (?:
        (?P<title>[A-Za-z][^:\n]*)::?(?=[ \n])
      | (?P<bold>\*\*[^*\n]+\*\*:?)
      | [:@](?P<field>(?:{"|".join(FIELDS)})(?=[ :])[^:\n]*):(?=[ \n])
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
class _Open:
    """A section that lasts until the next header: bold or underlined."""

    kind: Kind
    title: str
    indent: int
    underlined: bool
    header: str
    parts: list[str]
    """What stands beside the header, then what stands below it."""


class _Reader:
    """The state of one pass: how far it got, and what it found on the way.

    A `_read_…` method looks at one possible header and returns where to search on: behind
    its section, or behind the match if it is none.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._done = 0
        self._open: _Open | None = None
        self._prose: list[str] = []
        self._sections: list[Section] = []
        self._parameters: dict[str, str] = {}
        self._returns: list[str] = []
        self._raises: list[RaisesDoc] = []
        self._examples: list[str] = []

    def read(self) -> Documentation:
        text, at = self._text, 0
        while match := _HEADER.search(text, at):
            at = _READERS[match.lastgroup or ""](self, match)
        self._leave(len(text), len(text))
        return Documentation(
            text=paragraphs(self._prose),
            sections=tuple(self._sections),
            parameters=tuple([ParameterDoc(name=n, text=t) for n, t in self._parameters.items()]),
            returns=paragraphs(self._returns),
            raises=tuple(self._raises),
            examples=paragraphs(self._examples),
        )

    def _read_title(self, match: re.Match[str]) -> int:
        title, indent = match["title"].rstrip(), len(match["indent"])
        kind = kind_of(title)
        if kind is None or self._is_content(indent):
            return match.end()
        text, line_end = self._text, match.end()
        first = text[match.end("title") + 1 : line_end].removeprefix(":").strip()
        doubts = title[0].islower() + bool(indent and self._open is None)
        if doubts > (not first and kind != "free"):
            return line_end
        if kind == "parameters" and first and not (_says_none(first) or PARAMETER.match(first)):
            return line_end
        if not first and (underline := _UNDERLINE.match(text, line_end)):
            return self._start(
                _Open(kind, title, indent, True, "", [""]), match.start(), underline.end()
            )
        end = self._body_end(line_end, indent, loose=bool(first))
        if not first and (end == line_end or text[line_end:end].isspace()):
            end = self._loose_end(line_end, kind)
            if kind == "free" and end == line_end:
                return line_end
        self._leave(match.start(), end)
        self._add(kind, title, first, text[line_end:end])
        return end

    def _read_bold(self, match: re.Match[str]) -> int:
        bold, start, indent = match["bold"], match.start(), len(match["indent"])
        first, line_end = self._text[match.end("bold") : match.end()].strip(), match.end()
        inner = bold.rstrip(":")[2:-2].strip()
        title = inner.rstrip(": ")
        has_colon = bold.endswith(":") or inner.endswith(":")
        head, _, tail = title.partition(": ")
        if not has_colon and tail and kind_of(head):
            title, has_colon, first = head, True, f"{tail} {first}".rstrip()
        if not title or len(title) > 80 or self._is_content(indent):
            return match.end()
        if not has_colon and (first or title[-1] in ".,;" or not self._is_fresh(start)):
            return match.end()
        kind = kind_of(title)
        if kind is None and (start == 0 or (self._in("parameters") and title.isidentifier())):
            return match.end()
        header = self._text[start:line_end]
        section = _Open(kind or "free", title, indent, False, header, [first])
        return self._start(section, start, line_end)

    def _read_underline(self, match: re.Match[str]) -> int:
        text, indent = self._text, len(match["indent"])
        start = text.rfind("\n", self._done, match.start())
        title = text[start + 1 : match.start()].strip().rstrip(":")
        if start < 0 or not title or self._is_content(indent):
            return match.end()
        kind = kind_of(title)
        if kind is None:
            above = text[text.rfind("\n", 0, start) + 1 : start].strip()
            is_long = len(title) > len(match["underline"])
            if start == 0 or above or is_long or title[-1] in ".,;":
                return match.end()
        header = text[start : match.end()]
        section = _Open(kind or "free", title, indent, True, header, [""])
        return self._start(section, start, match.end())

    def _read_field(self, match: re.Match[str]) -> int:
        indent = len(match["indent"])
        if self._is_content(indent):
            return match.end()
        first, line_end = self._text[match.end("field") + 1 : match.end()].strip(), match.end()
        end = self._body_end(line_end, indent, loose=True)
        self._leave(match.start(), end)
        text = hang(first, self._text[line_end:end])
        word, _, about = match["field"].partition(" ")
        kind = FIELDS[word]
        if kind == "parameters":
            self._describe(_NAME.findall(about)[-1:], text)
        elif kind == "raises":
            types = about.replace(",", " ").split()
            self._raises += [RaisesDoc(type=type_, text=text) for type_ in types]
            if not types:
                self._add_raises(first + self._text[line_end:end])
        elif text:
            self._add(kind, title_of(word), text, "")
        return end

    def _read_directive(self, match: re.Match[str]) -> int:
        word, indent = match["directive"], len(match["indent"])
        kind = DIRECTIVES.get(word)
        if kind is None or self._is_content(indent) or self._in("examples"):
            return match.end()
        first, line_end = self._text[match.end("directive") + 2 : match.end()].strip(), match.end()
        end = self._body_end(line_end, indent)
        self._cut(match.start(), end)
        body = self._text[line_end:end]
        if kind == "examples":
            options = _OPTIONS.match(body)
            self._examples.append(dedent(body[options.end() :] if options else body))
        elif word == "admonition":
            self._add(kind, first, "", body)
        else:
            self._add(kind, title_of(word), first, body)
        return end

    def _read_doctest(self, match: re.Match[str]) -> int:
        if self._open and (self._open.kind != "free" or self._open.underlined):
            return match.end()
        block = _LINES.match(self._text, match.start())
        end = block.end() if block else match.end()
        self._cut(match.start(), end)
        self._examples.append(dedent(self._text[match.start() : end]))
        return end

    def _read_fence(self, match: re.Match[str]) -> int:
        fence = _FENCE.match(self._text, match.start())
        return fence.end() if fence else match.end()

    def _rest_of_line(self, match: re.Match[str]) -> tuple[str, int]:
        end = self._text.index("\n", match.end())
        return self._text[match.end() : end].strip(), end

    def _in(self, kind: Kind) -> bool:
        return self._open is not None and self._open.kind is kind

    def _is_content(self, indent: int) -> bool:
        return self._open is not None and indent > self._open.indent

    def _is_fresh(self, start: int) -> bool:
        """Whether a line does not continue a sentence of the line above."""
        return start == self._done or self._text[start - 1] in "\n .!?:;)`"

    def _body_end(self, at: int, indent: int, loose: bool = False) -> int:
        """The end of the deeper lines below `at`; if loose, of the rest of its paragraph too."""
        if loose:
            at = self._paragraph_end(at)
        deeper = _deeper(indent).match(self._text, at)
        return deeper.end() if deeper else at

    def _paragraph_end(self, at: int) -> int:
        while line := _LINE.match(self._text, at):
            header = _HEADER.match(self._text, at)
            if header and (header.lastgroup != "title" or kind_of(header["title"])):
                break
            at = line.end()
        return at

    def _loose_end(self, at: int, kind: Kind) -> int:
        """The end of a body that is not indented: a paragraph, a fenced block, some items."""
        while True:
            blanks = _BLANKS.match(self._text, at)
            start = blanks.end() if blanks else at
            if kind == "parameters":
                line = _LINE.match(self._text, start)
                if line is None or PARAMETER.match(line[0].strip()) is None:
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
        """Take a part out; what lies above it belongs to the open section or to the text."""
        if start > self._done:
            parts = self._open.parts if self._open else self._prose
            parts.append(self._text[self._done : start])
        self._done = end

    def _leave(self, start: int, end: int) -> None:
        """Take a part out, and end the section that was open above it."""
        self._cut(start, end)
        section, self._open = self._open, None
        if section is None:
            return
        first, *below = section.parts
        if body := paragraphs([hang(first, "".join(below[:1])), *below[1:]]):
            self._add(section.kind, section.title, "", body, section.underlined)
        elif section.kind == "free":
            self._prose.append(section.header)

    def _start(self, section: _Open, start: int, end: int) -> int:
        self._leave(start, end)
        self._open = section
        return end

    def _add(self, kind: Kind, title: str, first: str, body: str, underlined: bool = False) -> None:
        if kind == "parameters":
            for part in filter(None, (first, body)):
                self._add_parameters(title, part, NUMPY_PARAMETER if underlined else PARAMETER)
        elif kind == "returns":
            self._returns.append(returned(first, body, underlined))
        elif kind == "raises":
            self._add_raises(f"{first}\n{body}")
        elif kind == "examples":
            self._examples.append(hang(first, body))
        elif kind == "free":
            self._sections.append(Section(title=title, body=hang(first, body)))

    def _add_parameters(self, title: str, body: str, pattern: re.Pattern[str]) -> None:
        found, stray = items(body, pattern)
        for names, text in found:
            if names[0].isupper() and (kind := TITLES.get(names.lower())):
                self._add(kind, names, text, "")  # `Returns:` indented like a parameter
            elif not _says_none(names):
                self._describe([names] if names.isidentifier() else _NAME.findall(names), text)
        if stray and not _says_none(stray):
            if found:
                self._prose.append(stray)
            else:
                self._sections.append(Section(title=title, body=stray))

    def _add_raises(self, body: str) -> None:
        found, stray = items(body, EXCEPTION)
        for types, text in found:
            if not _says_none(types):
                self._raises += [RaisesDoc(type=t.strip(), text=text) for t in types.split(",")]
        if stray:
            self._raises.append(RaisesDoc(type="Exception", text=stray))

    def _describe(self, names: list[str], text: str) -> None:
        for name in names:
            self._parameters[name] = self._parameters.get(name) or text


_READERS: dict[str, Callable[[_Reader, re.Match[str]], int]] = {
    "title": _Reader._read_title,
    "bold": _Reader._read_bold,
    "field": _Reader._read_field,
    "directive": _Reader._read_directive,
    "doctest": _Reader._read_doctest,
    "fence": _Reader._read_fence,
    "underline": _Reader._read_underline,
}


@lru_cache(maxsize=64)
def _deeper(indent: int) -> re.Pattern[str]:
    """Lines with more than this indentation, and blank ones between them."""
    return re.compile(rf"(?:\n(?: {{{indent + 1}}}[^\n]*| *(?=\n)))*")


def _says_none(text: str) -> bool:
    return text.rstrip(".").lower() in _NOTHING
