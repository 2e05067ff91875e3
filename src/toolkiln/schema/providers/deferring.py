"""Deferred loading: tools that a model finds by the provider's own search, when it has one.

Deferred tools are sent along with a request but are not put before the model until it
searches for them. OpenAI has it in the Responses API, whose tools are flat; Anthropic in
the Messages API. The forms are those of the vendors' documentation, not tried live.
"""

from collections.abc import Iterable
from typing import Any

from toolkiln.errors import InputError
from toolkiln.schema.providers.compiled import Compiled

_SEARCH: dict[str, dict[str, Any]] = {
    "openai": {"type": "tool_search"},
    "openai-responses": {"type": "tool_search"},
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}


def deferring_request(
    provider: str, loaded: Iterable[Compiled], deferred: Iterable[Compiled]
) -> list[dict[str, Any]]:
    """The tools of one request: the provider's search, those at hand, those to be found.

    Raises:
        InputError: the provider has no deferred loading.
    """
    search = _SEARCH.get(provider.removesuffix("-strict"))
    if search is None:
        raise InputError(
            f"{provider} has no deferred loading",
            hint="offer search_tools, describe_tool and call_tool instead",
        )
    at_hand = [_flat(compiled) for compiled in loaded]
    to_be_found = [{**_flat(compiled), "defer_loading": True} for compiled in deferred]
    return [dict(search), *at_hand, *to_be_found]


def _flat(compiled: Compiled) -> dict[str, Any]:
    payload = dict(compiled.payload)
    function = payload.pop("function", {})
    return {**payload, **function}
