"""What only running a file shows: whether it imports, fits its schema, keeps its examples.

One run in the sandbox for all tools of a file, without network, workspace or secrets.
`runtime.probe` tells what it sees there, `judging` makes findings of it. This is about quality,
not about security: the file's code controls the process that reports on it and can make it
report that all is well.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from pydantic import VERSION

from toolkiln.execution.bounds import MAXIMA, bounds_of
from toolkiln.execution.executor import Admitted, Bounds, Executor, Invocation
from toolkiln.model import Dialect, Finding, ToolSpec

_PROGRAM = b"from toolkiln.runtime.probe import Probe\n\nrun = Probe(__file__).run\n"
_NAME = "_toolkiln_probe.py"
_PATIENCE = 30.0
"""Seconds for the file as a whole."""


async def probe(
    executor: Executor, tools: Sequence[Admitted], site: Path | None, *, maxima: Bounds = MAXIMA
) -> list[Finding]:
    """Import the file of these tools, compare their schemas, run their examples.

    All tools are of one file; `site` holds the packages of its environment.

    Raises:
        BackendError: the sandbox failed, not the file.
    """
    if not tools:
        return []
    files = tools[0].sources()
    specs = [tool.spec for tool in tools]
    name = PurePath(specs[0].path).name
    # The name counts: a folder of a version is shared by all files with the same bytes.
    identity = f"{specs[0].digest} {name}".encode() + _PROGRAM
    spec = specs[0].model_copy(
        update={
            "entry": "run",
            "dialect": Dialect.FUNCTION,
            "injected": {"ctx": "context"},
            "whole_arguments": None,
            "isolation": "call",
            "toolkit": None,
            "path": _NAME,
            "digest": hashlib.sha256(identity).hexdigest(),
        }
    )
    arguments = {
        "name": name,
        "tools": [_asked(spec) for spec in specs],
        "version": ".".join(VERSION.split(".")[:2]),
    }
    program = Admitted(spec, lambda: {**files, _NAME: _PROGRAM})
    outcome = await executor.run(
        Invocation(program, arguments, bounds=_bounds(specs, maxima), site=site)
    )
    from toolkiln.execution.judging import Judge  # takes a while to import, and calls need none

    lines = len(next(iter(files.values())).splitlines())
    # Large schemas take a while to compare.
    return await asyncio.to_thread(Judge(specs, lines).judge, outcome)


async def run_examples(executor: Executor, tool: Admitted, site: Path | None) -> str | None:
    """What keeps a tool from importing and from doing what its examples show, if anything.

    Raises:
        BackendError: the sandbox failed, not the tool.
    """
    findings = await probe(executor, [tool], site)
    return next((f.message for f in findings if f.rule in ("import-fails", "example-fails")), None)


def _asked(spec: ToolSpec) -> dict[str, Any]:
    return {
        "entry": spec.entry,
        "dialect": spec.dialect.value,
        "injected": list(spec.injected),
        "whole_arguments": spec.whole_arguments is not None,
        "examples": spec.documentation.examples,
        "line": spec.line,
    }


def _bounds(specs: Sequence[ToolSpec], maxima: Bounds) -> Bounds:
    """As much room as the most demanding tool has in a call, but no more time than a probe."""
    maxima = replace(maxima, timeout=min(maxima.timeout, _PATIENCE), cpu=min(maxima.cpu, _PATIENCE))
    each = [bounds_of(spec.limits, maxima, None) for spec in specs]
    return Bounds(
        **{name: max(getattr(bounds, name) for bounds in each) for name in Bounds.__slots__}
    )
