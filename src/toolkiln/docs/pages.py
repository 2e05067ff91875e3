"""A tool's spec → the page about it, for people; and its guide, for models that chose it.

Both hold what static reading learned, nothing that was tried out: what a tool says of
its own effects is repeated here as its word. How pages look is for `markdown` and `rst`.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from toolkiln.docs import prose
from toolkiln.docs.blocks import (
    Blocks,
    Bullets,
    Code,
    Inline,
    Listing,
    Page,
    Paragraph,
    Section,
    Strong,
    Text,
    joined,
    labelled,
    paragraph,
)
from toolkiln.docs.markdown import markdown
from toolkiln.docs.schemas import SchemaWords
from toolkiln.model import Admission, Grant, JsonSchema, Limits, ToolSpec

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_MARKED = re.compile(r"^ *(>>>|```|~~~)", re.MULTILINE)
_DIGITS = 12
"""How much of a digest people compare."""


def page(spec: ToolSpec, admission: Admission | None = None) -> str:
    """The page about a tool as Markdown, with its version and rights if it was admitted."""
    return markdown(page_of(spec, admission))


def guide(spec: ToolSpec) -> str:
    """What a model needs to use a tool that it has chosen, as Markdown."""
    sections = (*_use(spec), *_conduct(spec, None))
    return markdown(Page(_title(spec.name), _opening(spec), sections))


def page_of(spec: ToolSpec, admission: Admission | None = None) -> Page:
    """The page about a tool as structure."""
    rights = admission.rights if admission and admission.is_reviewed else {}
    grant = rights.get(spec.name, Grant()) if admission else None
    sections = (*_use(spec), *_conduct(spec, grant), *_origin(spec, admission))
    opening = (paragraph("Name: ", Code(spec.name)), *_opening(spec))
    return Page(_title(spec.display_name), opening, sections)


def page_name(tool: str) -> str:
    """The name of a tool's page, without its ending; safe as a file name whatever the tool's."""
    if _PLAIN_NAME.fullmatch(tool):
        return tool
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", tool)[:40].strip("-")
    return f"{plain}-{hashlib.sha256(tool.encode(errors='surrogatepass')).hexdigest()[:12]}"


def _title(text: str) -> str:
    return prose.one_line(text) or "Untitled"


def _opening(spec: ToolSpec) -> Blocks:
    """What a model reads when it chooses, then what the docstring says beyond that."""
    chosen, text = spec.description.strip(), spec.documentation.text.strip()
    if not text.startswith(chosen):
        text = f"{chosen}\n\n{text}"
    return prose.blocks(text)


def _use(spec: ToolSpec) -> Iterator[Section]:
    """The sections on how to use a tool."""
    documentation = spec.documentation
    for section in documentation.sections:
        title = prose.one_line(section.title)
        if title and section.body.strip():
            yield Section(title, prose.blocks(section.body))
    if spec.usages:
        yield Section("Typical requests", (_list(*([Text(usage)] for usage in spec.usages)),))
    yield Section("Parameters", _parameters(spec))
    if spec.returns is not None or documentation.returns:
        yield Section("Returns", _returns(spec))
    if documentation.raises:
        errors = (labelled([Code(e.type)], prose.blocks(e.text)) for e in documentation.raises)
        yield Section("Errors", (Bullets(tuple(errors)),))
    if documentation.examples.strip():
        yield Section("Examples", _examples(documentation.examples))


def _conduct(spec: ToolSpec, grant: Grant | None) -> Iterator[Section]:
    """The sections on what running a tool means."""
    yield Section("Behaviour", (_list(*_behaviour(spec)),))
    yield Section("Rights", (_list(*_asked(spec), *(_granted(grant) if grant else ())),))


def _origin(spec: ToolSpec, admission: Admission | None) -> Iterator[Section]:
    """The sections on where a tool comes from and what it takes to serve it."""
    for kind, schema in sorted(spec.settings.items()):
        yield Section(f"Settings of the {kind}", _schema(schema) or (paragraph("None."),))
    if spec.requirements:
        yield Section("Requirements", (_list(*([Code(one)] for one in spec.requirements)),))
    if kit := spec.toolkit:
        name = paragraph(Strong(_title(kit.display_name)), " (", Code(kit.name), ")")
        yield Section("Toolkit", (name, *prose.blocks(kit.description)))
    facts: list[list[Inline]] = [[Text("Digest: "), Code(spec.digest[:_DIGITS])]]
    if admission:
        said = f"{admission.version}, admitted by {admission.admitted_by}"
        facts.insert(0, [Text(f"Number: {said} at {admission.admitted_at}")])
    source = PurePath(spec.path).name
    facts.append([Text("Source: "), Code(source), Text(f", line {spec.line}")])
    yield Section("Version", (_list(*facts),))


def _parameters(spec: ToolSpec) -> Blocks:
    notes = {one.name: one.text for one in spec.documentation.parameters}
    blocks = _schema(spec.parameters, notes) or (paragraph("It takes no arguments."),)
    if spec.parameters.get("additionalProperties", True) is not False:
        blocks = (*blocks, paragraph("Other arguments are accepted too."))
    return blocks


def _returns(spec: ToolSpec) -> Blocks:
    said = prose.blocks(spec.documentation.returns)
    if spec.returns is None:
        return said
    words = SchemaWords(spec.returns)
    kind = Paragraph((Text("Type: "), *words.phrase(spec.returns)))
    return (*said, kind, *words.members(spec.returns), *words.types())


def _schema(schema: JsonSchema, notes: dict[str, str] | None = None) -> Blocks:
    words = SchemaWords(schema)
    members = words.members(schema, notes)
    return (*members, *words.types())


def _examples(text: str) -> Blocks:
    # Doctests and fences can be told from words between them; anything else is code.
    if _MARKED.search(text):
        return prose.blocks(text)
    return (Listing(text.strip("\n"), "python"),)


def _behaviour(spec: ToolSpec) -> Iterator[list[Inline]]:
    hints = {
        "read-only": spec.hints.read_only,
        "destructive": spec.hints.destructive,
        "idempotent": spec.hints.idempotent,
        "open-world": spec.hints.open_world,
    }
    said = [word if value else f"not {word}" for word, value in hints.items() if value is not None]
    if said:
        yield [Text(f"By its own account: {', '.join(said)}.")]
    if spec.cannot_be_disabled:
        yield [Text("Core: cannot be disabled.")]
    together = "together with others" if spec.parallel else "alone, not together with others"
    yield [Text(f"Calls of one batch run {together}.")]
    if spec.output_kind:
        yield [Text("Kind of output: "), Code(spec.output_kind)]
    yield [Text(f"Output is cut after {spec.limits.return_char_limit:,} characters.")]
    if bounds := list(_bounds(spec.limits)):
        yield [Text(f"Ended beyond {', '.join(bounds)}.")]


def _bounds(limits: Limits) -> Iterator[str]:
    if limits.timeout is not None:
        yield f"{limits.timeout:,g} seconds"
    if limits.cpu is not None:
        yield f"{limits.cpu:,g} seconds of processor time"
    if limits.memory is not None:
        yield f"{limits.memory:,} bytes of memory"
    if limits.disk is not None:
        yield f"{limits.disk:,} bytes of files"
    if limits.processes is not None:
        yield f"{limits.processes:,} processes"


def _asked(spec: ToolSpec) -> Iterator[list[Inline]]:
    rights = spec.rights
    asked = [
        ("network", rights.network),
        ("secrets", rights.secrets),
        ("workspace", (rights.workspace,) if rights.workspace else ()),
        ("capabilities", rights.capabilities),
    ]
    found = [_codes(f"Asks for {word}: ", values) for word, values in asked if values]
    if not rights.sandbox:
        found.append([Text("Asks to run without the sandbox.")])
    yield from found or [[Text("Asks for nothing beyond its arguments.")]]
    if rights.needs_approval:
        some = " with some arguments" if rights.approval_function else ""
        yield [Text(f"A person has to approve calls{some}.")]
    if spec.uses:
        yield _codes("Its source was seen to touch: ", spec.uses)


def _granted(grant: Grant) -> Iterator[list[Inline]]:
    found = []
    if grant.network:
        found.append(_codes("Granted network: ", grant.network))
    if grant.secrets:
        found.append(_codes("Granted secrets: ", grant.secrets))
    if grant.workspace:
        found.append(_codes("Granted workspace: ", (grant.workspace,)))
    if not grant.sandbox:
        found.append([Text("Granted to run without the sandbox.")])
    yield from found or [[Text("Granted: nothing.")]]


def _codes(before: str, values: tuple[str, ...]) -> list[Inline]:
    return [Text(before), *joined([[Code(str(value))] for value in values], ", ")]


def _list(*lines: Sequence[Inline]) -> Bullets:
    return Bullets(tuple((Paragraph(tuple(line)),) for line in lines))
