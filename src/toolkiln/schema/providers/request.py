"""The tools of one request, from compiled ones: what stands under `tools` in its body.

Gemini wants all declarations in one element. Anthropic counts what its strict tools have
together, so that those beyond the counts go without `strict`: their schema stays as it
is, and what a model sends for them is decoded as ever.
"""

from collections.abc import Iterable
from typing import Any

from toolkiln.schema.providers.anthropic import LIMITS
from toolkiln.schema.providers.compiled import Compiled
from toolkiln.schema.providers.limits import measure

_MOST_STRICT = 20
"""Tools of one request that Anthropic holds a model to."""


def request_tools(provider: str, tools: Iterable[Compiled]) -> list[dict[str, Any]]:
    """The value of `tools` in a request, for tools that were compiled for this provider."""
    payloads = [made.payload for made in tools]
    if provider == "gemini":
        return [{"functionDeclarations": payloads}] if payloads else []
    if provider == "anthropic-strict":
        return _within_counts(payloads)
    return payloads


def _within_counts(payloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    left = {quantity: limit for quantity, limit, _ in LIMITS} | {"tools": _MOST_STRICT}
    told: list[dict[str, Any]] = []
    for payload in payloads:
        sizes = measure(payload["input_schema"])
        takes = {"optional": sizes.optional, "unions": sizes.unions, "tools": 1}
        if "strict" in payload and all(takes[name] <= left[name] for name in left):
            left = {name: left[name] - takes[name] for name in left}
            told.append(payload)
        else:
            told.append({key: value for key, value in payload.items() if key != "strict"})
    return told
