"""Traces between calls of a tool: a spare for each."""
# mypy: ignore-errors

import time

import leaving

from toolkiln import tool

time.sleep(0.06)  # worth keeping warm


@tool(isolation="call")
def leave_spare(marker: str) -> str:
    """Leave traces."""
    return leaving.leave(marker)


@tool(isolation="call")
def look_spare(since: float) -> dict[str, object]:
    """Look for them."""
    return leaving.look(since)
