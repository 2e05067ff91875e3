"""Documentation site: a folder of Markdown and reStructuredText pages, built with Sphinx.

    index.md, index.rst       tools by toolkit
    tools/NAME.md, NAME.rst   one page for each tool
    conf.py                   Sphinx configuration; an existing one is kept
    .toolkiln-docs.json       list of the files above; no other file is changed or removed

Sphinx is optional and runs in its own process, because it keeps much global state.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from string import punctuation

from toolkiln.docs.blocks import (
    Block,
    Blocks,
    Bullets,
    CodeBlock,
    CodeSpan,
    DocPage,
    Inline,
    PageLink,
    PageSection,
    Paragraph,
    Strong,
    clean,
    first_sentence,
    markdown,
    paragraph,
    words,
)
from toolkiln.docs.pages import grouped, page_name, page_of
from toolkiln.errors import BackendError, InputError
from toolkiln.model.catalog import Admission
from toolkiln.model.search import Site
from toolkiln.model.spec import ToolSpec

_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in f"{punctuation}•‣⁃"})
_BLANK = re.compile(r"\n +(?=\n)")
_LANGUAGES = frozenset({"bash", "json", "pycon", "python", "toml", "yaml"})
"""Languages that Sphinx certainly supports; it warns about others."""


def rst(page: DocPage) -> str:
    """Render a page as reStructuredText."""
    parts = [_title(page.title, "="), *(_block(block) for block in page.opening)]
    for section in page.sections:
        parts += [_title(section.title, "-"), _blocks(section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(title: str, sign: str) -> str:
    text = _escape_start(_text(title).strip())
    # Wide characters count twice.
    return f"{text}\n{sign * max(4, 2 * len(text))}"


def _blocks(blocks: Blocks) -> str:
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, CodeBlock):
        language = block.language if block.language in _LANGUAGES else "text"
        lines = "\n   ".join(clean(line) for line in block.text.split("\n"))
        return _BLANK.sub("\n", f".. code-block:: {language}\n\n   {lines}")
    if isinstance(block, Bullets):
        marker = "#. " if block.ordered else "- "
        margin = "\n" + " " * len(marker)
        items = [marker + _blocks(item).replace("\n", margin) for item in block.items]
        return _BLANK.sub("\n", "\n\n".join(items))
    # An escaped space is invisible and separates neighbouring markup.
    return _escape_start("\\ ".join(_inline(part) for part in block.line).strip())


def _escape_start(line: str) -> str:
    # A line of only backslashes would be parsed as a transition.
    return f"\\ {line}" if line.startswith("\\\\") else line


def _inline(part: Inline) -> str:
    if isinstance(part, CodeSpan):
        shown = _text(part.text).strip() or '""'
        return f":literal:`{shown}`"
    if isinstance(part, Strong):
        return f"**{_text(part.text).strip()}**"
    if isinstance(part, PageLink):
        return f":doc:`{_text(part.text).strip()} </{part.page}>`"
    return _text(part.text)


def _text(text: str) -> str:
    return words(text).translate(_ESCAPES)


_LIST = ".toolkiln-docs.json"
_CONFIGURATION = "conf.py"
_GENERATED = re.compile(r"(index|tools/[A-Za-z0-9_-]{1,80})\.(md|rst)|conf\.py", re.ASCII)
_CONF = '''\
"""Sphinx configuration of the pages that Toolkiln generates."""

project = "Tools"
include_patterns = ["index.rst", "tools/*.rst"]
# Keep dashes and quotation marks as written.
smartquotes = False
# Examples may be invalid in their declared language.
suppress_warnings = ["misc.highlighting_failure"]
html_copy_source = False
# A list of all tools on each of thousands of pages would be most of the site.
html_sidebars = {"**": ["about.html", "searchfield.html"]}
'''
_MAX_ERROR = 2_000


def write_site(folder: Path, entries: Iterable[tuple[ToolSpec, Admission | None]]) -> Site:
    """Update a folder: write changed pages, remove pages of deleted tools.

    Raises:
        InputError: another file is in the way, or the folder cannot be written.
    """
    pages = _pages(list(entries))
    try:
        return _synchronise(folder, pages)
    except OSError as error:
        path = error.filename or folder
        raise InputError(
            f"{str(path)!r} cannot be written: {error.strerror}", hint="choose another folder"
        ) from error


def build_site(source: Path, output: Path) -> None:
    """Build HTML with Sphinx from a folder that `write_site` wrote; warnings are errors.

    Raises:
        InputError: Sphinx is not installed.
        BackendError: Sphinx failed.
    """
    if find_spec("sphinx") is None:
        raise InputError(
            "Sphinx is not installed",
            hint="run `pip install 'toolkiln[docs]'`, or use --no-html to write pages only",
        )
    options = ["-b", "html", "-q", "-W", "--keep-going", "-j", "auto"]
    # -P keeps the working folder off the module path.
    command = [sys.executable, "-P", "-m", "sphinx", *options, str(source), str(output)]
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if process.returncode:
        reason = process.stderr.strip()[-_MAX_ERROR:]
        raise BackendError(f"Sphinx could not build the site: {reason}")


def _pages(entries: list[tuple[ToolSpec, Admission | None]]) -> dict[str, str]:
    found = {_CONFIGURATION: _CONF}
    for spec, admission in entries:
        page = page_of(spec, admission)
        path = _path(spec)
        found[f"{path}.md"], found[f"{path}.rst"] = markdown(page), rst(page)
    index = _index([spec for spec, _ in entries])
    found["index.md"] = markdown(index)
    paths = [_path(spec) for _, specs in grouped(spec for spec, _ in entries) for spec in specs]
    contents = "\n   ".join([".. toctree::", ":hidden:", "", *paths]) if paths else ""
    found["index.rst"] = f"{rst(index)}\n{contents}\n"
    return found


def _index(specs: list[ToolSpec]) -> DocPage:
    sections = tuple(
        PageSection(title, (Bullets(tuple((_entry(spec),) for spec in members)),))
        for title, members in grouped(specs)
    )
    opening = () if sections else (paragraph("There are no tools."),)
    return DocPage("Tools", opening, sections)


def _entry(spec: ToolSpec) -> Paragraph:
    return paragraph(PageLink(spec.name, _path(spec)), ": ", first_sentence(spec.description))


def _path(spec: ToolSpec) -> str:
    return f"tools/{page_name(spec.name)}"


def _synchronise(folder: Path, pages: dict[str, str]) -> Site:
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    generated = _generated(folder)
    if (folder / _CONFIGURATION).exists() and _CONFIGURATION not in generated:
        pages = {path: text for path, text in pages.items() if path != _CONFIGURATION}
    stale = {path: text for path, text in pages.items() if _content(folder / path) != text}
    for path in sorted(stale.keys() - generated):
        if (folder / path).exists() or (folder / path).is_symlink():
            raise InputError(
                f"{str(folder / path)!r} was not written by Toolkiln",
                hint="move it away, or choose another folder",
            )
    removed = generated - pages.keys()
    # Before any page, so that an interrupted run leaves no unlisted file.
    _write_list(folder, generated | pages.keys())
    for path, text in stale.items():
        _write(folder / path, text)
    for path in removed:
        (folder / path).unlink(missing_ok=True)
    _write_list(folder, set(pages))
    return Site(
        folder=str(folder),
        written=len(stale),
        unchanged=len(pages) - len(stale),
        removed=len(removed),
    )


def _generated(folder: Path) -> set[str]:
    """Return the files that an earlier run wrote."""
    text = _content(folder / _LIST)
    if text is None:
        return set()
    try:
        listed = json.loads(text)["files"]
        return {path for path in listed if _GENERATED.fullmatch(path)}
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
    try:
        return file.read_bytes().decode() if file.is_file() and not file.is_symlink() else None
    except UnicodeDecodeError:
        return None
