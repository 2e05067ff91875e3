"""Tables of rows that run as one test, which reports every row that fails.

A row costs no setup and no line in a report, so use this where rows are cheap and take the
same path. Rows that need a process, a server or a fixture of their own stay parameters.
"""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., Any]


class _Row:
    """One row: the arguments that it gives the test."""

    def __init__(self, number: int, names: list[str], row: Any) -> None:
        self._number, self._id = number, None
        values = (row,) if len(names) == 1 else row
        if isinstance(row, ParameterSet):
            assert not row.marks, "a row has no marks"
            self._id, values = row.id, row.values
        self.values = dict(zip(names, values, strict=True))

    def label(self) -> str:
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.values.items())
        return f"row {self._number}: {self._id or values}"

    @contextmanager
    def isolate(self, fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
        own = dict(fixtures)
        with ExitStack() as stack:
            if isinstance(folder := own.get("tmp_path"), Path):
                own["tmp_path"] = folder / str(self._number)
                own["tmp_path"].mkdir()
            if isinstance(patches := own.get("monkeypatch"), pytest.MonkeyPatch):
                own["monkeypatch"] = stack.enter_context(patches.context())
            yield own


def _shown(value: object) -> str:
    try:
        return f"{value!r:.300}"
    except Exception:  # noqa: BLE001  # rows hold hostile values too
        return f"<{type(value).__name__}>"


class _Failures:
    """The rows of a table that failed, and why."""

    def __init__(self) -> None:
        self._reports: list[str] = []
        self._errors: list[BaseException] = []

    @contextmanager
    def collect(self, row: _Row) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # a test may raise anything
            reason = "".join(traceback.format_exception_only(error)).rstrip()
            self._reports.append(f"{row.label()}\n{reason}")
            self._errors.append(error)

    def report(self, total: int) -> None:
        if self._errors:
            __tracebackhide__ = True
            summary = f"{len(self._errors)} of {total} rows failed"
            text = "\n\n".join([summary, *self._reports])
            raise AssertionError(text) from self._errors[0]


def each_row(names: str, rows: Iterable[Any], *, batches: int = 1) -> Callable[[Test], Test]:
    """Run a test over all rows, as `pytest.mark.parametrize` would, but in one test or batch.

    Rows share their fixtures, but each has its own `tmp_path` and its own `monkeypatch`. The
    test may be a method, whose instance they share too.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [_Row(number, arguments, row) for number, row in enumerate(rows)]
    assert table, "a table needs rows"
    assert len(table) >= batches, "a batch needs rows"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        parameters = [p for name, p in signature.parameters.items() if name not in arguments]
        assert len(parameters) + len(arguments) == len(signature.parameters)
        if batches > 1:
            batch = inspect.Parameter("batch", inspect.Parameter.KEYWORD_ONLY)
            parameters.append(batch)

        def selected(fixtures: dict[str, Any]) -> list[_Row]:
            return table[fixtures.pop("batch", 0) :: batches]

        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run(*bound: Any, **fixtures: Any) -> None:
                failures, chosen = _Failures(), selected(fixtures)
                for row in chosen:
                    with failures.collect(row), row.isolate(fixtures) as own:
                        await test(*bound, **own, **row.values)
                failures.report(len(chosen))

        else:

            @wraps(test)
            def run(*bound: Any, **fixtures: Any) -> None:
                failures, chosen = _Failures(), selected(fixtures)
                for row in chosen:
                    with failures.collect(row), row.isolate(fixtures) as own:
                        test(*bound, **own, **row.values)
                failures.report(len(chosen))

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("batch", range(batches))(run) if batches > 1 else run

    return decorate
