"""`/v1/proposals`: files that wait for a person to admit them, and the answers.

The same as `toolkiln admit` and `toolkiln reject`: nothing that waits is in `/v1/tools`.
"""

from typing import Annotated, Literal

from pydantic import Field

from toolkiln.app import errands
from toolkiln.model import Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Body, Count, Page, Reason
from toolkiln.surfaces.http.writing import Remark, refusal_of

_MOST_LISTED = 50

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ProposalsQuery(Page):
    """Which part of the list; each has its source with it."""

    state: Literal["all", "proposed"] = "all"
    """All that waits, or what somebody proposed by a tool or the API, which takes less time."""
    limit: Annotated[Count, Field(ge=1, le=_MOST_LISTED)] = 20


class ProposalList(Value):
    """A part of what waits, by file."""

    items: tuple[errands.ProposedFile, ...]
    next_cursor: str | None
    total: int
    """How many wait in all."""


class AnswerBody(Body):
    """What was looked at, as the list gave it."""

    file: Annotated[str, Field(min_length=1, max_length=4_096)]
    digest: Digest
    base: Digest | None
    reason: Reason = ""


class AdmitBody(AnswerBody):
    """How a file is admitted."""

    grant: bool = False
    """Whether all that its tools ask for is granted with it."""


class AdmittedFile(Value):
    """What became of a file that was admitted."""

    file: str
    tools: tuple[str, ...]
    """Those that are served."""
    digest: str
    version: int
    warnings: tuple[Remark, ...]
    notes: tuple[str, ...]
    """What did not come about: it is switched off, or search could not follow."""


class RejectedFile(Value):
    """That a file is not served as it is."""

    file: str
    digest: str
    served: bool
    """Whether an earlier version of it is served on."""


async def list_proposals(visit: Visit, query: ProposalsQuery) -> ProposalList:
    """The files that wait, with all that helps to decide."""
    errand = errands.ListWaiting(only_proposed=query.state == "proposed")
    found = await visit.kiln.tend(errand, visit.session)
    waiting = sorted(found)
    start = 0
    if query.cursor is not None:
        (after,) = cursors.read("proposals", query.cursor, str)
        start = sum(1 for file in waiting if file <= after)
    part = waiting[start : start + query.limit]
    is_last = start + query.limit >= len(waiting)
    shown = await visit.kiln.tend(errands.ShowWaiting(files=tuple(part)), visit.session)
    return ProposalList(
        items=tuple(sorted(shown, key=lambda one: one.file)),
        next_cursor=None if is_last else cursors.made("proposals", part[-1]),
        total=len(waiting),
    )


async def admit(visit: Visit, body: AdmitBody) -> AdmittedFile:
    """Let a file be served as it was looked at."""
    authored = await visit.kiln.tend(errands.Admit(**body.model_dump()), visit.session)
    if not authored.success:
        raise refusal_of(authored, body.file)
    assert authored.version is not None
    return AdmittedFile(
        file=body.file,
        tools=authored.functions_registered,
        digest=authored.digest,
        version=authored.version,
        warnings=tuple(Remark(**one.model_dump()) for one in authored.warnings),
        notes=tuple(f"{s.stage}: {s.message}" for s in authored.stages if not s.ok),
    )


async def reject(visit: Visit, body: AnswerBody) -> RejectedFile:
    """Keep a file from being served as it was looked at."""
    is_served = await visit.kiln.tend(errands.Reject(**body.model_dump()), visit.session)
    return RejectedFile(file=body.file, digest=body.digest, served=is_served)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/proposals",
        name="list_proposals",
        summary="List files that wait for a person to admit them",
        description="Takes the privilege ADMIN.",
        handle=list_proposals,
        group="proposals",
        query=ProposalsQuery,
        answers={200: ProposalList},
    ),
    Operation(
        method="POST",
        path="/v1/proposals/admit",
        name="admit_proposal",
        summary="Let a file be served, exactly as it was looked at",
        description=(
            "Takes the privilege ADMIN. The file is checked, imported and tried out in the "
            "sandbox first. `file`, `digest` and `base` are those of the list: where the file or "
            "what is served is another version by now, nothing is decided: 412."
        ),
        handle=admit,
        group="proposals",
        body=AdmitBody,
        answers={200: AdmittedFile},
        problems=(409, 412),
        idempotent_by_key=True,
    ),
    Operation(
        method="POST",
        path="/v1/proposals/reject",
        name="reject_proposal",
        summary="Keep a file from being served as it was looked at",
        description="Takes the privilege ADMIN. An earlier version of it is served on.",
        handle=reject,
        group="proposals",
        body=AnswerBody,
        answers={200: RejectedFile},
        problems=(409, 412),
        idempotent_by_key=True,
    ),
)
