"""Probe: imports a file in the sandbox, compares its schemas and runs its examples.

One run for all tools of a file, without network, workspace or secrets. `runtime.probe` reports
from the sandbox, `ProbeFindings` turns the report into findings. A probe is about quality, not
security: the code of the file controls the process that reports, and can report anything.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from pydantic import VERSION, Field, TypeAdapter

from toolkiln.execution.executor import (
    MAXIMA,
    Bounds,
    ExecutionOutcome,
    Executor,
    Invocation,
    bounds_of,
)
from toolkiln.model.base import Value
from toolkiln.model.call import Status
from toolkiln.model.source import Finding, Severity
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.model.tool import ResolvedTool
from toolkiln.schema.signature_match import RuntimeSignature, signature_mismatches

_MAX_FINDINGS = 20
_MAX_MISMATCHES = 5
"""Per tool."""
_MAX_TEXT = 200
_IMPORT_FIX = "correct the code that runs at import; it has no network, files or secrets there"
_PACKAGE_FIX = (
    "put your own module next to the file, or list the distribution that provides it "
    "among its requirements"
)
_SCHEMA_FIX = (
    "use literals, classes and aliases: types and defaults must not depend on running code"
)
_EXAMPLE_FIX = (
    "correct the example or the code; mark examples that need network, files or secrets "
    "with `# doctest: +SKIP`"
)
_AWAIT_ERROR = "SyntaxError: 'await' outside"
_INTERFERES = "it interferes with the report of its process"
_AWAIT_FIX = "run it in the example with `asyncio.run(…)`"

# Messages of the process; the file itself may send others.


class _Raised(Value):
    type: str
    text: str
    line: int | None


class _ImportError(Value):
    import_error: _Raised


class _ImportedModule(Value):
    imported: bool


class _Missing(Value):
    missing: str


class _ReadSignatures(Value):
    signatures: list[RuntimeSignature | _Missing | None]


class _Position(Value):
    tool: int = Field(ge=0)
    line: int


class _Trying(Value):
    trying: _Position


class _Failure(_Position):
    source: str
    want: str
    got: str


class _Failed(Value):
    failed: _Failure


_Message = _ImportError | _ImportedModule | _ReadSignatures | _Trying | _Failed
_MESSAGES: TypeAdapter[list[_Message]] = TypeAdapter(list[_Message])


class ProbeFindings:
    """Findings from the messages of a probe."""

    def __init__(self, specs: Sequence[ToolSpec], lines: int, outcome: ExecutionOutcome) -> None:
        self._specs = specs
        self._lines = lines
        self._outcome = outcome
        self._findings: list[Finding] = []
        self._ended: Callable[[str], None] = self._import_fails
        """Adds the finding that applies if the process sends no more messages."""
        self._trying: int | None = None
        """Index of the tool whose examples run."""
        self.ended_in: int | None = None
        """Index of the tool whose example ended the process, so that later ones did not run."""

    def collect(self) -> list[Finding]:
        """Return the findings of a run, at most as many as a model should get."""
        outcome = self._outcome
        try:
            for message in _MESSAGES.validate_python(outcome.messages):
                self._add(message)
                if len(self._findings) >= _MAX_FINDINGS:
                    break
            if outcome.status is not Status.OK or outcome.value != "done":
                self._ended(outcome.error.message if outcome.error else _INTERFERES)
                self.ended_in = self._trying
        except (ValueError, IndexError):  # messages that `runtime.probe` never sends
            self._ended(_INTERFERES)
        return self._findings[:_MAX_FINDINGS]

    def _add(self, message: _Message) -> None:
        match message:
            case _ImportError(import_error=raised):
                text = f"{raised.type}: {raised.text}" if raised.text else raised.type
                fix = _PACKAGE_FIX if raised.type == "ModuleNotFoundError" else _IMPORT_FIX
                self._import_fails(text, raised.line, fix)
            case _ImportedModule() if self._ended == self._import_fails:
                self._ended = self._signatures_fail
            case _ReadSignatures(signatures=signatures) if self._ended == self._signatures_fail:
                self._ended = partial(self._example_fails, None, 1)
                for spec, signature in zip(self._specs, signatures, strict=True):
                    self._compare(spec, signature)
            case _Trying(trying=at):
                self._trying = at.tool
                self._ended = partial(self._example_fails, self._specs[at.tool], at.line)
            case _Failed(failed=at):
                fix = _AWAIT_FIX if at.got.startswith(_AWAIT_ERROR) else _EXAMPLE_FIX
                self._example_fails(self._specs[at.tool], at.line, _mismatch(at), fix)
            case _:
                raise ValueError("unexpected message")

    def _compare(self, spec: ToolSpec, found: RuntimeSignature | _Missing | None) -> None:
        if isinstance(found, _Missing):
            self._differs(spec, f"{spec.entry} is not a function: {found.missing}")
        elif found is not None:
            for mismatch in signature_mismatches(spec.parameters, found)[:_MAX_MISMATCHES]:
                self._differs(spec, mismatch)

    def _import_fails(self, error: str, line: int | None = None, fix: str = _IMPORT_FIX) -> None:
        self._append("import-fails", f"it cannot be imported: {_shown(error)}", None, line, fix)

    def _signatures_fail(self, error: str) -> None:
        message = f"its signatures cannot be read: {_shown(error)}"
        self._append("schema-differs", message, None, None, _SCHEMA_FIX)

    def _differs(self, spec: ToolSpec, mismatch: str) -> None:
        self._append("schema-differs", _shown(mismatch), spec, None, _SCHEMA_FIX)

    def _example_fails(
        self, spec: ToolSpec | None, line: int, error: str, fix: str = _EXAMPLE_FIX
    ) -> None:
        message = f"an example fails: {_shown(error, 3 * _MAX_TEXT)}"
        self._append("example-fails", message, spec, line, fix)

    def _append(
        self, rule: str, message: str, spec: ToolSpec | None, line: int | None, fix: str
    ) -> None:
        if line is None or not 0 < line <= self._lines:
            line = spec.line if spec else 1
        self._findings.append(
            Finding(
                rule=rule,
                severity=Severity.ERROR,
                message=message,
                line=line,
                fix=fix,
                tool=spec.name if spec else None,
                path=self._specs[0].path,
            )
        )


def _mismatch(failure: _Failure) -> str:
    got, want = _shown(failure.got) or "nothing", _shown(failure.want) or "nothing"
    return f"{_shown(failure.source)} gives {got}, not {want}" if failure.source else got


def _shown(text: str, length: int = _MAX_TEXT) -> str:
    """Return the beginning of a text, with invisible and reordering characters escaped."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


