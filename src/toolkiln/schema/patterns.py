"""The engines that match the patterns of schemas: linear in time, whatever the pattern is.

Look-around and back-references need an engine that backtracks. It gives up early, and only
looks at short strings: the validator holds the interpreter's lock while it matches.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, RegexOptions, ValidationError

_COMPILED_BYTES = 1 << 20
LINEAR = RegexOptions(size_limit=_COMPILED_BYTES, dfa_size_limit=_COMPILED_BYTES)
BACKTRACKING = FancyRegexOptions(
    backtrack_limit=1_000, size_limit=_COMPILED_BYTES, dfa_size_limit=_COMPILED_BYTES
)
LONGEST_BACKTRACKED = 1_000
"""Characters of a string that a pattern with look-around or back-references is matched with."""

PatternOptions = RegexOptions | FancyRegexOptions


@lru_cache(maxsize=4096)
def engine_of(pattern: str) -> PatternOptions | None:
    """The engine that takes a pattern, the linear one if it can; None: it is not a pattern."""
    for options in (LINEAR, BACKTRACKING):
        try:
            Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
        except (ValidationError, ValueError):
            continue
        return options
    return None


def options_for(schema: Any) -> PatternOptions:
    """The engine for all patterns of a schema."""
    return BACKTRACKING if any(map(backtracks, _patterns(schema))) else LINEAR


def backtracks(pattern: object) -> bool:
    """Whether a pattern needs the engine that backtracks."""
    return isinstance(pattern, str) and engine_of(pattern) is not LINEAR


def _patterns(schema: Any) -> Iterator[Any]:
    """The patterns of a schema, and what looks like one in its values, which does no harm."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node.get("pattern")
            keys = node.get("patternProperties")
            yield from keys if isinstance(keys, dict) else ()
            pending += node.values()
        elif isinstance(node, list):
            pending += node
