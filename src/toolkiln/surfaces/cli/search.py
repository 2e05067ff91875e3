"""Commands for search and documentation: find tools, measure search, stored prompts, pages."""

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import (
    DevOption,
    JsonOption,
    RedisOption,
    TokenOption,
    ToolsOption,
    app,
    command,
)
from toolkiln.surfaces.cli.terminal import ProgressDisplay, print_json, printable, say

if TYPE_CHECKING:
    from toolkiln.kiln import Kiln
    from toolkiln.model.evaluation import Comparison, Evaluation, QueryOutcome, SearchFunction
    from toolkiln.model.search import Hit

QueryArgument = Annotated[str, typer.Argument(help="The task, in plain words.")]
CountOption = Annotated[int, typer.Option("-k", min=1, max=1000, help="Maximum number of results.")]
ToolArgument = Annotated[str, typer.Argument(help="The name of the tool.")]
_COLUMNS = (1, 3, 5, 10)
_BAR = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LISTED = 5
_LONGEST_QUERY = 72
"""Characters of a query that are printed."""

eval_app = typer.Typer(help="Measure search.", no_args_is_help=True)
app.add_typer(eval_app, name="eval")
usages_app = typer.Typer(help="Manage the prompts that search learns from.", no_args_is_help=True)
app.add_typer(usages_app, name="usages")
docs_app = typer.Typer(help="Read the documentation of tools.", no_args_is_help=True)
app.add_typer(docs_app, name="docs")


