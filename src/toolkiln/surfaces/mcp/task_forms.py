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
    timing = task.result.timing if task.result is not None else None
    ended = timing.started + timing.duration if timing is not None else None
    found = {
        "taskId": task.id,
        "status": status(task),
        "createdAt": _time(task.started),
        "lastUpdatedAt": _time(ended or datetime.now(UTC).timestamp()),
    }
    said = task.progress or {"lost": "the process that ran it died"}.get(task.state, "")
    return found | ({"statusMessage": said} if said else {})


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
