"""Docstring examples, run as doctests inside the sandbox.

Separate from `probe` because `doctest` is slow to import.
"""

from __future__ import annotations

import doctest
from contextlib import suppress

from toolkiln.runtime.call import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toolkiln.define import Context

_MAX_MESSAGES = 300
"""Examples announced, and failures reported; the host limits the rate of messages."""
_MAX_FAILURES = 3
"""Failures reported per tool: later examples often fail because of earlier ones."""
_MAX_TEXT = 500
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Examples(doctest.DocTestRunner):
    """Runs docstring examples; reports each one before it runs, and those that fail."""

    def __init__(self, ctx: Context, file: str) -> None:
        super().__init__(verbose=False, optionflags=_FLAGS)
        self._ctx = ctx
        with open(file, encoding="utf-8", errors="replace") as source:
            self._lines = [line.strip() for line in source]
        self._announced = self._reported = 0
        self._index = self._line = self._failures = 0

    def run_tool(self, index: int, tool: dict[str, Any], names: dict[str, Any]) -> None:
        """Run the examples of one tool in its module's namespace."""
        self._index, self._line, self._failures = index, tool["line"], 0
        try:
            test = doctest.DocTestParser().get_doctest(
                tool["examples"], names, tool["entry"], None, 0
            )
        except ValueError as error:  # wrong indentation or an unknown directive
            self._report("", "", str(error))
            return
        self.run(test, out=lambda _: None)

    def report_start(self, _out: Any, _test: Any, example: doctest.Example) -> None:
        """Announce an example; doctest calls this before each one."""
        first = f">>> {example.source.splitlines()[0]}".strip()
        for start in (self._line, 0):
            with suppress(ValueError):
                self._line = self._lines.index(first, start) + 1
                break
        self._announced += 1
        if self._announced <= _MAX_MESSAGES:
            self._ctx.send_message({"trying": {"tool": self._index, "line": self._line}})

    def report_failure(self, _out: Any, _test: Any, example: doctest.Example, got: str) -> None:
        """Report an example whose output differs."""
        self._report(example.source, example.want, got)

    def report_unexpected_exception(
        self, _out: Any, _test: Any, example: doctest.Example, exc_info: Any
    ) -> None:
        """Report an example that raised an unexpected exception."""
        frame = failure(exc_info[1], "")
        self._report(example.source, example.want, f"{frame['type']}: {frame['message']}")

    def _report(self, source: str, want: str, got: str) -> None:
        self._failures += 1
        if self._failures <= _MAX_FAILURES and self._reported < _MAX_MESSAGES:
            self._reported += 1
            texts = {"source": source, "want": want, "got": got}
            cut = {name: text[:_MAX_TEXT].strip() for name, text in texts.items()}
            self._ctx.send_message({"failed": {"tool": self._index, "line": self._line, **cut}})
