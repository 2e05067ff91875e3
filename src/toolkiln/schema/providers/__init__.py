"""Provider formats of a tool: pure compilers from the canonical schema.

`compile_tool` is the entry point, `transform` the shared machinery. Nothing here connects
to a provider.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Literal, cast, get_args

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.providers.compilers import (
    compile_anthropic,
    compile_gemini,
    compile_openai,
    compile_openai_responses,
)
from toolkiln.schema.providers.mcp import compile_mcp
from toolkiln.schema.providers.profile import Compiled
from toolkiln.schema.validity import invalid_points

Provider = Literal[
    "openai",
    "openai-strict",
    "openai-responses",
    "openai-responses-strict",
    "anthropic",
    "anthropic-strict",
    "gemini",
    "mcp",
]
_COMPILERS: Mapping[Provider, Callable[[ToolSpec], Compiled]] = MappingProxyType(
    {
        "openai": partial(compile_openai, strict=False),
        "openai-strict": partial(compile_openai, strict=True),
        "openai-responses": partial(compile_openai_responses, strict=False),
        "openai-responses-strict": partial(compile_openai_responses, strict=True),
        "anthropic": partial(compile_anthropic, strict=False),
        "anthropic-strict": partial(compile_anthropic, strict=True),
        "gemini": compile_gemini,
        "mcp": compile_mcp,
    }
)

PROVIDERS: tuple[Provider, ...] = get_args(Provider)
"""Valid provider names for `compile_tool`."""


def compile_tool(spec: ToolSpec, provider: str) -> Compiled:
    """Compile a tool for a provider; `Compiled.errors` lists what the provider would reject.

    Raises:
        InputError: unknown provider.
    """
    compiler = _COMPILERS.get(cast("Provider", provider))
    if compiler is None:
        hint = nearest_hint(provider, PROVIDERS) or f"one of {', '.join(PROVIDERS)}"
        raise InputError(f"there is no provider named {provider!r}", hint=hint)
    points = invalid_points(spec.parameters)
    if not points:
        return compiler(spec)
    empty = {"type": "object", "properties": {}}
    tool = compiler(spec.model_copy(update={"parameters": empty}))
    reasons = (f"invalid schema at {point.path or '/'}: {point.reason}" for point in points)
    return replace(tool, errors=(*tool.errors, *reasons))
