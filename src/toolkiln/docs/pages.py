"""Tool pages for people, and the prompt index.

The content comes from static reading; nothing is tested, so declared effects are presented as
the tool's own claims.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from toolkiln.docs import blocks as prose
from toolkiln.docs.blocks import (
    Blocks,
    Bullets,
    CodeBlock,
    CodeSpan,
    DocPage,
    Inline,
    PageSection,
    Paragraph,
    Strong,
    TextSpan,
    blocks_markdown,
    first_sentence,
    joined,
    labelled,
    markdown,
    one_line,
    paragraph,
)
from toolkiln.docs.schema_text import SchemaWords
from toolkiln.model.base import JsonSchema
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission
from toolkiln.model.spec import Limits, ToolSpec

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_CODE_MARKER = re.compile(r"^ *(>>>|```|~~~)", re.MULTILINE)
_DIGEST_LENGTH = 12


def page(spec: ToolSpec, admission: Admission | None = None) -> str:
    """Render the page of a tool as Markdown, with its version and grants if admitted."""
    return markdown(page_of(spec, admission))


def behaviour(spec: ToolSpec) -> str:
    """Render how calls of a tool run and what it may do, as a Markdown list for a model."""
    return blocks_markdown((_list(*_behaviour(spec), *_requested(spec)),))


def page_of(spec: ToolSpec, admission: Admission | None = None) -> DocPage:
    """Build the page of a tool."""
    rights = admission.rights if admission and admission.is_reviewed else {}
    grant = rights.get(spec.name, Grant()) if admission else None
    sections = (
        *_usage_sections(spec),
        *_behaviour_sections(spec, grant),
        *_origin_sections(spec, admission),
    )
    opening = (paragraph("Name: ", CodeSpan(spec.name)), *_opening(spec))
    return DocPage(_title(spec.display_name), opening, sections)


def page_name(tool: str) -> str:
    """Return the name of a tool's page without suffix; always safe as a file name."""
    if _PLAIN_NAME.fullmatch(tool):
        return tool
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", tool)[:40].strip("-")
    return f"{plain}-{hashlib.sha256(tool.encode(errors='surrogatepass')).hexdigest()[:12]}"


def _title(text: str) -> str:
    return prose.one_line(text) or "Untitled"


def _opening(spec: ToolSpec) -> Blocks:
    description, text = spec.description.strip(), spec.documentation.text.strip()
    if not text.startswith(description):
        text = f"{description}\n\n{text}"
    return prose.blocks(text)


def _usage_sections(spec: ToolSpec) -> Iterator[PageSection]:
    documentation = spec.documentation
    for section in documentation.sections:
        title = prose.one_line(section.title)
        if title and section.body.strip():
            yield PageSection(title, prose.blocks(section.body))
    if spec.toolkit and spec.toolkit.usage_guide:
        yield PageSection("Usage guide", prose.blocks(spec.toolkit.usage_guide))
    if spec.usages:
        yield PageSection(
            "Typical requests", (_list(*([TextSpan(usage)] for usage in spec.usages)),)
        )
    yield PageSection("Parameters", _parameters(spec))
    if spec.returns is not None or documentation.returns:
        yield PageSection("Returns", _returns(spec))
    if documentation.raises:
        errors = (labelled([CodeSpan(e.type)], prose.blocks(e.text)) for e in documentation.raises)
        yield PageSection("Errors", (Bullets(tuple(errors)),))
    if documentation.examples.strip():
        yield PageSection("Examples", _examples(documentation.examples))


def _behaviour_sections(spec: ToolSpec, grant: Grant | None) -> Iterator[PageSection]:
    yield PageSection("Behaviour", (_list(*_behaviour(spec)),))
    permissions = _list(*_requested(spec), *(_granted(grant) if grant else ()))
    yield PageSection("Rights", (permissions,))


def _origin_sections(spec: ToolSpec, admission: Admission | None) -> Iterator[PageSection]:
    for kind, schema in sorted(spec.settings.items()):
        yield PageSection(f"Settings of the {kind}", _schema(schema) or (paragraph("None."),))
    if spec.requirements:
        requirements = ([CodeSpan(requirement)] for requirement in spec.requirements)
        yield PageSection("Requirements", (_list(*requirements),))
    for section in spec.documentation.module:
        yield PageSection(prose.one_line(section.title), prose.blocks(section.body))
    if kit := spec.toolkit:
        name = paragraph(Strong(_title(kit.display_name)), " (", CodeSpan(kit.name), ")")
        yield PageSection("Toolkit", (name, *prose.blocks(kit.description)))
    facts: list[list[Inline]] = [[TextSpan("Digest: "), CodeSpan(spec.digest[:_DIGEST_LENGTH])]]
    if admission:
        by, at = admission.admitted_by, admission.admitted_at
        facts.insert(0, [TextSpan(f"Number: {admission.version}, admitted by {by} at {at}")])
    source = PurePath(spec.path).name
    facts.append([TextSpan("Source: "), CodeSpan(source), TextSpan(f", line {spec.line}")])
    yield PageSection("Version", (_list(*facts),))


def _parameters(spec: ToolSpec) -> Blocks:
    notes = {parameter.name: parameter.text for parameter in spec.documentation.parameters}
    blocks = _schema(spec.parameters, notes) or (paragraph("No parameters."),)
    if spec.parameters.get("additionalProperties", True) is not False:
        blocks = (*blocks, paragraph("Additional arguments are accepted."))
    return blocks


