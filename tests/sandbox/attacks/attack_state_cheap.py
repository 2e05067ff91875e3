"""Traces between calls of a tool: a fresh process for each."""
# mypy: ignore-errors

import leaving

from toolkiln import tool


@tool
def leave_cheap(marker: str) -> str:
    """Leave traces."""
    return leaving.leave(marker)


@tool
def look_cheap(since: float) -> dict[str, object]:
    """Look for them."""
    return leaving.look(since)
