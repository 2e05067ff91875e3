"""A tool that takes longer than clients used to wait."""

import time

from toolkiln import tool


@tool(timeout=120)
def test_slow_tool(seconds: int) -> str:
    """Wait, then say for how long.

    Args:
        seconds: How long to wait.
    """
    time.sleep(seconds)
    return f"waited for {seconds} s"