@command(app)
def search(
    query: QueryArgument,
    k: CountOption = 5,
    why: Annotated[bool, typer.Option("--why", help="Show the components of each score.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Find tools for a task; the exit status is 1 if there are none."""
    from toolkiln.surfaces.cli.session import authenticate, note_no_worker, open_kiln

    with open_kiln(tools, redis, dev=dev) as kiln:
        result = kiln.search(query, k, authenticate(kiln, token))
        if as_json:
            hits = [_hit_json(kiln, hit) for hit in result.hits]
            print_json({"hits": hits, "confidence": result.confidence, "note": result.note})
        else:
            width = max((len(hit.key) for hit in result.hits), default=0)
            for hit in result.hits:
                _print_hit(kiln, hit, width, why=why)
            if result.note:
                say(f"note: {result.note}", err=True)
            if why:
                say(f"confidence: {result.confidence:.2f}", err=True)
            if not result.hits:
                say("nothing found", err=True)
                note_no_worker(kiln)
    raise typer.Exit(0 if result.hits else 1)


@command(eval_app, "search")
def eval_search(
    file: Annotated[
        Path, typer.Argument(help='Lines of JSON: {"query": "…", "gold": ["tool", …]}.')
    ],
    against: Annotated[
        Path | None,
        typer.Option(help="The --json output of an earlier run, to compare with."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the plot to a file, too.")] = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Measure recall and NDCG on your own queries."""
    from toolkiln.security.sessions import LOCAL_OPERATOR
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln(tools) as kiln:
        session = authenticate(kiln)

        def names(query: str, k: int) -> list[str]:
            return [hit.key for hit in kiln.search(query, k, session).hits]

        specs = (
            kiln.services.registry.specs if session is LOCAL_OPERATOR else kiln.specs(session, None)
        )
        evaluate_search(file, names, specs, EvaluationOptions(as_json, svg, against))


@command(usages_app, "list")
def usages_list(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the prompts that tools answered."""
    from toolkiln.operations import library as operations
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import run_operation

    usages = run_operation(operations.list_usages, Nothing(), tools=tools)
    if as_json:
        print_json(usages)
        return
    for tool, prompts in usages.items():
        for prompt in prompts:
            say(f"{tool}: {prompt}")


@command(usages_app, "clear")
def usages_clear(
    tool: Annotated[
        str | None, typer.Argument(help="The name of a tool. Default: all.", show_default=False)
    ] = None,
    tools: ToolsOption = None,
) -> None:
    """Delete the prompts of a tool, or of all."""
    from toolkiln.operations import library as operations
    from toolkiln.surfaces.cli.session import run_operation

    run_operation(operations.clear_usages, operations.ClearUsages(tool=tool), tools=tools)
    say(f"forgotten: {tool or 'the prompts of all tools'}")


@command(docs_app, "show")
def docs_show(tool: ToolArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Print the page about a tool."""
    from toolkiln.surfaces.cli.session import authenticate, open_kiln, visible_tool

    with open_kiln(tools) as kiln:
        visible_tool(kiln, tool, authenticate(kiln))
        text = kiln.library.page(tool)
    if as_json:
        print_json({"tool": tool, "page": text})
    else:
        _print_markdown(text)


@command(docs_app, "guide")
def docs_guide(tool: ToolArgument, tools: ToolsOption = None) -> None:
    """Print how to use a tool, as a model reads it."""
    from toolkiln.surfaces.cli.session import authenticate, open_kiln, visible_tool

    with open_kiln(tools) as kiln:
        visible_tool(kiln, tool, authenticate(kiln))
        _print_markdown(kiln.library.guide(tool))


@command(docs_app, "index")
def docs_index(token: TokenOption = None, tools: ToolsOption = None) -> None:
    """Print all tools in one line each, for a prompt."""
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln(tools) as kiln:
        visible = kiln.specs(authenticate(kiln, token))
        say(kiln.library.prompt_index(lambda spec: spec.name in visible))


@command(docs_app, "search")
def docs_search(
    query: QueryArgument,
    k: CountOption = 5,
    token: TokenOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Find passages of the pages, cited by page and heading; the exit status is 1 if none."""
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln(tools) as kiln:
        allow = kiln.services.may_see(authenticate(kiln, token))
        hits = kiln.library.search_docs(query, k, allow)
    if as_json:
        print_json(
            [
                {
                    **hit.passage.model_dump(mode="json"),
                    "score": hit.score,
                    "citation": hit.passage.citation,
                }
                for hit in hits
            ]
        )
    else:
        for number, hit in enumerate(hits):
            typer.secho(f"{chr(10) if number else ''}{hit.passage.citation}", bold=True)
            _print_markdown(hit.passage.text)
        if not hits:
            say("nothing found", err=True)
    raise typer.Exit(0 if hits else 1)


@command(docs_app, "build")
def docs_build(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")] = Path("toolkiln-docs"),
    no_html: Annotated[
        bool, typer.Option("--no-html", help="Write no HTML, which needs Sphinx.")
    ] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Write pages about all tools, as Markdown, RST and HTML."""
    from toolkiln.security.sessions import LOCAL_OPERATOR
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln(tools) as kiln:
        session = authenticate(kiln)
        allow = None if session is LOCAL_OPERATOR else kiln.security.may_see(session)
        site = kiln.library.build_docs(folder, html=not no_html, allow=allow)
    if as_json:
        print_json(site.model_dump(mode="json"))
        return
    say(site.html or site.folder)
    counts = f"{site.written:,} written, {site.unchanged:,} unchanged, {site.removed:,} removed"
    say(counts, err=True)


def _print_hit(kiln: "Kiln", hit: "Hit", width: int, *, why: bool) -> None:
    name = typer.style(f"{hit.key:<{width}}", fg="green")
    description = printable(kiln.tool(hit.key).description.partition("\n")[0])
    suffix = " (dev)" if kiln.services.registry.is_dev(hit.key) else ""
    typer.echo(f"{name}  {description}{suffix}")
    if why:
        parts = ", ".join(f"{part} {value:.2f}" for part, value in hit.parts.items() if value)
        words = f"; words: {', '.join(hit.words)}" if hit.words else ""
        clause = f"; for: {hit.clause!r}" if hit.clause else ""
        say(f"    {hit.score:.2f} = {parts}{words}{clause}")


def _hit_json(kiln: "Kiln", hit: "Hit") -> dict[str, object]:
    return {
        "name": hit.key,
        "description": kiln.tool(hit.key).description,
        "score": hit.score,
        "parts": dict(hit.parts),
        "words": list(hit.words),
        "clause": hit.clause,
        "dev": kiln.services.registry.is_dev(hit.key),
    }


def _print_markdown(text: str) -> None:
    """Print Markdown, laid out on a terminal."""
    if not sys.stdout.isatty():
        say(text.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text, hyperlinks=False))


@dataclass(frozen=True)
class EvaluationOptions:
    """The output of an evaluation."""

    as_json: bool = False
    svg: Path | None = None
    """A file for the plot of recall over k."""
    against: Path | None = None
    """The JSON of an earlier run to compare with."""


def evaluate_search(
    file: Path, search: "SearchFunction", tools: Collection[str], options: EvaluationOptions
) -> None:
    """Run every query of a file, and print recall and NDCG."""
    from functools import partial

    from toolkiln.operations import library

    with ProgressDisplay(quiet=options.as_json) as display:
        progress = partial(display.report, "searching")
        after, comparison = library.evaluate_search(file, search, tools, options.against, progress)
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


def _print_table(rows: "dict[str, Evaluation]") -> None:
    heads = [*(f"recall@{k}" for k in _COLUMNS), "NDCG@10"]
    figures = {
        name: [*(each.recall_at(k) for k in _COLUMNS), each.ndcg] for name, each in rows.items()
    }
    typer.echo(" ".join(["      ", *(f"{head:>9}" for head in heads)]))
    for name, numbers in figures.items():
        typer.echo(" ".join([f"{name:6}", *(f"{number:9.3f}" for number in numbers)]))
    if len(figures) == 2:
        before, after = figures.values()
        gains = (new - old for old, new in zip(before, after, strict=True))
        typer.echo(" ".join(["change", *(f"{gain:+9.3f}" for gain in gains)]))


def _print_bars(after: "Evaluation", before: "Evaluation | None" = None) -> None:
    typer.echo("\n k  recall")
    for k, share in enumerate(after.recall, 1):
        was = f"  (was {before.recall_at(k):.3f})" if before else ""
        typer.echo(f"{k:2}  {_bar(share)} {share:.3f}{was}")


def _bar(share: float) -> str:
    full, eighths = divmod(round(share * _BAR * 8), 8)
    return ("█" * full + (_EIGHTHS[eighths] if eighths else "")).ljust(_BAR)


def _print_worst(outcomes: "Sequence[QueryOutcome]") -> None:
    if outcomes:
        typer.echo("\nworst")
    for outcome in outcomes:
        say(f"  {outcome.ndcg:.2f}  {_short(outcome.query)}")
        say(f"        wanted {', '.join(outcome.gold)}")
        say(f"        found  {', '.join(outcome.found[:_LISTED]) or 'nothing'}")


def _print_changes(comparison: "Comparison") -> None:
    for title, changes in (("better", comparison.better), ("worse", comparison.worse)):
        typer.echo(f"\n{title}: {_queries(len(changes))}")
        for change in changes[:_LISTED]:
            say(f"  {change.gain:+.2f}  {_short(change.after.query)}")
            say(f"         wanted {', '.join(change.after.gold)}")


def _print_left_out(after: "Evaluation", comparison: "Comparison | None") -> None:
    """Print to stderr what the figures do not count."""
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
    return line if len(line) <= _LONGEST_QUERY else f"{line[: _LONGEST_QUERY - 1]}…"


def _draw(file: Path, result: "Evaluation | Comparison") -> None:
    try:
        file.write_text("\n".join(_svg(result)) + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error


def _svg(result: "Evaluation | Comparison") -> Iterator[str]:
    """Yield lines of the plot of recall over k; the earlier run is dashed."""
    from toolkiln.model.evaluation import Comparison

    if isinstance(result, Comparison):
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
    for index, (name, color, dashes, each) in enumerate(lines):
        points = " ".join(f"{_x(k):g},{_y(share):g}" for k, share in enumerate(each.recall, 1))
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'
        yield f'<text x="{60 + 80 * index}" y="16" fill="{color}">{name}</text>'
    yield "</svg>"


def _x(k: int) -> float:
    return 60 + (k - 1) * 43


def _y(share: float) -> float:
    return round(250 - share * 220, 1)
