"""Docstring examples, run as doctests inside the sandbox.

Most `>>>` lines in docstrings illustrate: they show a client's code, or what a call looks like.
An example is a test if it uses a tool of the file and shows its output. The lines before it run
as well, since it may need them.

Separate from `probe` because `doctest` is slow to import.
"""

from __future__ import annotations

import ast
import doctest
import re
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
_WORD = re.compile(r"\w+")


class Examples(doctest.DocTestRunner):
    """Runs docstring examples; reports each one before it runs, and those that fail."""

    def __init__(self, ctx: Context, file: str, tools: set[str]) -> None:
        """`tools` are the names of the file's functions and classes of tools."""
        super().__init__(verbose=False, optionflags=_FLAGS)
        self._ctx = ctx
        self._tools = tools
        self._tests: set[int] = set()
        """Line numbers of the examples that are tests; the others run without being judged."""
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
            if self._tools.intersection(_WORD.findall(tool["examples"])):
                self._report("", "", str(error))
            return
        self._tests = _tests(test.examples, self._tools)
        test.examples = [e for e in test.examples if e.lineno <= max(self._tests, default=-1)]
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
        if example.lineno in self._tests:
            self._report(example.source, example.want, got)

    def report_unexpected_exception(
        self, _out: Any, _test: Any, example: doctest.Example, exc_info: Any
    ) -> None:
        """Report an example that raised an unexpected exception."""
        if example.lineno not in self._tests:
            return
        frame = failure(exc_info[1], "")
        self._report(example.source, example.want, f"{frame['type']}: {frame['message']}")

    def _report(self, source: str, want: str, got: str) -> None:
        self._failures += 1
        if self._failures <= _MAX_FAILURES and self._reported < _MAX_MESSAGES:
            self._reported += 1
            texts = {"source": source, "want": want, "got": got}
            cut = {name: text[:_MAX_TEXT].strip() for name, text in texts.items()}
            self._ctx.send_message({"failed": {"tool": self._index, "line": self._line, **cut}})


def _tests(examples: list[doctest.Example], tools: set[str]) -> set[int]:
    """Return the line numbers of the examples that use a tool, or what it gave, and show output."""
    names, found = set(tools), set()
    for example in examples:
        if names.isdisjoint(_WORD.findall(example.source)):
            continue
        if example.want:
            found.add(example.lineno)
        with suppress(SyntaxError):
            for node in ast.walk(ast.parse(example.source)):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
    return found
