"""Commands about what is written on tools: pages, guides, the index, the site."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import typer

from toolkiln.model import PassageHit, Site
from toolkiln.surfaces.cli.terminal import print_json, say


class Library(Protocol):
    """The part of `Kiln` that these commands use."""

    def page(self, name: str) -> str:
        """The page about a tool as Markdown."""
        ...

    def guide(self, name: str) -> str:
        """How to use a tool, as Markdown for a model."""
        ...


def print_site(site: Site, *, as_json: bool) -> None:
    """Print where pages were written, and how many changed."""
    if as_json:
        print_json(site.model_dump(mode="json"))
        return
    say(site.html or site.folder)
    counts = f"{site.written:,} written, {site.unchanged:,} unchanged, {site.removed:,} removed"
    say(counts, err=True)


def docs_show(kiln: Library, tool: str, *, as_json: bool) -> None:
    """Print the page about a tool."""
    text = kiln.page(tool)
    if as_json:
        print_json({"tool": tool, "page": text})
    else:
        _print_markdown(text)


def print_passages(hits: Sequence[PassageHit], *, as_json: bool) -> int:
    """Print the passages that answer a query; the exit status is 1 if there is none."""
    if as_json:
        found = [{**_plain(hit), "citation": hit.passage.citation} for hit in hits]
        print_json(found)
        return 0 if hits else 1
    for number, hit in enumerate(hits):
        typer.secho(f"{chr(10) if number else ''}{hit.passage.citation}", bold=True)
        _print_markdown(hit.passage.text)
    if not hits:
        say("nothing found", err=True)
    return 0 if hits else 1


def docs_guide(kiln: Library, tool: str) -> None:
    """Print how to use a tool."""
    _print_markdown(kiln.guide(tool))


def _plain(hit: PassageHit) -> dict[str, Any]:
    return {**hit.passage.model_dump(mode="json"), "score": hit.score}


def _print_markdown(text: str) -> None:
    """Laid out on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        say(text.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text, hyperlinks=False))
