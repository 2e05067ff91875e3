"""Types that pydantic has no schema for: the reader says so and claims nothing."""

from .case import singles

CASES = singles(
    "refused",
    """
    import asyncio
    import collections.abc
    import enum
    import io
    import logging
    import threading
    from collections import ChainMap, defaultdict
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
    from types import ModuleType, SimpleNamespace
    from typing import IO, Callable as TypingCallable, LiteralString, Protocol
    from pydantic import InstanceOf

    class Plain:
        a: int = 1

    class Shape(Protocol):
        def area(self) -> float: ...
    """,
    """
    bytearray; memoryview; range; slice; type; LiteralString; defaultdict; ChainMap; Callable
    Callable[[int], str]; TypingCallable[..., int]; collections.abc.Callable[[], None]; Iterator
    Iterator[int]; Collection[int]; Awaitable[int]; Coroutine[None, None, int]; IO; IO[str]
    io.StringIO; logging.Logger; threading.Lock; asyncio.Queue; ModuleType; SimpleNamespace; Plain
    Shape; InstanceOf[Plain]; list[Plain]; Plain | None
    """,
)
