"""All operations under `/v1`, in the order in which the description has them."""

from toolkiln.surfaces.http import (
    approvals,
    auditing,
    calls,
    cards,
    finding,
    following,
    identities,
    presenting,
    proposals,
    rules,
    running,
    runs,
    settings,
    streams,
    tools,
    upkeep,
    versions,
    writing,
)
from toolkiln.surfaces.http.operations import Operation

OPERATIONS: tuple[Operation, ...] = (
    *cards.OPERATIONS,
    *tools.OPERATIONS,
    *presenting.OPERATIONS,
    *writing.OPERATIONS,
    *versions.OPERATIONS,
    *settings.OPERATIONS,
    *calls.OPERATIONS,
    *streams.OPERATIONS,
    *following.OPERATIONS,
    *runs.OPERATIONS,
    *running.OPERATIONS,
    *finding.OPERATIONS,
    *approvals.OPERATIONS,
    *proposals.OPERATIONS,
    *auditing.OPERATIONS,
    *identities.OPERATIONS,
    *rules.OPERATIONS,
    *upkeep.OPERATIONS,
)
