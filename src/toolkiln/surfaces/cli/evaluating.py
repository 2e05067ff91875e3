"""How well search finds, as a table, bars and a drawing for people, and as JSON for programs.

It only prints: `toolkiln.app` measures, and the search comes from the caller.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from toolkiln.app import evaluation
from toolkiln.errors import InputError
from toolkiln.surfaces.cli.terminal import Live, say

_SHOWN = (1, 3, 5, 10)
_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LISTED = 5
_LONGEST = 72
"""Characters of a query that are shown."""


@dataclass(frozen=True)
class Options:
    """What to print and draw besides the table."""

    as_json: bool = False
    svg: Path | None = None
    """A file to draw recall over k into."""
    against: Path | None = None
    """An earlier run's JSON to compare with."""


def evaluate_search(
    file: Path, search: evaluation.Search, tools: Collection[str], options: Options
) -> None:
    """Search for every query of a file, and print how much of what it names is found."""
    before = evaluation.read_evaluation(options.against) if options.against else None
    cases = evaluation.read_cases(file)
    with Live(quiet=options.as_json) as live:
        after = evaluation.evaluate(cases, search, tools, partial(live.report, "searching"))
    comparison = evaluation.compare(before, after) if before else None
    if options.svg:
        _draw(options.svg, comparison or after)
    if options.as_json:
        typer.echo((comparison or after).model_dump_json(indent=2))
        return
    measured = len(comparison.after.outcomes if comparison else after.outcomes)
    typer.echo(f"{_queries(measured)}, {len(tools):,} tools\n")
    if comparison:
        _print_table({"before": comparison.before, "after": comparison.after})
        _print_bars(comparison.after, comparison.before)
        _print_changes(comparison)
    else:
        _print_table({"": after})
        _print_bars(after)
        _print_worst(after.worst(_LISTED))
    _print_left_out(after, comparison)


def _print_table(rows: dict[str, evaluation.Evaluation]) -> None:
    heads = [*(f"recall@{k}" for k in _SHOWN), "NDCG@10"]
    figures = {
        name: [*(each.recall_at(k) for k in _SHOWN), each.ndcg] for name, each in rows.items()
    }
    typer.echo(" ".join(["      ", *(f"{head:>9}" for head in heads)]))
    for name, numbers in figures.items():
        typer.echo(" ".join([f"{name:6}", *(f"{number:9.3f}" for number in numbers)]))
    if len(figures) == 2:
        before, after = figures.values()
        gains = (new - old for old, new in zip(before, after, strict=True))
        typer.echo(" ".join(["change", *(f"{gain:+9.3f}" for gain in gains)]))


def _print_bars(after: evaluation.Evaluation, before: evaluation.Evaluation | None = None) -> None:
    typer.echo("\n k  recall")
    for k, share in enumerate(after.recall, 1):
        was = f"  (was {before.recall_at(k):.3f})" if before else ""
        typer.echo(f"{k:2}  {_bar(share)} {share:.3f}{was}")


def _bar(share: float) -> str:
    full, eighths = divmod(round(share * _BAR * 8), 8)
    return ("█" * full + (_EIGHTHS[eighths] if eighths else "")).ljust(_BAR)


def _print_worst(outcomes: Sequence[evaluation.Outcome]) -> None:
    if outcomes:
        typer.echo("\nworst")
    for outcome in outcomes:
        say(f"  {outcome.ndcg:.2f}  {_short(outcome.query)}")
        say(f"        wanted {', '.join(outcome.gold)}")
        say(f"        found  {', '.join(outcome.found[:_LISTED]) or 'nothing'}")


def _print_changes(comparison: evaluation.Comparison) -> None:
    for title, changes in (("better", comparison.better), ("worse", comparison.worse)):
        typer.echo(f"\n{title}: {_queries(len(changes))}")
        for change in changes[:_LISTED]:
            say(f"  {change.gain:+.2f}  {_short(change.after.query)}")
            say(f"         wanted {', '.join(change.after.gold)}")


def _print_left_out(after: evaluation.Evaluation, comparison: evaluation.Comparison | None) -> None:
    """On stderr, what the figures do not count."""
    if after.unknown:
        names = ", ".join(list(after.unknown)[:_LISTED])
        more = ", …" if len(after.unknown) > _LISTED else ""
        say(f"\nno tools, and not counted: {names}{more}", err=True)
    if after.skipped:
        say(f"{after.skipped:,} left out: none of the tools they want exists", err=True)
    if comparison and comparison.unmatched:
        say(f"{comparison.unmatched:,} left out: only one of the two runs has them", err=True)


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _short(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _draw(file: Path, result: evaluation.Evaluation | evaluation.Comparison) -> None:
    try:
        file.write_text("\n".join(_svg(result)) + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error


def _svg(result: evaluation.Evaluation | evaluation.Comparison) -> Iterator[str]:
    """Recall over k as lines; the earlier run's is dashed."""
    if isinstance(result, evaluation.Comparison):
        before = ("before", "#888888", ' stroke-dasharray="5 4"', result.before)
        lines = [before, ("after", "#1f6feb", "", result.after)]
    else:
        lines = [("recall", "#1f6feb", "", result)]
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 300" role="img"'
    yield '  font-family="sans-serif" font-size="12" fill="#333333">'
    yield "<title>Recall over the number of tools shown</title>"
    yield '<rect width="480" height="300" fill="#ffffff"/>'
    for tenths in range(0, 11, 2):
        y = _y(tenths / 10)
        yield f'<path d="M50 {y:g}H460" stroke="#dddddd"/>'
        yield f'<text x="42" y="{y + 4:g}" text-anchor="end">{tenths / 10:.1f}</text>'
    for k in range(1, 11):
        yield f'<text x="{_x(k):g}" y="268" text-anchor="middle">{k}</text>'
    yield '<text x="255" y="290" text-anchor="middle">tools shown (k)</text>'
    for place, (name, color, dashes, each) in enumerate(lines):
        points = " ".join(f"{_x(k):g},{_y(share):g}" for k, share in enumerate(each.recall, 1))
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'
        yield f'<text x="{60 + 80 * place}" y="16" fill="{color}">{name}</text>'
    yield "</svg>"


def _x(k: int) -> float:
    return 60 + (k - 1) * 43


def _y(share: float) -> float:
    return round(250 - share * 220, 1)
