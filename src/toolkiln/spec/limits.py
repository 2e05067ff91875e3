"""Limits on one file: how much it may declare, and how much work reading it may take.

Work is counted in steps, not seconds, so every machine reads a file the same way. A step is
one resolved name, evaluated value or type expression. Schema parts have a limit of their own
because every consumer of a schema traverses all of them.
"""

from typing import Any

MAX_TOKENS = 100_000
"""Tokens per source. Python's parser cannot be interrupted, so this bounds its run time."""
MAX_TOOLS = 500
MAX_PARAMETERS = 200
"""Parameters per tool."""
MAX_VALUES = 2_000
"""Values per enumeration."""
MAX_FINDINGS = 1_000
MAX_STEPS = 200_000
MAX_PARTS = 30_000
"""Parts of all schemas of a file: objects, array items, and every 64 characters of text."""

_TEXT_PART = 64
_NESTED = (dict, list, str)


class BudgetExceeded(Exception):
    """Reading a file exceeded one of the work limits."""


class WorkBudget:
    """The work spent so far on reading one file and its helper modules."""

    def __init__(self) -> None:
        self.steps = 0
        self.parts = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps; raise BudgetExceeded above the limit."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise BudgetExceeded(f"reading the file takes more than {MAX_STEPS:,} steps")

    def add_schema(self, schema: Any) -> None:
        """Count the parts of a schema; raise BudgetExceeded above the limit."""
        pending = [schema]
        while pending:
            item = pending.pop()
            self.parts += 1
            if item.__class__ is dict:
                pending += [value for value in item.values() if value.__class__ in _NESTED]
                self.parts += sum(map(len, item)) // _TEXT_PART
            elif item.__class__ is list:
                pending += item
            elif item.__class__ is str:
                self.parts += len(item) // _TEXT_PART
            if self.parts > MAX_PARTS:
                raise BudgetExceeded(f"the file's schemas have more than {MAX_PARTS:,} parts")
