"""Arguments that take long to check: the event loop goes on meanwhile."""

import threading
from collections.abc import ItemsView
from typing import Any

from toolkiln import Kiln
from toolkiln.config import Settings


def count(numbers: list[int]) -> int:
    """Count numbers.

    Args:
        numbers: Which.
    """
    return len(numbers)


class Watched(dict[str, Any]):
    """Notes in which threads it is looked at."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.threads: set[int] = set()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self.threads.add(threading.get_ident())
        return super().items()


async def test_large_arguments_are_checked_outside_of_the_event_loop(tmp_path: Any) -> None:
    watched = Watched(numbers=[*range(5_000), "no number"])

    async with Kiln(functions=[count], settings=Settings(state=tmp_path)) as kiln:
        await kiln.call("count", {"numbers": []})
        result = await kiln.call("count", watched)

    assert result.status == "invalid"
    assert watched.threads
    assert threading.get_ident() not in watched.threads
