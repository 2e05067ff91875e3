"""A folder of pages about all tools: Markdown, and reStructuredText that Sphinx builds.

    index.md, index.rst       the tools by toolkit
    tools/NAME.md, NAME.rst   a page for each
    conf.py                   for Sphinx; one that was there before is kept
    .toolkiln-docs.json       the files above: only these are ever rewritten or removed

Sphinx is optional and runs in a process of its own: it keeps much global state.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from toolkiln.docs.blocks import Bullets, Link, Page, Paragraph, Section, paragraph
from toolkiln.docs.index import grouped
from toolkiln.docs.markdown import markdown
from toolkiln.docs.pages import page_name, page_of
from toolkiln.docs.prose import first_sentence
from toolkiln.docs.rst import rst
from toolkiln.errors import BackendError, InputError
from toolkiln.model import Admission, Site, ToolSpec

_LIST = ".toolkiln-docs.json"
_CONFIGURATION = "conf.py"
_OURS = re.compile(r"(index|tools/[A-Za-z0-9_-]{1,80})\.(md|rst)|conf\.py", re.ASCII)
_CONF = '''\
"""Settings of Sphinx for pages that Toolkiln writes."""

project = "Tools"
include_patterns = ["index.rst", "tools/*.rst"]
# Dashes and quotation marks of tools mean what they are.
smartquotes = False
# Examples need not be valid in the language that they say they are in.
suppress_warnings = ["misc.highlighting_failure"]
html_copy_source = False
# The list of all tools beside each of thousands of pages would be most of the site.
html_sidebars = {"**": ["about.html", "searchfield.html"]}
'''
_NO_SPHINX = "Sphinx is not installed"
_LONGEST_COMPLAINT = 2_000


def write_site(folder: Path, entries: Iterable[tuple[ToolSpec, Admission | None]]) -> Site:
    """Bring a folder up to date: write what differs, remove pages of tools that are gone.

    Raises:
        InputError: a file that is not ours is in the way, or the folder cannot be written.
    """
    pages = _pages(list(entries))
    try:
        return _synchronise(folder, pages)
    except OSError as error:
        place = error.filename or folder
        raise InputError(
            f"{str(place)!r} cannot be written: {error.strerror}", hint="choose another folder"
        ) from error


def build_site(source: Path, output: Path) -> None:
    """Let Sphinx make HTML of a folder that `write_site` wrote; a warning is a failure.

    Raises:
        InputError: Sphinx is not installed.
        BackendError: it failed.
    """
    if find_spec("sphinx") is None:
        raise InputError(
            _NO_SPHINX, hint="pip install 'toolkiln[docs]', or write pages only (--no-html)"
        )
    options = ["-b", "html", "-q", "-W", "--keep-going", "-j", "auto"]
    # -P: nothing in the working folder is taken for a module.
    command = [sys.executable, "-P", "-m", "sphinx", *options, str(source), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if done.returncode:
        said = done.stderr.strip()[-_LONGEST_COMPLAINT:]
        raise BackendError(f"Sphinx could not build the site: {said}")


def _pages(entries: list[tuple[ToolSpec, Admission | None]]) -> dict[str, str]:
    """The files by their path."""
    found = {_CONFIGURATION: _CONF}
    for spec, admission in entries:
        page = page_of(spec, admission)
        place = _place(spec)
        found[f"{place}.md"], found[f"{place}.rst"] = markdown(page), rst(page)
    index = _index([spec for spec, _ in entries])
    found["index.md"] = markdown(index)
    places = [_place(spec) for _, specs in grouped(spec for spec, _ in entries) for spec in specs]
    contents = "\n   ".join([".. toctree::", ":hidden:", "", *places]) if places else ""
    found["index.rst"] = f"{rst(index)}\n{contents}\n"
    return found


def _index(specs: list[ToolSpec]) -> Page:
    sections = tuple(
        Section(title, (Bullets(tuple((_entry(spec),) for spec in members)),))
        for title, members in grouped(specs)
    )
    opening = () if sections else (paragraph("There are no tools."),)
    return Page("Tools", opening, sections)


def _entry(spec: ToolSpec) -> Paragraph:
    return paragraph(Link(spec.name, _place(spec)), ": ", first_sentence(spec.description))


def _place(spec: ToolSpec) -> str:
    return f"tools/{page_name(spec.name)}"


def _synchronise(folder: Path, pages: dict[str, str]) -> Site:
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    ours = _ours(folder)
    if (folder / _CONFIGURATION).exists() and _CONFIGURATION not in ours:
        pages = {path: text for path, text in pages.items() if path != _CONFIGURATION}
    stale = {path: text for path, text in pages.items() if _content(folder / path) != text}
    for path in sorted(stale.keys() - ours):
        if (folder / path).exists() or (folder / path).is_symlink():
            raise InputError(
                f"{str(folder / path)!r} was not written by Toolkiln",
                hint="move it away, or choose another folder",
            )
    gone = ours - pages.keys()
    # Before any page, so that a run that is cut short leaves nothing behind that is not listed.
    _write_list(folder, ours | pages.keys())
    for path, text in stale.items():
        _write(folder / path, text)
    for path in gone:
        (folder / path).unlink(missing_ok=True)
    _write_list(folder, set(pages))
    return Site(
        folder=str(folder),
        written=len(stale),
        unchanged=len(pages) - len(stale),
        removed=len(gone),
    )


def _ours(folder: Path) -> set[str]:
    """The files that an earlier run wrote."""
    text = _content(folder / _LIST)
    if text is None:
        return set()
    try:
        listed = json.loads(text)["files"]
        return {path for path in listed if _OURS.fullmatch(path)}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{str(folder / _LIST)!r} is damaged", hint="remove the folder, or choose another"
        ) from error


def _write_list(folder: Path, paths: set[str]) -> None:
    text = json.dumps({"files": sorted(paths)}, indent=0) + "\n"
    if _content(folder / _LIST) != text:
        _write(folder / _LIST, text)


def _write(file: Path, text: str) -> None:
    if file.is_symlink():
        file.unlink()
    file.write_text(text, "utf-8")


def _content(file: Path) -> str | None:
    """The text of a file of ours; None if there is none, or something else."""
    try:
        return file.read_bytes().decode() if file.is_file() and not file.is_symlink() else None
    except UnicodeDecodeError:
        return None
