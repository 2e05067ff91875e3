"""Traces between calls of a tool: forked from a template."""
# mypy: ignore-errors

import time

import leaving

from toolkiln import tool

time.sleep(0.06)  # worth keeping warm


@tool
def leave_heavy(marker: str) -> str:
    """Leave traces."""
    return leaving.leave(marker)


@tool
def look_heavy(since: float) -> dict[str, object]:
    """Look for them."""
    return leaving.look(since)
