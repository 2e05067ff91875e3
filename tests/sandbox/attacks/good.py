"""A tool that does nothing wrong."""


def good(number: int) -> int:
    """Add one."""
    return number + 1
