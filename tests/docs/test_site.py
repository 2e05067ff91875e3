"""The folder of pages, and the site that Sphinx builds of it."""

import json
import subprocess
import sys
from html import unescape
from pathlib import Path
from unittest.mock import patch

import pytest

from tables import each_row
from toolkiln.docs.blocks import words
from toolkiln.docs.pages import page
from toolkiln.docs.site import build_site, write_site
from toolkiln.errors import BackendError, InputError
from toolkiln.model.catalog import Admission
from toolkiln.model.search import Site
from toolkiln.model.spec import Toolkit, ToolSpec

from .rendering import HOSTILE, everywhere, headings, kinds, spec

Entries = list[tuple[ToolSpec, Admission | None]]


def entries(*names: str, description: str = "Convert money.") -> Entries:
    return [(spec(name=name, description=description), None) for name in names]


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_site_is_pages_in_two_languages_and_an_index(tmp_path: Path) -> None:
    site = write_site(tmp_path / "new" / "docs", entries("a", "b"))

    folder = tmp_path / "new" / "docs"
    pages = {"tools/a.md", "tools/a.rst", "tools/b.md", "tools/b.rst"}
    assert files(folder) == {*pages, "index.md", "index.rst", "conf.py", ".toolkiln-docs.json"}
    assert (folder / "tools" / "a.md").read_text("utf-8") == page(spec(name="a"))
    assert "- [a](tools/a.md): Convert money." in (folder / "index.md").read_text("utf-8")
    assert site == Site(folder=str(folder), written=7)


def test_only_what_changed_is_written_again(tmp_path: Path) -> None:
    write_site(tmp_path, entries("a", "b"))
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)}

    changed = [*entries("a"), *entries("b", description="Convert time.")]
    site = write_site(tmp_path, changed)

    after = {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)}
    written = {"tools/b.md", "tools/b.rst", "index.md", "index.rst"}
    assert {n for n in after if after[n] != before[n]} == written
    assert (site.written, site.unchanged, site.removed) == (4, 3, 0)


def test_pages_of_removed_tools_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("mine")
    write_site(tmp_path, entries("a", "b"))
    for mine in ("tools/mine.md", "notes.txt"):
        (tmp_path / mine).write_text("mine")

    site = write_site(tmp_path, entries("b"))

    assert site.removed == 2
    assert not (tmp_path / "tools" / "a.md").exists()
    for mine in ("tools/mine.md", "notes.txt", "conf.py"):
        assert (tmp_path / mine).read_text() == "mine"


def test_a_list_that_names_foreign_files_removes_none_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    write_site(folder, entries("a"))
    (tmp_path / "secret.md").write_text("keep")
    (folder / "tools" / "x").mkdir()
    (folder / "tools" / "x" / "y.md").write_text("keep")
    names = ["../secret.md", str(tmp_path / "secret.md"), "tools/../../secret.md", "tools/x/y.md"]
    (folder / ".toolkiln-docs.json").write_text(json.dumps({"files": names}))

    write_site(folder, entries("a"))

    assert (tmp_path / "secret.md").read_text() == "keep"
    assert (folder / "tools" / "x" / "y.md").read_text() == "keep"


def test_a_foreign_page_in_the_way_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("mine")

    with pytest.raises(InputError, match="was not written by Toolkiln"):
        write_site(tmp_path, entries("a"))
    with pytest.raises(InputError, match="cannot be written"):
        write_site(tmp_path / "index.md", entries("a"))

    assert files(tmp_path) == {"index.md"}
    assert (tmp_path / "index.md").read_text() == "mine"


def test_a_link_in_the_place_of_a_page_is_not_followed(tmp_path: Path) -> None:
    folder, target = tmp_path / "docs", tmp_path / "target"
    (folder / "tools").mkdir(parents=True)
    target.write_text("keep")
    (folder / "tools" / "a.md").symlink_to(target)

    with pytest.raises(InputError, match="was not written by Toolkiln"):
        write_site(folder, entries("a"))
    (folder / "tools" / "a.md").unlink()
    write_site(folder, entries("a"))
    (folder / "tools" / "a.md").unlink()
    (folder / "tools" / "a.md").symlink_to(target)
    write_site(folder, entries("a"))

    assert target.read_text() == "keep"
    assert (folder / "tools" / "a.md").read_text("utf-8") == page(spec(name="a"))