_PROGRAM = b"from toolkiln.runtime.probe import Probe\n\nrun = Probe(__file__).run\n"
_NAME = "_toolkiln_probe.py"
_TIMEOUT = 30.0
"""Seconds for the whole file."""
_MAX_RUNS = 3
"""A run whose process ends in an example is followed by one for the tools after it."""


async def run_probe(
    executor: Executor, tools: Sequence[ResolvedTool], site: Path | None, *, maxima: Bounds = MAXIMA
) -> list[Finding]:
    """Import the file of these tools, compare their schemas and run their examples.

    All tools are from one file; `site` has the packages of its environment.

    Raises:
        BackendError: the sandbox failed, not the file.
    """
    if not tools:
        return []
    specs = [tool.spec for tool in tools]
    findings: list[Finding] = []
    untried = 0
    for _ in range(_MAX_RUNS):
        probe = await _run(executor, tools, untried, site, maxima)
        found = await asyncio.to_thread(probe.collect)  # large schemas take a while to compare
        findings += found if not untried else [f for f in found if f.rule == "example-fails"]
        if probe.ended_in is None:
            break
        untried = probe.ended_in + 1
        if not any(spec.documentation.examples for spec in specs[untried:]):
            break
    else:
        # It is unknown which of the remaining tools work.
        findings[-1] = findings[-1].model_copy(update={"tool": None})
    return findings[:_MAX_FINDINGS]


async def _run(
    executor: Executor,
    tools: Sequence[ResolvedTool],
    untried: int,
    site: Path | None,
    maxima: Bounds,
) -> ProbeFindings:
    """Probe a file, with the examples of its tools from the index `untried` on."""
    files = tools[0].sources()
    specs = [tool.spec for tool in tools]
    name = PurePath(specs[0].path).name
    # Files with the same bytes share the folder of a version; the name distinguishes them.
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
        "tools": [_probe_arguments(spec, tried=n < untried) for n, spec in enumerate(specs)],
        "version": ".".join(VERSION.split(".")[:2]),
    }
    program = ResolvedTool(spec, lambda: {**files, _NAME: _PROGRAM})
    outcome = await executor.run(
        Invocation(program, arguments, bounds=_bounds(specs, maxima), site=site)
    )
    return ProbeFindings(specs, len(next(iter(files.values())).splitlines()), outcome)


async def run_examples(executor: Executor, tool: ResolvedTool, site: Path | None) -> str | None:
    """Return why a tool does not import or an example of it fails; None if all is well."""
    findings = await run_probe(executor, [tool], site)
    return next((f.message for f in findings if f.rule in ("import-fails", "example-fails")), None)


def _probe_arguments(spec: ToolSpec, *, tried: bool) -> dict[str, Any]:
    return {
        "entry": spec.entry,
        "dialect": spec.dialect.value,
        "injected": list(spec.injected),
        "whole_arguments": spec.whole_arguments is not None,
        "examples": "" if tried else spec.documentation.examples,
        "line": spec.line,
    }


def _bounds(specs: Sequence[ToolSpec], maxima: Bounds) -> Bounds:
    """Return the largest limits of all tools, within the timeout of a probe."""
    maxima = replace(maxima, timeout=min(maxima.timeout, _TIMEOUT), cpu=min(maxima.cpu, _TIMEOUT))
    each = [bounds_of(spec.limits, maxima, None) for spec in specs]
    return Bounds(
        **{name: max(getattr(bounds, name) for bounds in each) for name in Bounds.__slots__}
    )
