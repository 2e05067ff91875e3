"""Which buckets a call draws a token from, by the operator's rates.

Whether a bucket has one left is for whoever keeps the buckets: the store, or Redis.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from toolkiln.execution.globs import Globs, folded
from toolkiln.model import Caller, Draw, Rate, ToolSpec

_KNOWN = 10_000
"""Tools whose rates are remembered."""


class Rates:
    """Rates by glob of tools, each for a caller (`caller`), for everybody (`tool`) or both."""

    def __init__(self, table: Mapping[str, Mapping[str, Rate]]) -> None:
        # A rate holds back, as a rule that denies does: a look-alike name does not escape it.
        self._entries = tuple((glob, Globs([glob], loose=True), table[glob]) for glob in table)
        self._of_tool = lru_cache(_KNOWN)(self._find)

    def __bool__(self) -> bool:
        """Whether anything is held back at all."""
        return bool(self._entries)

    def draws(self, caller: Caller, spec: ToolSpec) -> tuple[Draw, ...]:
        """The tokens that a call takes, all or none of them."""
        if not self._entries:
            return ()
        of_tool = self._of_tool(spec.name)
        if not of_tool.of_callers:
            return of_tool.of_everybody
        who = (caller.platform, caller.user_id)
        own = [Draw(_bucket("caller", *of, *who), rate) for of, rate in of_tool.of_callers]
        return (*own, *of_tool.of_everybody)

    def _find(self, name: str) -> "_OfTool":
        looks = folded(name)
        fitting = [(glob, rates) for glob, globs, rates in self._entries if globs.fits(name, looks)]
        return _OfTool(
            tuple(
                # All tools together, where the rate is for all of them.
                ((glob, None if glob == "*" else name), rates["caller"])
                for glob, rates in fitting
                if "caller" in rates
            ),
            tuple(
                Draw(_bucket("tool", glob, name), rates["tool"])
                for glob, rates in fitting
                if "tool" in rates
            ),
        )


class _OfTool(NamedTuple):
    of_callers: tuple[tuple[tuple[str, str | None], Rate], ...]
    of_everybody: tuple[Draw, ...]


def _bucket(*parts: str | None) -> str:
    """A name of fixed length: what people and tools are called may hold anything."""
    return blake2b(ascii(parts).encode("ascii"), digest_size=16).hexdigest()