def test_an_interrupted_run_is_finished_by_the_next(tmp_path: Path) -> None:
    real = Path.write_text
    written: list[Path] = []

    def failing(file: Path, *arguments: str, **options: str) -> int:
        written.append(file)
        if len(written) == 4:
            raise OSError(28, "No space left on device", str(file))
        return real(file, *arguments, **options)

    with patch.object(Path, "write_text", failing), pytest.raises(InputError, match="No space"):
        write_site(tmp_path, entries("a", "b"))
    write_site(tmp_path, entries("b"))

    assert (tmp_path / "tools" / "b.md").read_text("utf-8") == page(spec(name="b"))
    assert {name for name in files(tmp_path) if "a." in name} == set()


@each_row("text", ["{", "[]", '{"files": 3}', '{"files": [3]}', '{"files": null}'])
def test_a_damaged_list_is_an_error_with_a_hint(tmp_path: Path, text: str) -> None:
    (tmp_path / ".toolkiln-docs.json").write_text(text)

    with pytest.raises(InputError, match="is damaged") as caught:
        write_site(tmp_path, entries("a"))

    assert caught.value.hint


def test_names_never_leave_the_folder(tmp_path: Path) -> None:
    write_site(tmp_path / "docs", entries("../../evil", "/etc/x", "a/b", "", "..", "conf", "index"))

    assert files(tmp_path) == {f"docs/{name}" for name in files(tmp_path / "docs")}
    assert {"tools/conf.md", "tools/index.md"} <= files(tmp_path / "docs")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built site of tools that say the worst, and one that is nice."""
    folder = tmp_path_factory.mktemp("site")
    tools: Entries = [*entries("nice")]
    for number, text in enumerate(HOSTILE):
        name = f"evil_{number}" if number % 2 else text
        toolkit = Toolkit(name=f"k{number}", display_name=text, description=text)
        tool = everywhere(text, name=name, title=text or "x")
        tools.append((tool.model_copy(update={"toolkit": toolkit}), None))
    write_site(folder, tools)
    build_site(folder, folder / "html")
    return folder


def test_a_built_page_shows_hostile_text_and_runs_none_of_it(hostile: Path) -> None:
    number = next(n for n, text in enumerate(HOSTILE) if "<script>" in text and n % 2)

    html = (hostile / "html" / "tools" / f"evil_{number}.html").read_text("utf-8")

    assert "<script>alert" not in html
    assert words(HOSTILE[number]) in unescape(html)
    assert (hostile / "html" / "tools" / "nice.html").is_file()


def test_the_index_of_hostile_tools_lists_each_of_them(hostile: Path) -> None:
    index = (hostile / "index.md").read_text("utf-8")

    html = (hostile / "html" / "index.html").read_text("utf-8")
    assert len(headings(index)) >= 2
    assert not kinds(index) & {"html_block", "html_inline", "image", "table"}
    assert html.count('href="tools/') >= len(HOSTILE) + 1


def test_a_warning_of_sphinx_is_an_error(tmp_path: Path) -> None:
    write_site(tmp_path, entries("a"))
    with (tmp_path / "index.rst").open("a") as index:
        index.write("\n:doc:`/nowhere`\n")

    with pytest.raises(BackendError, match="nowhere"):
        build_site(tmp_path, tmp_path / "html")


def test_without_sphinx_the_error_says_what_to_install(tmp_path: Path) -> None:
    with (
        patch("toolkiln.docs.site.find_spec", return_value=None),
        pytest.raises(InputError, match="not installed") as caught,
    ):
        build_site(tmp_path, tmp_path / "html")

    assert "toolkiln[docs]" in (caught.value.hint or "")


def test_a_site_without_tools_builds_beside_modules_called_like_sphinx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_site(tmp_path / "docs", [])
    (tmp_path / "sphinx.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)

    build_site(tmp_path / "docs", tmp_path / "html")

    assert "There are no tools." in (tmp_path / "html" / "index.html").read_text("utf-8")


def test_importing_the_package_loads_neither_sphinx_nor_docutils() -> None:
    code = "import sys, toolkiln.docs; print({'sphinx', 'docutils', 'rich'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
