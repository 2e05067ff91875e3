"""A module being written: its imports, its definitions and the order they may have.

`expressions` and `definitions` write the parts, `generate` the whole. All choices go
through one hypothesis `draw`, simplest first, so that a failing module shrinks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_SHORT = {
    "typing": "t",
    "datetime": "dt",
    "pydantic": "p",
    "annotated_types": "at",
    "collections.abc": "cabc",
    "typing_extensions": "te",
    "enum": "e",
    "dataclasses": "dc",
}


@lru_cache(maxsize=4096)
def _choice(options: tuple[T, ...]) -> st.SearchStrategy[T]:
    return st.sampled_from(options)


@dataclass(frozen=True)
class Block:
    """One top-level statement and the names that must be defined above it."""

    name: str
    text: str
    needs: frozenset[str]


@dataclass(frozen=True)
class Named:
    """A definition that type expressions may refer to."""

    name: str
    kind: str
    defaults: tuple[str, ...] = ()
    """Expressions for a value of this type."""


@dataclass
class Draft:
    """What has been written so far, and the source of all choices."""

    draw: st.DrawFn
    lazy: bool = False
    """Under `from __future__ import annotations`."""
    known: list[Named] = field(default_factory=list)
    """Definitions written so far."""
    ahead: list[Named] = field(default_factory=list)
    """Definitions to come, which a quoted or lazy annotation may already name."""
    blocks: list[Block] = field(default_factory=list)
    _imports: dict[str, None] = field(default_factory=dict)
    _styles: dict[str, str] = field(default_factory=dict)
    _needs: set[str] = field(default_factory=set)
    _soft: int = 0

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        chosen: T = self.draw(_choice(tuple(options)))
        return chosen

    def some(self, options: Sequence[T], least: int = 0, most: int = 3) -> list[T]:
        """A few different ones, in the order of the options."""
        count = self.count(least, min(most, len(options)))
        rest = list(range(len(options)))
        chosen = sorted(rest.pop(self.count(0, len(rest) - 1)) for _ in range(count))
        return [options[index] for index in chosen]

    def count(self, least: int, most: int) -> int:
        """A number between the two, both included."""
        return self.pick(range(least, most + 1))

    def rarely(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.pick(range(one_in)) == one_in - 1

    def use(self, path: str) -> str:
        """The spelling of an importable name (`typing.Optional`), its import noted."""
        module, _, name = path.rpartition(".")
        if not module:
            return name
        if module not in self._styles:
            styles = ("from", "from", "from", "module", "short", "renamed")
            self._styles[module] = self.pick(styles)
        style = self._styles[module]
        if style == "module":
            self._imports[f"import {module}"] = None
            return path
        if style == "short" and module in _SHORT:
            self._imports[f"import {module} as {_SHORT[module]}"] = None
            return f"{_SHORT[module]}.{name}"
        if style == "renamed":
            self._imports[f"from {module} import {name} as My{name}"] = None
            return f"My{name}"
        self._imports[f"from {module} import {name}"] = None
        return name

    def refer(self, name: str) -> str:
        """A name of this module, which must be defined above unless it is read late."""
        return name if self._soft else self.evaluate(name)

    def evaluate(self, name: str) -> str:
        """A name of this module in something that runs on the spot, such as a default."""
        self._needs.add(name)
        return name

    @property
    def late(self) -> bool:
        """Whether names being written now are read only when everything is defined."""
        return self._soft > 0

    @contextmanager
    def read_late(self, late: bool = True) -> Iterator[None]:
        """While writing what is quoted, or an annotation of a lazy module."""
        self._soft += late
        try:
            yield
        finally:
            self._soft -= late

    def add(self, name: str, text: str) -> None:
        """Close the statement that was being written."""
        self.blocks.append(Block(name, text, frozenset(self._needs - {name})))
        self._needs = set()

    def source(self) -> str:
        """The module, its statements in some order that runs."""
        future = ["from __future__ import annotations"] if self.lazy else []
        waiting, placed, texts = list(self.blocks), set[str](), list[str]()
        while waiting:
            ready = [block for block in waiting if block.needs <= placed]
            # One in three leaves its place, so that order varies but shrinks to the written one.
            block = self.pick(ready) if self.rarely(3) else ready[0]
            waiting.remove(block)
            placed.add(block.name)
            texts.append(block.text)
        return "\n".join([*future, *self._imports, "", "\n\n".join(texts), ""])
