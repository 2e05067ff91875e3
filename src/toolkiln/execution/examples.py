"""The examples of a tool's docstring, run in the sandbox on a given environment."""

import hashlib
from dataclasses import replace
from pathlib import Path, PurePath

from toolkiln.execution.executor import Admitted, Executor, Invocation, Sources
from toolkiln.model import Dialect, Status

_RUNNER = Path(__file__).parents[1] / "runtime" / "examples.py"
_NAME = "_toolkiln_examples.py"


async def run_examples(executor: Executor, tool: Admitted, site: Path | None) -> str | None:
    """What the examples of a tool complain about; None if they pass or there are none."""
    spec = tool.spec
    text = spec.documentation.examples
    if not text:
        return None
    runner = _RUNNER.read_bytes()

    def sources() -> Sources:
        return {_NAME: runner, **tool.sources()}

    wrapped = spec.model_copy(
        update={
            "entry": "run",
            "dialect": Dialect.FUNCTION,
            "injected": {},
            "whole_arguments": None,
            "isolation": "call",
            "path": _NAME,
            "digest": hashlib.sha256(spec.digest.encode() + runner).hexdigest(),
        }
    )
    arguments = {"module": PurePath(spec.path).stem, "text": text}
    invocation = Invocation(replace(tool, spec=wrapped, sources=sources), arguments, site=site)
    outcome = await executor.run(invocation)
    if outcome.status is not Status.OK:
        return outcome.error.message if outcome.error else "they gave no result"
    told = outcome.value
    return str(told["report"])[:4000] if told["failed"] else None
