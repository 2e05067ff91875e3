"""One canonical schema, one pure compiler for each provider.

`compile_tool` is the door; a provider's own module says what is special about it. The
shared machinery is `lowering` and what it names. Nothing here talks to a provider.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from toolkiln.errors import InputError, nearest_hint
from toolkiln.model import ToolSpec
from toolkiln.schema.providers.anthropic import compile_anthropic, compile_anthropic_strict
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.deferring import deferring_request
from toolkiln.schema.providers.gemini import compile_gemini
from toolkiln.schema.providers.mcp import compile_mcp
from toolkiln.schema.providers.openai import (
    compile_openai,
    compile_openai_responses,
    compile_openai_responses_strict,
    compile_openai_strict,
)
from toolkiln.schema.providers.request import request_tools
from toolkiln.schema.validity import invalid_points

__all__ = ["PROVIDERS", "Compiled", "Loss", "compile_tool", "deferring_request", "request_tools"]

_COMPILERS: Mapping[str, Callable[[ToolSpec], Compiled]] = MappingProxyType(
    {
        "openai": compile_openai,
        "openai-strict": compile_openai_strict,
        "openai-responses": compile_openai_responses,
        "openai-responses-strict": compile_openai_responses_strict,
        "anthropic": compile_anthropic,
        "anthropic-strict": compile_anthropic_strict,
        "gemini": compile_gemini,
        "mcp": compile_mcp,
    }
)

PROVIDERS: tuple[str, ...] = tuple(_COMPILERS)
"""The names that `compile_tool` takes."""


def compile_tool(spec: ToolSpec, provider: str) -> Compiled:
    """The tool in the form that `provider` wants; what is wrong with it is in the answer.

    Raises:
        InputError: no such provider.
    """
    compiler = _COMPILERS.get(provider)
    if compiler is None:
        hint = nearest_hint(provider, PROVIDERS) or f"one of {', '.join(PROVIDERS)}"
        raise InputError(f"there is no provider named {provider!r}", hint=hint)
    points = invalid_points(spec.parameters)
    if not points:
        return compiler(spec)
    empty = {"type": "object", "properties": {}}
    made = compiler(spec.model_copy(update={"parameters": empty}))
    reasons = (f"invalid schema at {point.path or '/'}: {point.reason}" for point in points)
    return Compiled(made.payload, made.losses, (*made.errors, *reasons), made.decode, made.encode)
