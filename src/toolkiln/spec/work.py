"""Limits on one file: how much it may declare, and how much work reading it may take.

Work is counted in steps, not in seconds, so that a file reads the same on every machine. A
step is one name that is resolved, or one value or type expression that is read. The parts of
a schema are counted apart: whatever is done with a schema later goes over all of them.
"""

from typing import Any

MAX_TOKENS = 100_000
"""Tokens of one source. Python's parser cannot be interrupted, so this bounds it."""
MAX_TOOLS = 500
MAX_PARAMETERS = 200
"""Parameters of one tool."""
MAX_VALUES = 2_000
"""Values of one enumeration."""
MAX_FINDINGS = 1_000
MAX_STEPS = 200_000
MAX_PARTS = 30_000
"""Parts of all schemas of one file: objects, members of arrays, and each 64 characters of text."""

_LONG_TEXT = 64


class TooMuchWork(Exception):
    """Reading a file took more than one of the limits."""


class Work:
    """The work that reading one file and its helper modules has taken so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.parts = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            TooMuchWork: there are more than one file may take.
        """
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TooMuchWork(f"reading the file takes more than {MAX_STEPS:,} steps")

    def add_schema(self, schema: Any) -> None:
        """Count the parts of a schema.

        Raises:
            TooMuchWork: the schemas of the file have too many parts.
        """
        pending = [schema]
        while pending:
            item = pending.pop()
            self.parts += 1
            if item.__class__ is dict:
                pending += [value for value in item.values() if value.__class__ in _NESTED]
                self.parts += sum(map(len, item)) // _LONG_TEXT
            elif item.__class__ is list:
                pending += item
            elif item.__class__ is str:
                self.parts += len(item) // _LONG_TEXT
            if self.parts > MAX_PARTS:
                raise TooMuchWork(f"the schemas of the file have more than {MAX_PARTS:,} parts")


_NESTED = (dict, list, str)
