"""Pages of a kept text: which there can be, and what is said when there is none."""

from toolkiln.errors import InputError, NotFound


def page_bounds(offset: int, limit: int) -> None:
    """See that there can be such a page.

    Raises:
        InputError: there cannot.
    """
    if offset < 0 or limit < 1:
        hint = "pages start at offset 0 and have at least one character"
        raise InputError(f"no page has offset {offset} and limit {limit}", hint=hint)


def no_output() -> NotFound:
    """That nothing is kept for this caller under a handle."""
    return NotFound(
        "no output is kept under this handle",
        hint="outputs are kept for a limited time; call the tool again",
    )
