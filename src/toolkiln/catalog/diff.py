"""The differences between two versions of a file: text, findings, requested permissions.

A person bases an admission on them, so they must not mislead: text is compared as Python
decodes it, invisible characters are spelled out, and omitted lines are counted.
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
from toolkiln.catalog.reports import source_lines
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model.base import Value
from toolkiln.model.catalog import FileState, Sources
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import Capability, Permissions
from toolkiln.spec.checks import text_lint

_CONTEXT = 3
_MAX_LINES = 2_000
"""Lines of a whole diff."""
_MAX_LINE_LENGTH = 1_000
_MAX_DATA = 100_000
"""Bytes of a data file that is shown."""
_MAX_COMPARED = 2_000
"""Lines of a changed part that are matched one by one: the time grows quadratically."""

_UNDECIDED = (FileState.NEW, FileState.CHANGED, FileState.PROPOSED)

_Opcode = tuple[str, int, int, int, int]
"""As in `difflib`: kind, start and end in the old lines, start and end in the new lines."""


def unified(old: Sources, new: Sources) -> str:
    """Return a unified diff of all files of two versions, the tool's own first; may be empty.

    Each file starts with a line `diff …`, which no line of a file can imitate. Invisible
    characters are written as `<U+202E>`, undecodable bytes as `<0xFF>`. For data files that are
    large or not text, only the sizes are shown.
    """
    shown: list[str] = []
    omitted: Counter[str] = Counter()
    names = [*new, *(name for name in old if name not in new)]
    for name in sorted(names, key=_is_data):  # code before data, because long diffs are truncated
        for line in _file_diff(name, old.get(name), new.get(name)):
            if len(shown) < _MAX_LINES:
                shown.append(line)
            else:
                omitted[name] += 1
    if omitted:
        counts = ", ".join(f"{count:,} of {_visible(name)}" for name, count in omitted.items())
        shown.append(f"… lines not shown: {counts}")
    return "".join(f"{line}\n" for line in shown)


def pending_change(catalog: Catalog, tool: str) -> str:
    """Return the diff from the admitted version of a tool's file to its pending versions.

    These are the file on disk and a proposal; if there are both, each diff has a heading.

    Raises:
        UnknownTool: no file declares the tool, and no version of it was admitted.
        InputError: the admitted version is not in the store.
    """
    try:
        manifest = catalog.manifest
    except MissingManifest:
        manifest = Manifest()
    file = _file_of(catalog, tool, manifest)
    admission, read = manifest.files.get(file), catalog.folder.read(file)
    undecided: dict[str, Sources] = {}
    if read is not None and manifest.state_of(file, read.digest) in _UNDECIDED:
        # Without tools, or with a syntax error, it has no sources.
        undecided["on disk"] = read.sources or {Path(file).name: (catalog.root / file).read_bytes()}
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


def _file_of(catalog: Catalog, tool: str, manifest: Manifest) -> str:
    """Return the file that declares a tool, or declared it when it was last admitted."""
    served = {name: version.file for name, version in catalog.current.served.items()}
    declared = {name: status.file for status in catalog.statuses() for name in status.tools}
    if file := served.get(tool) or declared.get(tool):
        return file
    versions = catalog.archive.history_of_tool(manifest.catalog, tool)
    if not versions:
        raise UnknownTool(tool, {**declared, **served})
    return versions[0].file


def new_findings(old: Reading | None, new: Reading) -> list[Finding]:
    """Return the findings of a version that an earlier one lacks, ignoring line numbers.

    Overruled errors are always included: each version needs its own decision.
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


class RequestedPermissions(Value):
    """The permissions a tool requests beyond its earlier version; `str` gives one line."""

    tool: str
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    workspace: Literal["read", "write"] | None = None
    without_sandbox: bool = False
    without_approval: bool = False
    """The earlier version required approval of its calls, this one does not."""

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


def requested_permissions(old: Reading | None, new: Reading) -> tuple[RequestedPermissions, ...]:
    """Return the permissions that tools of a version request beyond an earlier one."""
    before = {spec.name: spec.rights for spec in old.tools} if old else {}
    requests = (_beyond(before.get(spec.name), spec.name, spec.rights) for spec in new.tools)
    return tuple(item for item in requests if item != RequestedPermissions(tool=item.tool))


def _beyond(old: Permissions | None, tool: str, new: Permissions) -> RequestedPermissions:
    old = old or Permissions()
    wider = new.workspace != old.workspace and old.workspace != "write"
    return RequestedPermissions(
        tool=tool,
        network=tuple(host for host in new.network if host not in old.network),
        secrets=tuple(name for name in new.secrets if name not in old.secrets),
        capabilities=tuple(item for item in new.capabilities if item not in old.capabilities),
        workspace=new.workspace if wider else None,
        without_sandbox=old.sandbox and not new.sandbox,
        without_approval=_caution(new) < _caution(old),
    )


def _caution(rights: Permissions) -> int:
    """Rank how often calls need approval: never, with some arguments, always."""
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
    if data is None:
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return len(data) <= _MAX_DATA and b"\0" not in data


def _text(data: bytes) -> str:
    """Decode as Python does, with surrogates for undecodable bytes."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding not in ("utf-8", "utf-8-sig"):  # keep a BOM visible
            return data.decode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        pass  # Python rejects the file, too
    return data.decode("utf-8", "surrogateescape")


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
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
    """Yield the opcodes from the first change to the last, with context."""
    same = _common(zip(old, new, strict=False))
    rest = min(len(old), len(new)) - same
    tail = min(_common(zip(reversed(old), reversed(new), strict=False)), rest)
    old_end, new_end = len(old) - tail, len(new) - tail
    around = min(same, _CONTEXT)
    yield "equal", same - around, same, same - around, same
    if max(old_end, new_end) - same > _MAX_COMPARED:
        yield "replace", same, old_end, same, new_end
    else:
        matcher = SequenceMatcher(None, old[same:old_end], new[same:new_end])
        for kind, a, b, c, d in matcher.get_opcodes():
            yield kind, same + a, same + b, same + c, same + d
    around = min(tail, _CONTEXT)
    yield "equal", old_end, old_end + around, new_end, new_end + around


def _groups(opcodes: Iterable[_Opcode]) -> Iterator[list[_Opcode]]:
    """Group opcodes into hunks, which are separated by long runs of equal lines."""
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
    """Format a range of lines; an empty range has the number of the line before it."""
    return f"{start + (end > start)},{end - start}"


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield mark + _visible(line.removesuffix("\n"))
        if not line.endswith(("\n", "\r")):
            yield "\\ No newline at end of file"


def _visible(text: str) -> str:
    """Spell out invisible characters and truncate long text."""
    cut = len(text) - _MAX_LINE_LENGTH
    text = text[:_MAX_LINE_LENGTH]
    hidden = {index for index, _ in text_lint.hidden_characters(text)}
    shown = [
        char if char == "\t" or (char.isprintable() and index not in hidden) else _escape(char)
        for index, char in enumerate(text)
    ]
    return "".join(shown) + (f"<… {cut:,} more characters>" if cut > 0 else "")


def _escape(char: str) -> str:
    code = ord(char)
    return f"<0x{code - 0xDC00:02X}>" if 0xDC80 <= code <= 0xDCFF else f"<U+{code:04X}>"
