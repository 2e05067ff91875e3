"""The commands for finding tools and reading about them: search, evaluation, documents."""

from pathlib import Path
from typing import Annotated

import typer

from toolkiln.surfaces.cli.shell import (
    DevOption,
    JsonOption,
    RedisOption,
    TokenOption,
    ToolsOption,
    app,
    errors,
)

QueryArgument = Annotated[str, typer.Argument(help="What is wanted, in plain words.")]
CountOption = Annotated[int, typer.Option("-k", min=1, max=1000, help="How many, at most.")]
ToolArgument = Annotated[str, typer.Argument(help="The name of the tool.")]


@app.command()
def search(
    query: QueryArgument,
    k: CountOption = 5,
    why: Annotated[bool, typer.Option("--why", help="Show what each score is made of.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Find the tools that fit a prompt."""
    from toolkiln.surfaces.cli import finding, opening

    with errors(), opening.open_kiln(tools, redis, dev=dev) as kiln:
        raise typer.Exit(finding.search(kiln, query, k, token, why=why, as_json=as_json))


eval_app = typer.Typer(help="Measure how well tools are found.", no_args_is_help=True)
app.add_typer(eval_app, name="eval")


@eval_app.command(name="search")
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
    """Measure recall and NDCG on queries of your own."""
    from toolkiln.surfaces.cli import finding

    with errors():
        finding.eval_search(file, against, svg, tools, as_json=as_json)


usages_app = typer.Typer(help="Look after the prompts that search learnt.", no_args_is_help=True)
app.add_typer(usages_app, name="usages")


@usages_app.command(name="list")
def usages_list(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the prompts that tools answered."""
    from toolkiln.surfaces.cli import finding

    with errors():
        finding.usages_list(tools, as_json=as_json)


@usages_app.command(name="clear")
def usages_clear(
    tool: Annotated[
        str | None, typer.Argument(help="The name of a tool. Default: all.", show_default=False)
    ] = None,
    tools: ToolsOption = None,
) -> None:
    """Forget the prompts of a tool, or of all."""
    from toolkiln.surfaces.cli import finding

    with errors():
        finding.usages_clear(tool, tools)


docs_app = typer.Typer(help="Read about the tools.", no_args_is_help=True)
app.add_typer(docs_app, name="docs")


@docs_app.command(name="show")
def docs_show(tool: ToolArgument, as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """Print the page about a tool."""
    from toolkiln.surfaces.cli import documents, finding

    with errors(), finding.library_about(tool, tools) as library:
        documents.docs_show(library, tool, as_json=as_json)


@docs_app.command(name="guide")
def docs_guide(tool: ToolArgument, tools: ToolsOption = None) -> None:
    """Print how to use a tool, as a model that has chosen it reads it."""
    from toolkiln.surfaces.cli import documents, finding

    with errors(), finding.library_about(tool, tools) as library:
        documents.docs_guide(library, tool)


@docs_app.command(name="index")
def docs_index(token: TokenOption = None, tools: ToolsOption = None) -> None:
    """Print all tools in one line each, for a prompt."""
    from toolkiln.surfaces.cli import finding

    with errors():
        finding.docs_index(token, tools)


@docs_app.command(name="search")
def docs_search(
    query: QueryArgument,
    k: CountOption = 5,
    token: TokenOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Find passages of the pages, cited by page and heading."""
    from toolkiln.surfaces.cli import finding

    with errors():
        raise typer.Exit(finding.docs_search(query, k, token, tools, as_json=as_json))


@docs_app.command(name="build")
def docs_build(
    folder: Annotated[Path, typer.Argument(help="Where to.")] = Path("toolkiln-docs"),
    no_html: Annotated[
        bool, typer.Option("--no-html", help="Do without Sphinx, and without HTML.")
    ] = False,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Write pages about all tools, as Markdown, RST and HTML."""
    from toolkiln.surfaces.cli import finding

    with errors():
        finding.docs_build(folder, tools, html=not no_html, as_json=as_json)
