"""From what a probe reported to findings.

The report comes from a process that the probed file controls. Whatever it says, it cannot harm
the host or make a finding that misleads its reader: it is checked for its form, bounded, and
shown without characters that hide or reorder text.
"""

from collections.abc import Callable, Sequence
from functools import partial

from pydantic import Field, TypeAdapter

from toolkiln.execution.executor import Outcome
from toolkiln.model import Finding, Severity, Status, ToolSpec, Value
from toolkiln.schema import RuntimeSignature, disagreements

_MOST_FINDINGS = 20
_MOST_DIFFERENCES = 5
"""Of one tool."""
_LONGEST = 200
_IMPORT_FIX = "correct what runs at import; it gets no network, no files and no secrets there"
_PACKAGE_FIX = (
    "put your own module next to the file, or list the distribution that provides it "
    "among its requirements"
)
_SCHEMA_FIX = "let types and defaults not depend on running code: use literals, classes, aliases"
_EXAMPLE_FIX = (
    "correct the example or the code; mark what needs network, files or secrets "
    "with `# doctest: +SKIP`"
)
_AWAITS = "SyntaxError: 'await' outside"
_DISTURBED = "it disturbs what its process reports"
_AWAIT_FIX = "run it in the example with `asyncio.run(…)`"


# What the process may say. A message of another form is the file's own doing.


class _Raised(Value):
    type: str
    text: str
    line: int | None


class _ImportError(Value):
    import_error: _Raised


class _Imported(Value):
    imported: bool


class _Missing(Value):
    missing: str


class _Signatures(Value):
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


_Message = _ImportError | _Imported | _Signatures | _Trying | _Failed
_MESSAGES: TypeAdapter[list[_Message]] = TypeAdapter(list[_Message])


class Judge:
    """Makes findings of what a probe told."""

    def __init__(self, specs: Sequence[ToolSpec], lines: int) -> None:
        self._specs = specs
        self._lines = lines
        self._findings: list[Finding] = []
        self._ended: Callable[[str], None] = self._import_fails
        """What it means if the process says no more."""

    def judge(self, outcome: Outcome) -> list[Finding]:
        """The findings, no more than a model can be given."""
        try:
            for message in _MESSAGES.validate_python(outcome.messages):
                self._take(message)
                if len(self._findings) >= _MOST_FINDINGS:
                    break
            if outcome.status is not Status.OK or outcome.value != "done":
                self._ended(outcome.error.message if outcome.error else _DISTURBED)
        except (ValueError, IndexError):  # messages of a form that `runtime.probe` never sends
            self._ended(_DISTURBED)
        return self._findings[:_MOST_FINDINGS]

    def _take(self, message: _Message) -> None:
        match message:
            case _ImportError(import_error=raised):
                told = f"{raised.type}: {raised.text}" if raised.text else raised.type
                fix = _PACKAGE_FIX if raised.type == "ModuleNotFoundError" else _IMPORT_FIX
                self._import_fails(told, raised.line, fix)
            case _Imported() if self._ended == self._import_fails:
                self._ended = self._cannot_be_told
            case _Signatures(signatures=signatures) if self._ended == self._cannot_be_told:
                self._ended = partial(self._example_fails, self._specs[0], 0)
                for spec, signature in zip(self._specs, signatures, strict=True):
                    self._compare(spec, signature)
            case _Trying(trying=at):
                self._ended = partial(self._example_fails, self._specs[at.tool], at.line)
            case _Failed(failed=at):
                fix = _AWAIT_FIX if at.got.startswith(_AWAITS) else _EXAMPLE_FIX
                self._example_fails(self._specs[at.tool], at.line, _gave(at), fix)
            case _:
                raise ValueError("a message out of turn")

    def _compare(self, spec: ToolSpec, found: RuntimeSignature | _Missing | None) -> None:
        if isinstance(found, _Missing):
            self._differs(spec, f"{spec.entry} is no function: {found.missing}")
        elif found is not None:
            for told in disagreements(spec.parameters, found)[:_MOST_DIFFERENCES]:
                self._differs(spec, told)

    def _import_fails(self, told: str, line: int | None = None, fix: str = _IMPORT_FIX) -> None:
        self._conclude("import-fails", f"it cannot be imported: {_shown(told)}", None, line, fix)

    def _cannot_be_told(self, told: str) -> None:
        message = f"its signatures cannot be told: {_shown(told)}"
        self._conclude("schema-differs", message, None, None, _SCHEMA_FIX)

    def _differs(self, spec: ToolSpec, told: str) -> None:
        self._conclude("schema-differs", _shown(told), spec, None, _SCHEMA_FIX)

    def _example_fails(self, spec: ToolSpec, line: int, told: str, fix: str = _EXAMPLE_FIX) -> None:
        message = f"an example fails: {_shown(told, 3 * _LONGEST)}"
        self._conclude("example-fails", message, spec, line, fix)

    def _conclude(
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


def _gave(failure: _Failure) -> str:
    """What an example gave in place of what it shows."""
    got, want = _shown(failure.got) or "nothing", _shown(failure.want) or "nothing"
    return f"{_shown(failure.source)} gives {got}, not {want}" if failure.source else got


def _shown(text: str, most: int = _LONGEST) -> str:
    """The beginning of a text; characters that nobody sees, or that reorder it, are spelled out."""
    seen = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: most + 1])
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"
