"""Arguments that take long to check: the event loop goes on meanwhile."""

import sys
import threading
from collections.abc import ItemsView
from types import FrameType
from typing import Any

from toolkiln import Context, Kiln, tool
from toolkiln.config import Settings


@tool
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


@tool(requires_secrets=["PASSWORD"])
def repeat(ctx: Context, count: int) -> str:
    """Return what looks like beginnings of a secret, which takes long to mask.

    Args:
        count: How many.
    """
    return "pass…" * count


async def test_long_results_are_masked_outside_of_the_event_loop(tmp_path: Any) -> None:
    settings = Settings(
        state=tmp_path,
        environ={"TOOLKILN_SECRET_PASSWORD": "password-of-the-tool"},
        grants={"repeat": {"secrets": ["PASSWORD"]}},
    )
    masked: list[int] = []

    def note_long_texts(frame: FrameType, event: str, _: Any) -> None:
        """A profile function sees the thread that set it, here that of the event loop."""
        if event == "call" and "masking" in frame.f_code.co_filename:
            masked.extend(len(it) for it in frame.f_locals.values() if isinstance(it, str | bytes))

    async with Kiln(functions=[repeat], settings=settings) as kiln:
        sys.setprofile(note_long_texts)
        try:
            result = await kiln.call("repeat", {"count": 1_000})
        finally:
            sys.setprofile(None)

    assert result.status == "ok"
    assert max(masked, default=0) < 5_000
