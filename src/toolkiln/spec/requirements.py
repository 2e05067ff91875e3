"""What a file says it needs installed: gathered from four places, checked, deduplicated.

The PEP 723 block, `@tool(requirements=[…])`, a `requirements:` line in the module's
docstring and `# requirements:` comments. Only names with versions are taken: direct URLs,
paths and installer options are refused. Nothing is resolved or installed here, and
`packaging` is loaded only when there is something to parse.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from packaging.requirements import Requirement


class Problem(NamedTuple):
    """Something wrong with what a file requires."""

    line: int
    message: str
    fix: str


class Requirements(NamedTuple):
    """What a file requires, and what is wrong with how it says so."""

    packages: tuple[str, ...]
    """Normalised requirement strings, in order of appearance."""
    table: dict[str, Any]
    """The `[tool.toolkiln]` table of the PEP 723 block."""
    requires_python: str | None
    problems: tuple[Problem, ...]


_OPENING = re.compile(r"^# /// (?P<type>[a-zA-Z0-9-]+)$", re.MULTILINE)
_COMMENTS = re.compile(r"(?:\n#(?: [^\n]*)?(?=\n|\Z))*")
_COMMENT = re.compile(r"# ?requirements:([^\n]*)")
_FRONTMATTER = re.compile(r"^[ \t]*requirements:(.*)$", re.MULTILINE)
_TOML_LINE = re.compile(r"at line (\d+)")
_OPERATOR = re.compile(r"\s*(?:[<>=!~]=?|;)")
_ARCHIVE = (".whl", ".zip", ".tar.gz", ".egg")
_LONGEST = 500
"""Characters of one requirement."""
_MOST = 200
"""Requirements of one file; far beyond any tool, and a bound for the checks among them."""


def gather(
    source: str, module_docstring: str | None, declared: Sequence[tuple[str, int]] = ()
) -> Requirements:
    """All requirements of a file; `declared` holds those of its decorators, with their lines."""
    has_block, mentioned = "# /// script" in source, "requirements:" in source
    if not (declared or has_block or mentioned):
        return Requirements((), {}, None, ())
    if "\r" in source:
        source = source.replace("\r\n", "\n").replace("\r", "\n")
    collected = _Collected()
    if has_block:
        collected.read_block(source)
    for text, line in declared:
        collected.add(text, line)
    if mentioned:
        for text, line in (*_in_docstring(module_docstring or "", source), *_in_comments(source)):
            collected.add_list(text, line)
    return collected.result()


def split(text: str) -> list[str]:
    """The parts of a comma-separated list; commas in extras and version sets part nothing."""
    parts = []
    start = depth = 0
    quote = ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[(":
            depth += 1
        elif letter in "])":
            depth = max(0, depth - 1)
        elif letter == "," and not depth and not _OPERATOR.match(text, at + 1):
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


class _Collected:
    """What was found so far."""

    def __init__(self) -> None:
        self.found: dict[str, Requirement] = {}
        self.table: dict[str, Any] = {}
        self.requires_python: str | None = None
        self.problems: list[Problem] = []
        self.count = 0

    def result(self) -> Requirements:
        problems = tuple(dict.fromkeys(self.problems))
        return Requirements(tuple(self.found), self.table, self.requires_python, problems)

    def complain(self, line: int, message: str, fix: str) -> None:
        self.problems.append(Problem(line, message, fix))

    def read_block(self, source: str) -> None:
        blocks = list(_blocks(source))
        for line, _ in blocks[1:]:
            self.complain(line, "a second PEP 723 script block", "keep one `# /// script` block")
        if not blocks:
            return
        line, content = blocks[0]
        if content is None:
            message = "the PEP 723 block has no closing line"
            self.complain(line, message, "end the comment with a line `# ///`")
            return
        try:
            document = tomllib.loads(content)
        except (ValueError, RecursionError) as error:  # ValueError: also numbers beyond reason
            at = _TOML_LINE.search(str(error))
            where = line + (int(at[1]) if at else content.count("\n") + 1)
            self.complain(where, f"the PEP 723 block is not TOML: {error}", "correct the TOML")
            return
        self._take_dependencies(document.get("dependencies", []), line, content)
        self._take_python(
            document.get("requires-python"), line + _offset(content, "requires-python")
        )
        tool = document.get("tool", {})
        table = tool.get("toolkiln", {}) if isinstance(tool, dict) else tool
        if isinstance(table, dict):
            self.table = table
        else:
            where = line + _offset(content, "toolkiln")
            self.complain(where, "`tool.toolkiln` is not a table", "write it as [tool.toolkiln]")

    def _take_dependencies(self, value: Any, line: int, content: str) -> None:
        if not isinstance(value, list):
            where = line + _offset(content, "dependencies")
            fix = 'write dependencies = ["name>=1"]'
            self.complain(where, "`dependencies` is not a list of strings", fix)
            return
        for item in value[: _MOST + 1]:
            if isinstance(item, str):
                self.add(item, line + _offset(content, item))
            else:
                where = line + _offset(content, "dependencies")
                self.complain(where, f"the dependency {item!r} is not a string", "quote it")

    def _take_python(self, value: Any, line: int) -> None:
        if value is None:
            return
        self.requires_python = _version_range(value) if isinstance(value, str) else None
        if self.requires_python is None:
            message = f"requires-python {_shown(str(value))} is not a version range"
            self.complain(line, message, 'write for example requires-python = ">=3.11"')

    def add_list(self, text: str, line: int) -> None:
        for part in split(text):
            self.add(part, line)

    def add(self, text: str, line: int) -> None:
        if self.count == _MOST:
            self.complain(line, f"more than {_MOST} requirements", "split the file")
        self.count += 1
        if self.count > _MOST:
            return
        from packaging.requirements import InvalidRequirement

        text = text.strip()
        if refusal := _refusal(text):
            self.complain(line, *refusal)
            return
        try:
            requirement, written = _parsed(text)
        except InvalidRequirement as error:
            reason = str(error).partition("\n")[0]
            self.complain(line, f"{_shown(text)} is not a requirement: {reason}", _repair(text))
            return
        if requirement.url:
            self.complain(line, *_direct(text))
            return
        for other in self.found.values():
            if _contradict(requirement, other):
                message = f"{requirement} contradicts {other}"
                self.complain(line, message, f"require one version of {requirement.name}")
                return
        self.found.setdefault(written, requirement)


# The same few requirements stand in many files, and parsing one costs as much as the file.
@lru_cache(maxsize=1024)
def _parsed(text: str) -> "tuple[Requirement, str]":
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    requirement = Requirement(text)
    requirement.name = canonicalize_name(requirement.name)
    return requirement, str(requirement)


@lru_cache(maxsize=128)
def _version_range(text: str) -> str | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        return None


def _blocks(source: str) -> Iterator[tuple[int, str | None]]:
    """The `script` blocks with their first line, as PEP 723's own pattern finds them.

    That pattern takes quadratic time on a file of opening lines; this takes linear time.
    """
    at = 0
    while opening := _OPENING.search(source, at):
        comments = _COMMENTS.match(source, opening.end())
        at = comments.end() if comments else opening.end()
        lines = source[opening.end() : at].split("\n")[1:]
        content = None
        if "# ///" in lines:
            last = len(lines) - 1 - lines[::-1].index("# ///")
            content = "\n".join([line[2:] for line in lines[:last]])
            at = opening.end() + sum(len(line) + 1 for line in lines[: last + 1])
        if opening["type"] == "script":
            yield _line(source, opening.start()), content


def _in_docstring(docstring: str, source: str) -> Iterator[tuple[str, int]]:
    for match in islice(_FRONTMATTER.finditer(docstring), _MOST + 1):
        yield match[1], _line(source, max(0, source.find(match[0].strip())))


def _in_comments(source: str) -> Iterator[tuple[str, int]]:
    found = (m for m in _COMMENT.finditer(source) if source[m.start() - 1 : m.start()] in "\n")
    for match in islice(found, _MOST + 1):
        yield re.sub(r"\s#.*", "", match[1]), _line(source, match.start())


def _refusal(text: str) -> tuple[str, str] | None:
    """What is wrong with a text that an installer might take but we do not."""
    if not text:
        return "an empty requirement", "remove it"
    if len(text) > _LONGEST:
        return f"a requirement of {len(text)} characters", f"keep it under {_LONGEST}"
    if text.startswith("-"):
        message = f"{_shown(text)} is an option for pip, not a requirement"
        return message, "name each package with its version, as in 'httpx>=0.27'"
    if "://" in text or re.match(r"(?:git|hg|svn|bzr)\+|git@", text):
        return _direct(text)
    head = text.partition(";")[0].rstrip()
    if (
        head.startswith((".", "/", "~", "\\"))
        or "/" in head
        or "\\" in head
        or head.lower().endswith(_ARCHIVE)
    ):
        message = f"{_shown(text)} is a path; only packages of an index are installed"
        return message, "publish it to an index and require it by name, or put it beside the tool"
    return None


def _direct(text: str) -> tuple[str, str]:
    message = f"{_shown(text)} is a direct URL; only packages of an index are installed"
    return message, "require the package by name and version, as in 'httpx>=0.27'"


def _repair(text: str) -> str:
    if single := re.fullmatch(r"([\w.\[\],-]+)\s*=\s*([\w.*]+)", text):
        return f"write {single[1]}=={single[2]}"
    if re.fullmatch(r"[\w.-]+(?:\s+[\w.-]+)+", text):
        return f"separate with commas: {', '.join(text.split())}"
    return "write a name and versions, as in 'httpx>=0.27,<1'"


def _contradict(one: "Requirement", other: "Requirement") -> bool:
    """Whether a version pinned by one of two requirements is ruled out by the other."""
    if one.name != other.name or str(one.marker) != str(other.marker):
        return False
    for pinned, allowed in ((one, other.specifier), (other, one.specifier)):
        for part in pinned.specifier:
            exact = part.operator == "==" and not part.version.endswith(".*")
            if exact and not allowed.contains(part.version, prereleases=True):
                return True
    return False


def _offset(content: str, text: str) -> int:
    """How many lines below the block's first one a text stands."""
    return content.count("\n", 0, max(0, content.find(text))) + 1


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}…"
