"""What one version of a file changes against another: text, findings, rights.

For the person who decides on admission, so nothing here may mislead: the text is compared
as Python decodes it, what does not show is spelt out, and what is left out is counted. It is
a comparison and no judgement: whether a change is admitted is decided elsewhere.
"""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Literal

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.manifest import Manifest, MissingManifest
from toolkiln.catalog.mending import source_lines
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import (
    Capability,
    FileState,
    Finding,
    Reading,
    Rights,
    Sources,
    Value,
)
from toolkiln.spec.checks import unseen

_CONTEXT = 3
_MOST_LINES = 2_000
"""Of a whole difference; longer ones are for an editor."""
_LONGEST_LINE = 1_000
_LARGEST_DATA = 100_000
"""Bytes of a data file that is shown."""
_MOST_COMPARED = 2_000
"""Lines of a changed part that are matched one by one: the time grows with their square."""

_UNDECIDED = (FileState.NEW, FileState.CHANGED, FileState.PROPOSED)

_Opcode = tuple[str, int, int, int, int]
"""As `difflib` has them: kind, and where it starts and ends in the old and the new lines."""


def unified(old: Sources, new: Sources) -> str:
    """A unified diff over all files of two versions, the tool's own first; empty if none differs.

    Each file starts with a line `diff …`, which no line of a file can imitate. Characters
    that do not show are written as `<U+202E>`, bytes that are not text as `<0xFF>`. Of data
    files that are not text, or large, only the sizes are shown.
    """
    shown: list[str] = []
    left_out: Counter[str] = Counter()
    names = [*new, *(name for name in old if name not in new)]
    for name in sorted(names, key=_is_data):  # so that no data keeps code from being shown
        for line in _file_diff(name, old.get(name), new.get(name)):
            if len(shown) < _MOST_LINES:
                shown.append(line)
            else:
                left_out[name] += 1
    if left_out:
        counts = ", ".join(f"{count:,} of {_visible(name)}" for name, count in left_out.items())
        shown.append(f"… lines not shown: {counts}")
    return "".join(f"{line}\n" for line in shown)


def pending_change(catalog: Catalog, tool: str) -> str:
    """The diff, as `unified`, from the admitted version of a tool's file to what is undecided.

    That is the file on disk, or a proposal; where both are, a line above each says which.

    Raises:
        UnknownTool: no file declares it, and none of its versions was admitted.
        InputError: the admitted version is not in the store.
    """
    try:
        manifest = catalog.manifest
    except MissingManifest:
        manifest = Manifest()
    file = _file_of(catalog, tool, manifest)
    admission, read = manifest.files.get(file), catalog.disk.read(file)
    undecided: dict[str, Sources] = {}
    if read is not None and manifest.state_of(file, read.digest) in _UNDECIDED:
        undecided["on disk"] = read.sources or _unread(catalog.root / file)
    elif read is None and admission is not None:
        undecided["on disk"] = {}
    proposal = catalog.proposals().get(file)
    if proposal is not None and (read is None or proposal.digest != read.digest):
        undecided[f"proposed by {manifest.proposed[file].by}"] = proposal.sources
    old = catalog.version_sources(admission.sha256, file) if admission and undecided else {}
    if old is None:
        raise InputError(
            f"the admitted version of {file} is not in the store, or damaged",
            hint="restore the store from a backup",
        )
    diffs = {where: unified(old, new) for where, new in undecided.items()}
    if len(diffs) == 1:
        return next(iter(diffs.values()))
    return "".join(f"… {_visible(where)}\n{diff}" for where, diff in diffs.items())


def _unread(file: Path) -> Sources:
    """A file that declares no tool, or has a syntax error."""
    return {file.name: file.read_bytes()}


def _file_of(catalog: Catalog, tool: str, manifest: Manifest) -> str:
    """The file that declares a tool, or did so when it was last admitted."""
    served = {name: one.file for name, one in catalog.current.served.items()}
    declared = {name: one.file for one in catalog.statuses() for name in one.tools}
    if file := served.get(tool) or declared.get(tool):
        return file
    versions = catalog.archive.history_of_tool(manifest.catalog, tool)
    if not versions:
        raise UnknownTool(tool, {**declared, **served})
    return versions[0].file


def new_findings(old: Reading | None, new: Reading) -> list[Finding]:
    """The findings of a version that an earlier one did not have, wherever their lines are.

    Overruled errors are always among them: each version is a decision of its own.
    """
    known = Counter(map(_identity, old.findings if old else ()))
    found = []
    for finding in new.findings:
        identity = _identity(finding)
        if known[identity] and not finding.overruled:
            known[identity] -= 1
        else:
            found.append(finding)
    return found


class RightsAsked(Value):
    """What one tool asks for beyond its earlier version; `str` tells it in one line."""

    tool: str
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    workspace: Literal["read", "write"] | None = None
    without_sandbox: bool = False
    without_approval: bool = False
    """The earlier version needed a person's approval of its calls, this one does not."""

    def __str__(self) -> str:
        parts = [
            f"{word} {', '.join(map(_visible, values))}"
            for word, values in (
                ("network", self.network),
                ("secrets", self.secrets),
                ("capabilities", self.capabilities),
            )
            if values
        ]
        if self.workspace:
            parts.append(f"workspace {self.workspace}")
        if self.without_sandbox:
            parts.append("to run without the sandbox")
        if self.without_approval:
            parts.append("to be called without approval")
        return f"{_visible(self.tool)} asks for {'; '.join(parts)}"


