"""Writing, switching and removing tools: what changes `/v1/tools`, and who may.

What a tool's source has to be is decided by `app.authoring`, what may be switched off or
removed by the catalog; here a request is held against the version that it is about.
"""

from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from toolkiln.app import Authored, errands, read_source
from toolkiln.model import CallError, Value
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.preconditions import creates_only, expected, tag
from toolkiln.surfaces.http.problems import STATUSES, Fault, Refused
from toolkiln.surfaces.http.shapes import LONGEST_TEXT, Body, Flag, Query, Source
from toolkiln.surfaces.http.tools import ToolDetails, details


class ToolBody(Body):
    """A tool to be written."""

    source: Source
    """A Python file that declares the tool, and perhaps others."""
    description: Annotated[str, Field(max_length=LONGEST_TEXT)] = ""
    """Becomes the docstring of functions that have none."""


class Remark(Value):
    """What is wrong with a line of a source, and what to do about it."""

    line: int
    rule: str
    message: str
    fix: str


class WrittenTool(Value):
    """What became of a tool that was written."""

    name: str
    tools: tuple[str, ...]
    """All tools of its file that are served."""
    digest: str
    version: int | None
    """Null if a person has to admit it first."""
    proposed: bool
    """Whether a person has to admit it before it can be called."""
    warnings: tuple[Remark, ...]
    """What is wrong with the source, but no reason to refuse it."""
    notes: tuple[str, ...]
    """What did not come about: it is switched off, or search could not follow."""


class ToolPatch(Body):
    """What to change about an admitted tool; what is left out stays."""

    enabled: bool | None = None
    """Whether it is offered."""
    granted: Literal[True] | None = None
    """Grants all that the tools of its file ask for, in this version and later ones."""


class RemovalQuery(Query):
    """How a tool is removed."""

    others: Flag = False
    """Whether other tools of the same file may go with it."""


class ToolkitPatch(Body):
    """What to change about a toolkit."""

    enabled: bool = True
    """Whether it is offered."""
    methods: dict[str, bool] = Field(default_factory=dict)
    """By method or tool: whether it is offered; those not named are."""


class ToolkitState(Value):
    """Which tools of a toolkit are offered."""

    name: str
    tools: dict[str, bool]


async def put_tool(visit: Visit, body: ToolBody) -> Answer:
    """Write a tool: a new one, or another version of one."""
    name = visit.path["name"]
    order = errands.Write(
        name=name,
        source=body.source,
        description=body.description,
        only_new=creates_only(visit),
        match=expected(visit),
    )
    allowed = await visit.kiln.guarding.may_author(visit.session)
    if not isinstance(allowed, CallError):  # otherwise the operation below reports the refusal
        await visit.kiln.reading.run(
            visit.caller.who, lambda: _refuse_undeclared(name, body.source)
        )
    told = await visit.kiln.tend(order, visit.session)
    authored = told.authored
    if not authored.success:
        raise refusal_of(authored)
    written = WrittenTool(
        name=name,
        tools=authored.functions_registered,
        digest=authored.digest,
        version=authored.version,
        proposed=authored.proposed,
        warnings=tuple(Remark(**one.model_dump()) for one in authored.warnings),
        notes=tuple(f"{s.stage}: {s.message}" for s in authored.stages if not s.ok),
    )
    if authored.proposed:
        return Answer(written, 202)
    headers = {"etag": tag(authored.digest), "location": f"/v1/tools/{quote(name, safe='')}"}
    return Answer(written, 201 if told.is_new else 200, headers)


def _refuse_undeclared(name: str, source: str) -> None:
    declared = [spec.name for spec in read_source(source).reading.tools]
    if declared and name not in declared:
        hint = f"it declares {', '.join(declared[:5])}"
        raise Refused("refused", f"the source declares no tool named {name!r}", hint=hint)


def refusal_of(authored: Authored, place: str = "body.source") -> Refused:
    """The problem that a version did not pass; `place` is where its lines are."""
    code = authored.code if authored.code in STATUSES else "refused"
    faults = tuple(
        Fault(place=f"{place}:{one.line}", message=f"{one.rule}: {one.message}; {one.fix}")
        for one in authored.validation_errors
    )
    return Refused(code, authored.error, errors=faults or None)


async def patch_tool(visit: Visit, body: ToolPatch) -> Answer:
    """Offer a tool or cease to, or grant what it asks for."""
    errand = errands.Patch(name=visit.path["name"], match=expected(visit), **body.model_dump())
    found = details(visit, await visit.kiln.tend(errand, visit.session))
    return Answer(found, headers={"etag": tag(found.digest)})


async def delete_tool(visit: Visit, query: RemovalQuery) -> errands.RemovedTool:
    """Take a tool out of the catalog and its file off the disk."""
    errand = errands.Remove(
        name=visit.path["name"], with_others=query.others, match=expected(visit)
    )
    return await visit.kiln.tend(errand, visit.session)


async def patch_toolkit(visit: Visit, body: ToolkitPatch) -> ToolkitState:
    """Offer a toolkit or some of its methods, or cease to."""
    name = visit.path["name"]
    errand = errands.SwitchToolkit(name=name, **body.model_dump())
    return ToolkitState(name=name, tools=await visit.kiln.tend(errand, visit.session))


_SOURCE = '''\
def double(number: int) -> int:
    """Double a number.

    Args:
        number: What is doubled.
    """
    return number * 2
'''

OPERATIONS = (
    Operation(
        method="PUT",
        path="/v1/tools/{name}",
        name="put_tool",
        summary="Write a tool, or another version of it",
        description=(
            "The source is checked, imported and tried out in the sandbox. For a caller with "
            "WRITE_TOOLS the file is then written and admitted, both or neither, and can be "
            "called at once. For other callers, and with the setting `authoring = "
            '"propose"`, it becomes a proposal that a person has to admit: 202. '
            "`If-None-Match: *` replaces nothing."
        ),
        handle=put_tool,
        group="tools",
        body=ToolBody,
        answers={201: WrittenTool, 200: WrittenTool, 202: WrittenTool},
        problems=(409,),
        preconditions=("If-Match", "If-None-Match"),
        idempotent_by_key=True,
        examples={"double": {"source": _SOURCE}},
    ),
    Operation(
        method="PATCH",
        path="/v1/tools/{name}",
        name="patch_tool",
        summary="Switch a tool on or off, or grant what it asks for",
        description="Takes the privilege ADMIN. Core tools are always on.",
        handle=patch_tool,
        group="tools",
        body=ToolPatch,
        answers={200: ToolDetails},
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
        examples={"off": {"enabled": False}},
    ),
    Operation(
        method="DELETE",
        path="/v1/tools/{name}",
        name="delete_tool",
        summary="Remove a tool, its file included",
        description="Takes the privilege ADMIN. Its versions are kept: a rollback brings it back.",
        handle=delete_tool,
        group="tools",
        query=RemovalQuery,
        answers={200: errands.RemovedTool},
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
    ),
    Operation(
        method="PATCH",
        path="/v1/toolkits/{name}",
        name="patch_toolkit",
        summary="Switch a toolkit or some of its methods on or off",
        description="Takes the privilege ADMIN. Without any method left the toolkit is off.",
        handle=patch_toolkit,
        group="tools",
        body=ToolkitPatch,
        answers={200: ToolkitState},
        problems=(409,),
        idempotent_by_key=True,
    ),
)
