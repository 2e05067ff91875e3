"""What the compilers share around the schema: names, descriptions, and the guarded way back.

Nothing here knows a provider. `passed_on` is the loose form of a schema: as it is,
unless its root or its property names are refused.
"""

import re
from collections.abc import Callable
from typing import Any

from toolkiln.model import JsonSchema, ToolSpec
from toolkiln.schema.document import IN_PLACE_LISTS, walk
from toolkiln.schema.providers.codec import SAME, Codec
from toolkiln.schema.providers.compiled import Compiled, Loss
from toolkiln.schema.providers.lowering import LoweredRoot, TooLargeError, lower_root
from toolkiln.schema.providers.profile import Profile
from toolkiln.schema.structure import deeper_than

_DEEPEST = 200
"""Beyond this, arguments are not decoded: validators recurse on the stack of the process."""
_ROOT_REFUSED = (*IN_PLACE_LISTS, "$ref", "enum", "const", "not", "if")

ALL_KEYWORDS = frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format"),
        *("minItems", "maxItems", "uniqueItems", "default"),
    )
)


def name_errors(spec: ToolSpec, pattern: str) -> list[str]:
    """Why a provider would refuse the tool's name."""
    if re.fullmatch(pattern.removeprefix("^").removesuffix("$"), spec.name):
        return []
    return [f"the name {spec.name[:140]!r} does not match {pattern}"]


def cut(text: str, length: int) -> tuple[str, list[Loss]]:
    """A description that fits, and the loss if it had to be cut."""
    if len(text) <= length:
        return text, []
    loss = Loss("", "description", f"the tool's description is cut to {length:,} characters")
    return f"{text[: length - 3]}...", [loss]


def passed_on(parameters: JsonSchema, provider: str, key_pattern: str = r"(?s).*") -> LoweredRoot:
    """The schema as it is; lowered as little as possible if its root or names are refused."""
    fine = re.compile(key_pattern)
    names = (name for _, node in walk(parameters) for name in node.get("properties", ()))
    if all(fine.fullmatch(name) for name in names) and not any(
        keyword in parameters for keyword in _ROOT_REFUSED
    ):
        return LoweredRoot({**parameters, "type": "object"}, SAME, (), ())
    profile = Profile(name=provider, keywords=ALL_KEYWORDS, key_pattern=key_pattern)
    try:
        return lower_root(parameters, profile)
    except TooLargeError:
        loss = Loss("", "$ref", "the schema unfolds without end; the tool is sent without it")
        return LoweredRoot({"type": "object", "properties": {}}, SAME, (loss,), ())


def compiled(
    payload: dict[str, Any], lowered: LoweredRoot, errors: list[str], losses: list[Loss]
) -> Compiled:
    """Put together what a compiler hands back."""
    return Compiled(
        payload=payload,
        losses=(*losses, *lowered.losses),
        errors=tuple(errors),
        decode=_decoder(lowered.codec),
        encode=lowered.codec.encode,
    )


def _decoder(codec: Codec) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def decode(arguments: dict[str, Any]) -> dict[str, Any]:
        if codec == SAME or not isinstance(arguments, dict) or deeper_than(arguments, _DEEPEST):
            return arguments
        try:
            decoded = codec.decode(arguments)
        except (ValueError, RecursionError):
            # Not JSON: `arguments.check` says where and why.
            return arguments
        return decoded if isinstance(decoded, dict) else arguments

    return decode