def rights_asked(old: Reading | None, new: Reading) -> tuple[RightsAsked, ...]:
    """What the tools of a version ask for beyond those of an earlier one, tool by tool."""
    before = {spec.name: spec.rights for spec in old.tools} if old else {}
    asked = (_beyond(before.get(spec.name), spec.name, spec.rights) for spec in new.tools)
    return tuple(more for more in asked if more != RightsAsked(tool=more.tool))


def _beyond(old: Rights | None, tool: str, new: Rights) -> RightsAsked:
    had = old or Rights()
    wider = new.workspace != had.workspace and had.workspace != "write"
    return RightsAsked(
        tool=tool,
        network=tuple(host for host in new.network if host not in had.network),
        secrets=tuple(name for name in new.secrets if name not in had.secrets),
        capabilities=tuple(item for item in new.capabilities if item not in had.capabilities),
        workspace=new.workspace if wider else None,
        without_sandbox=had.sandbox and not new.sandbox,
        without_approval=_caution(new) < _caution(had),
    )


def _caution(rights: Rights) -> int:
    """How often people are asked: never, with some arguments, always."""
    if not rights.needs_approval:
        return 0
    return 1 if rights.approval_function else 2


def _identity(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.tool, re.sub(r"\bline \d+", "line", finding.message)


def _file_diff(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    if old == new:
        return
    shown = _visible(name)
    yield f"diff a/{shown} b/{shown}"
    for mark, side, data in (("-", "a", old), ("+", "b", new)):
        yield f"{mark * 3} {'/dev/null' if data is None else f'{side}/{shown}'}"
    if _is_data(name) and not (_is_shown(old) and _is_shown(new)):
        before, after = ("none" if d is None else f"{len(d):,} bytes" for d in (old, new))
        yield f"… not shown, since it is not text or large: {before} → {after}"
        return
    lines = source_lines(_text(old or b"")), source_lines(_text(new or b""))
    if lines[0] != lines[1]:
        yield from _hunks(*lines)
    elif old is not None and new is not None:
        yield "… the bytes differ, the text does not"


def _is_data(name: str) -> bool:
    return not name.endswith(".py")


def _is_shown(data: bytes | None) -> bool:
    """Whether a data file is short text."""
    if data is None:
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return len(data) <= _LARGEST_DATA and b"\0" not in data


def _text(data: bytes) -> str:
    """The text as Python decodes it, with surrogates for bytes that it cannot decode."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in ("utf-8", "utf-8-sig"):  # a BOM is to be seen
            return data.decode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        pass  # Python refuses the file, too
    return data.decode("utf-8", "surrogateescape")


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    """The parts in which the lines differ, with some lines around them."""
    for group in _groups(_opcodes(old, new)):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        yield f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@"
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from _marked(" ", old[a:b])
            else:
                yield from _marked("-", old[a:b])
                yield from _marked("+", new[c:d])


def _opcodes(old: list[str], new: list[str]) -> Iterator[_Opcode]:
    """How the one becomes the other, from shortly before the first change to shortly after."""
    same = _common(zip(old, new, strict=False))
    rest = min(len(old), len(new)) - same
    tail = min(_common(zip(reversed(old), reversed(new), strict=False)), rest)
    old_end, new_end = len(old) - tail, len(new) - tail
    around = min(same, _CONTEXT)
    yield "equal", same - around, same, same - around, same
    if max(old_end, new_end) - same > _MOST_COMPARED:
        yield "replace", same, old_end, same, new_end
    else:
        matcher = SequenceMatcher(None, old[same:old_end], new[same:new_end])
        for kind, a, b, c, d in matcher.get_opcodes():
            yield kind, same + a, same + b, same + c, same + d
    around = min(tail, _CONTEXT)
    yield "equal", old_end, old_end + around, new_end, new_end + around


def _groups(opcodes: Iterable[_Opcode]) -> Iterator[list[_Opcode]]:
    """The opcodes of each hunk: hunks are parted by more equal lines than they show."""
    group: list[_Opcode] = []
    for kind, a, b, c, d in opcodes:
        if kind == "equal" and b - a > 2 * _CONTEXT:
            yield [*group, (kind, a, a + _CONTEXT, c, c + _CONTEXT)]
            group = [(kind, b - _CONTEXT, b, d - _CONTEXT, d)]
        else:
            group.append((kind, a, b, c, d))
    yield group


def _common(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _range(start: int, end: int) -> str:
    """Lines in the notation of hunks: an empty range names the line before it."""
    return f"{start + (end > start)},{end - start}"


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield mark + _visible(line.removesuffix("\n"))
        if not line.endswith(("\n", "\r")):
            yield "\\ No newline at end of file"


def _visible(text: str) -> str:
    """The text with everything spelt out that does not show, cut where it is too long."""
    cut = len(text) - _LONGEST_LINE
    text = text[:_LONGEST_LINE]
    hidden = {index for index, _ in unseen.hidden(text)}
    shown = [
        char if char == "\t" or (char.isprintable() and index not in hidden) else _spelt(char)
        for index, char in enumerate(text)
    ]
    return "".join(shown) + (f"<… {cut:,} more characters>" if cut > 0 else "")


def _spelt(char: str) -> str:
    code = ord(char)
    return f"<0x{code - 0xDC00:02X}>" if 0xDC80 <= code <= 0xDCFF else f"<U+{code:04X}>"
