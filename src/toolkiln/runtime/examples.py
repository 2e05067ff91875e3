"""Runs the examples of a docstring, inside the sandbox, beside the tool's own file."""

import doctest
from importlib import import_module


def run(module: str, text: str) -> dict[str, object]:
    """Run the examples in `text` as if they stood in `module`."""
    names = dict(vars(import_module(module)))
    test = doctest.DocTestParser().get_doctest(text, names, "example", module, 0)
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    runner.run(test, out=report.append)
    return {"failed": runner.failures, "tried": runner.tries, "report": "".join(report)}
