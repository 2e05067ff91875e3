"""The examples of docstrings, run as doctests inside the sandbox.

A module of its own because `doctest` takes longer to import than most files with it.
"""

from __future__ import annotations

import doctest
from contextlib import suppress

from toolkiln.runtime.running import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toolkiln.define import Context

_MOST_MESSAGES = 300
"""Examples that are announced, and failures that are told: the host takes no flood of them."""
_MOST_FAILURES = 3
"""Of one tool; later examples often fail because of earlier ones."""
_LONGEST = 500
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Examples(doctest.DocTestRunner):
    """Runs the examples of docstrings and tells which one is next, and which fail."""

    def __init__(self, ctx: Context, file: str) -> None:
        super().__init__(verbose=False, optionflags=_FLAGS)
        self._ctx = ctx
        with open(file, encoding="utf-8", errors="replace") as source:
            self._lines = [line.strip() for line in source]
        self._announced = self._told = 0
        self._index = self._line = self._found = 0

    def run_tool(self, index: int, tool: dict[str, Any], names: dict[str, Any]) -> None:
        """Run the examples of one tool as if they stood in its module."""
        self._index, self._line, self._found = index, tool["line"], 0
        try:
            test = doctest.DocTestParser().get_doctest(
                tool["examples"], names, tool["entry"], None, 0
            )
        except ValueError as error:  # a wrong indentation, an unknown directive
            self._tell("", "", str(error))
            return
        self.run(test, out=lambda _: None)

    def report_start(self, _out: Any, _test: Any, example: doctest.Example) -> None:
        """Called before each example."""
        first = f">>> {example.source.splitlines()[0]}".strip()
        for start in (self._line, 0):
            with suppress(ValueError):
                self._line = self._lines.index(first, start) + 1
                break
        self._announced += 1
        if self._announced <= _MOST_MESSAGES:
            self._ctx.send_message({"trying": {"tool": self._index, "line": self._line}})

    def report_failure(self, _out: Any, _test: Any, example: doctest.Example, got: str) -> None:
        """Called if the output is another one."""
        self._tell(example.source, example.want, got)

    def report_unexpected_exception(
        self, _out: Any, _test: Any, example: doctest.Example, exc_info: Any
    ) -> None:
        """Called if an exception is raised that the example does not show."""
        told = failure(exc_info[1], "")
        self._tell(example.source, example.want, f"{told['type']}: {told['message']}")

    def _tell(self, source: str, want: str, got: str) -> None:
        self._found += 1
        if self._found <= _MOST_FAILURES and self._told < _MOST_MESSAGES:
            self._told += 1
            texts = {"source": source, "want": want, "got": got}
            cut = {name: text[:_LONGEST].strip() for name, text in texts.items()}
            self._ctx.send_message({"failed": {"tool": self._index, "line": self._line, **cut}})
