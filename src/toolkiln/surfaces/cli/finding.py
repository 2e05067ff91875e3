"""Commands that find tools for a prompt, and measure how well."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolkiln.app import OWN
from toolkiln.model import Hit, Privilege, ToolSpec
from toolkiln.surfaces.cli.documents import print_passages, print_site
from toolkiln.surfaces.cli.evaluating import Options, evaluate_search
from toolkiln.surfaces.cli.opening import (
    authenticate,
    note_no_worker,
    open_kiln,
    require,
    visible_tool,
)
from toolkiln.surfaces.cli.terminal import print_json, printable, say

if TYPE_CHECKING:
    from toolkiln.app import Kiln, Library


def search(kiln: "Kiln", query: str, k: int, token: str | None, *, why: bool, as_json: bool) -> int:
    """Print the tools that fit; the exit status is 1 if there is none."""
    answer = kiln.search(query, k, authenticate(kiln, token))
    found = [(hit, kiln.tool(hit.key)) for hit in answer.hits]
    if as_json:
        hits = [{**_as_json(hit, spec), "dev": kiln.is_dev(hit.key)} for hit, spec in found]
        told = {"hits": hits, "confidence": answer.confidence, "note": answer.note}
        print_json(told)
    else:
        width = max((len(spec.name) for _, spec in found), default=0)
        for hit, spec in found:
            _print_hit(hit, spec, width, why=why, dev=kiln.is_dev(hit.key))
        if answer.note:
            say(f"note: {answer.note}", err=True)
        if why:
            say(f"confidence: {answer.confidence:.2f}", err=True)
        if not found:
            say("nothing found", err=True)
            note_no_worker(kiln)
    return 0 if found else 1


def docs_search(query: str, k: int, token: str | None, tools: Path | None, *, as_json: bool) -> int:
    """Print the passages that answer a query; the exit status is 1 if there is none."""
    with open_kiln(tools) as kiln:
        hits = kiln.search_docs(query, k, authenticate(kiln, token))
    return print_passages(hits, as_json=as_json)


def docs_index(token: str | None, tools: Path | None) -> None:
    """Print the index of all tools as a prompt holds it."""
    with open_kiln(tools) as kiln:
        visible = kiln.visible(authenticate(kiln, token))
        say(kiln.library.prompt_index(lambda spec: spec.name in visible))


def eval_search(
    file: Path, against: Path | None, svg: Path | None, tools: Path | None, *, as_json: bool
) -> None:
    """Measure the search of the catalog on queries from a file."""
    with open_kiln(tools) as kiln:
        session = authenticate(kiln)

        def names(query: str, k: int) -> list[str]:
            return [hit.key for hit in kiln.search(query, k, session).hits]

        specs = kiln.specs if session is OWN else kiln.visible(session, None)
        evaluate_search(file, names, specs, Options(as_json, svg, against))


def usages_list(tools: Path | None, *, as_json: bool) -> None:
    """Print the prompts that were kept."""
    with open_kiln(tools) as kiln:
        require(kiln, Privilege.ADMIN, "usages.list")
        found = kiln.store.archive.usages(kiln.catalog.manifest.catalog)
    if as_json:
        print_json(found)
        return
    for tool, prompts in found.items():
        for prompt in prompts:
            say(f"{tool}: {prompt}")


def usages_clear(tool: str | None, tools: Path | None) -> None:
    """Forget prompts."""
    with open_kiln(tools) as kiln:
        require(kiln, Privilege.ADMIN, "usages.clear")
        kiln.store.archive.clear_usages(kiln.catalog.manifest.catalog, tool)
    say(f"forgotten: {tool or 'the prompts of all tools'}")


def docs_build(folder: Path, tools: Path | None, *, html: bool, as_json: bool) -> None:
    """Write the pages of the tools that the caller may see."""
    with open_kiln(tools) as kiln:
        session = authenticate(kiln)
        allow = None if session is OWN else kiln.guarding.may_see(session)
        print_site(kiln.library.build_docs(folder, html=html, allow=allow), as_json=as_json)


@contextmanager
def library_about(tool: str, tools: Path | None) -> "Iterator[Library]":
    """Open the library to read about a tool that the caller may see."""
    with open_kiln(tools) as kiln:
        visible_tool(kiln, tool, authenticate(kiln))
        yield kiln.library


def _print_hit(hit: Hit, spec: ToolSpec, width: int, *, why: bool, dev: bool) -> None:
    name = typer.style(f"{spec.name:<{width}}", fg="green")
    mark = " (dev)" if dev else ""
    typer.echo(f"{name}  {printable(spec.description.partition(chr(10))[0])}{mark}")
    if why:
        parts = ", ".join(f"{part} {value:.2f}" for part, value in hit.parts.items() if value)
        words = f"; words: {', '.join(hit.words)}" if hit.words else ""
        clause = f"; for: {hit.clause!r}" if hit.clause else ""
        say(f"    {hit.score:.2f} = {parts}{words}{clause}")


def _as_json(hit: Hit, spec: ToolSpec) -> dict[str, object]:
    return {
        "name": hit.key,
        "description": spec.description,
        "score": hit.score,
        "parts": dict(hit.parts),
        "words": list(hit.words),
        "clause": hit.clause,
    }