def _returns(spec: ToolSpec) -> Blocks:
    description = prose.blocks(spec.documentation.returns)
    if spec.returns is None:
        return description
    words = SchemaWords(spec.returns)
    kind = Paragraph((TextSpan("Type: "), *words.phrase(spec.returns)))
    return (*description, kind, *words.members(spec.returns), *words.types())


def _schema(schema: JsonSchema, notes: dict[str, str] | None = None) -> Blocks:
    words = SchemaWords(schema)
    members = words.members(schema, notes)
    return (*members, *words.types())


def _examples(text: str) -> Blocks:
    # Doctests and fences are distinguishable from prose between them; other text is code.
    if _CODE_MARKER.search(text):
        return prose.blocks(text)
    return (CodeBlock(text.strip("\n"), "python"),)


def _behaviour(spec: ToolSpec) -> Iterator[list[Inline]]:
    hints = {
        "read-only": spec.hints.read_only,
        "destructive": spec.hints.destructive,
        "idempotent": spec.hints.idempotent,
        "open-world": spec.hints.open_world,
    }
    known = [word if value else f"not {word}" for word, value in hints.items() if value is not None]
    if known:
        yield [TextSpan(f"Declared effects: {', '.join(known)}.")]
    if spec.cannot_be_disabled:
        yield [TextSpan("Core: cannot be disabled.")]
    order = "concurrently" if spec.parallel else "one at a time"
    yield [TextSpan(f"Calls of one batch run {order}.")]
    if spec.output_kind:
        yield [TextSpan("Kind of output: "), CodeSpan(spec.output_kind)]
    characters = spec.output_characters(spec.output_kind)
    yield [TextSpan(f"Output is truncated after {characters:,} characters.")]
    if limits := list(_limits(spec.limits)):
        yield [TextSpan(f"Stopped after exceeding {', '.join(limits)}.")]


def _limits(limits: Limits) -> Iterator[str]:
    if limits.timeout is not None:
        yield f"{limits.timeout:,g} seconds"
    if limits.cpu is not None:
        yield f"{limits.cpu:,g} seconds of CPU time"
    if limits.memory is not None:
        yield f"{limits.memory:,} bytes of memory"
    if limits.disk is not None:
        yield f"{limits.disk:,} bytes of files"
    if limits.processes is not None:
        yield f"{limits.processes:,} processes"


def _requested(spec: ToolSpec) -> Iterator[list[Inline]]:
    rights = spec.rights
    requested = [
        ("network", rights.network),
        ("secrets", rights.secrets),
        ("workspace", (rights.workspace,) if rights.workspace else ()),
        ("capabilities", rights.capabilities),
    ]
    lines = [_codes(f"Requests {name}: ", values) for name, values in requested if values]
    if not rights.sandbox:
        lines.append([TextSpan("Requests to run unsandboxed.")])
    yield from lines or [[TextSpan("Requests no permissions.")]]
    if rights.needs_approval:
        some = " with some arguments" if rights.approval_function else ""
        yield [TextSpan(f"Calls{some} need approval.")]
    if spec.uses:
        yield _codes("Capabilities used by its source: ", spec.uses)


def _granted(grant: Grant) -> Iterator[list[Inline]]:
    lines = []
    if grant.network:
        lines.append(_codes("Granted network: ", grant.network))
    if grant.secrets:
        lines.append(_codes("Granted secrets: ", grant.secrets))
    if grant.workspace:
        lines.append(_codes("Granted workspace: ", (grant.workspace,)))
    if not grant.sandbox:
        lines.append([TextSpan("Granted to run unsandboxed.")])
    yield from lines or [[TextSpan("No permissions granted.")]]


def _codes(label: str, values: tuple[str, ...]) -> list[Inline]:
    return [TextSpan(label), *joined([[CodeSpan(str(value))] for value in values], ", ")]


def _list(*lines: Sequence[Inline]) -> Bullets:
    return Bullets(tuple((Paragraph(tuple(line)),) for line in lines))


def prompt_index(specs: Iterable[ToolSpec], budget: int = 8_000) -> str:
    """List tools by group, one line each, within about `budget` characters."""
    groups = grouped(specs)
    remaining = sum(len(members) for _, members in groups)
    budget -= len(_more(remaining))
    lines: list[str] = []
    for title, members in groups:
        heading = ["", f"{title}:"] if lines else [f"{title}:"]
        for spec in members:
            entry = [*heading, f"- {one_line(spec.name)}: {first_sentence(spec.description)}"]
            budget -= sum(len(line) + 1 for line in entry)
            if budget < 0:
                return "\n".join([*lines, _more(remaining)])
            lines += entry
            heading = []
            remaining -= 1
    return "\n".join(lines)


def grouped(specs: Iterable[ToolSpec]) -> list[tuple[str, list[ToolSpec]]]:
    """Group tools by title: core tools, tools without a toolkit, then each toolkit, by weight."""
    ordered = sorted(specs, key=lambda spec: (_group(spec), spec.weight, spec.name))
    return [(group[2], list(members)) for group, members in groupby(ordered, key=_group)]


def _group(spec: ToolSpec) -> tuple[int, int, str, str]:
    kit = spec.toolkit
    if spec.cannot_be_disabled:
        return 0, 0, "Core", ""
    return (2, kit.weight, one_line(kit.display_name), kit.name) if kit else (1, 0, "Tools", "")


def _more(number: int) -> str:
    return f"and {number:,} more: use search_tools"
