"""Tasks as clients of both eras are told of them; how they run is the Kiln's business."""

from datetime import UTC, datetime
from typing import Any

from toolkiln.model import Status, Task

_KEPT = 3_600_000
"""Milliseconds that a finished task is kept."""
_POLL = 1_000


def legacy_task(task: Task) -> dict[str, Any]:
    """A task of the protocol of 2025-11-25."""
    return {**_common(task), "ttl": _KEPT, "pollInterval": _POLL}


def modern_task(task: Task) -> dict[str, Any]:
    """A task of the extension."""
    return {**_common(task), "ttlMs": _KEPT, "pollIntervalMs": _POLL}


def status(task: Task) -> str:
    """How a task stands, in the protocol's words."""
    if task.result is not None:
        return "cancelled" if task.result.status is Status.CANCELLED else "completed"
    return {"pending": "input_required", "lost": "failed", "done": "completed"}.get(
        task.state, "working"
    )


def _common(task: Task) -> dict[str, Any]:
    found = {
        "taskId": task.id,
        "status": status(task),
        "createdAt": _time(task.started),
        "lastUpdatedAt": _time(_updated(task)),
    }
    said = task.progress or {"lost": "the process that ran it died"}.get(task.state, "")
    return found | ({"statusMessage": said} if said else {})


def _updated(task: Task) -> float:
    """When it ended, as far as that is known; of one that goes on, this moment."""
    if task.result is None:
        return datetime.now(UTC).timestamp()
    timing = task.result.timing
    return timing.started + timing.duration or task.started


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
