"""How many examples a test of a property tries. Not a test itself."""

from typing import Any

from hypothesis import settings

USUAL = 25
"""Examples of a property that says nothing of it, in the usual run."""
THOROUGH = 1000


def examples(count: int, **others: Any) -> settings:
    """So many examples where a property that says nothing of it tries a hundred."""
    return settings(max_examples=count * settings().max_examples // 100, **others)
