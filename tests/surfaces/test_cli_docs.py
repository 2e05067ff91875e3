"""Reading about tools on the command line: pages, guides, the index, the site."""

import subprocess
from pathlib import Path

import pytest

from .conftest import BOUND, COMMAND, GREET, KIT, POLITE, Shell, write

SETTINGS = ""
TOOLS = {"greet.py": GREET, "kit.py": KIT}


class TestPages:
    def test_the_page_of_a_tool_is_markdown(self, shell: Shell) -> None:
        done = shell.run("docs", "show", "greet")

        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("# Greet\n")
        assert "- `name` (string; required): Who is greeted." in done.out
        assert "## Version" in done.out

    def test_json_holds_the_page(self, shell: Shell) -> None:
        told = shell.invoke("docs", "show", "greet", "--json").json()

        assert told["tool"] == "greet"
        assert told["page"].startswith("# Greet\n")

    def test_a_terminal_gets_it_laid_out(self, shell: Shell) -> None:
        code, shown = shell.on_terminal("docs", "show", "greet")

        assert code == 0
        assert "# Greet" not in shown
        assert "Who is greeted." in shown

    def test_the_guide_is_for_a_model_that_has_chosen(self, shell: Shell) -> None:
        done = shell.invoke("docs", "guide", "greet")

        assert done.out.startswith("# greet\n")
        assert "## Version" not in done.out

    def test_the_index_has_a_line_for_each_tool(self, shell: Shell) -> None:
        done = shell.invoke("docs", "index")

        assert done.code == 0
        assert "- greet: Greet a person by name.\n" in done.out
        assert "open_drawer" in done.out

    def test_the_page_is_of_the_version_that_is_served(self, admitted: Shell) -> None:
        write(admitted, "greet.py", POLITE.replace("Greet a person", "Welcome a person"))

        done = admitted.invoke("docs", "show", "greet")

        assert "Greet a person" in done.out
        assert "Number: 1, admitted by" in done.out

    @pytest.mark.parametrize("command", ["show", "guide"])
    @pytest.mark.parametrize("name", ["great", "", "../greet", "größe", "x" * 5000])
    def test_a_tool_that_is_none_is_a_clear_error(
        self, shell: Shell, command: str, name: str
    ) -> None:
        done = shell.invoke("docs", command, "--", name)

        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")

    def test_pages_of_toolkilns_own_tools_can_be_read(self, shell: Shell) -> None:
        done = shell.invoke("docs", "show", "write_python_tool")

        assert done.code == 0
        assert "write_python_tool" in done.out


class TestSearch:
    def test_passages_are_cited_by_page_and_heading(self, shell: Shell) -> None:
        done = shell.run("docs", "search", "which drawer number", "-k", "2")

        assert (done.code, done.err) == (0, "")
        first = done.out.splitlines()[0]
        assert first.partition("#")[0] in ("open_drawer.md", "close_drawer.md")
        assert first.partition("#")[2]
        assert "\x1b" not in done.out

    def test_passages_are_parted_by_empty_lines(self, shell: Shell) -> None:
        done = shell.invoke("docs", "search", "drawer", "-k", "2")

        lines = done.out.splitlines()
        cited = [number for number, line in enumerate(lines) if ".md#" in line]
        assert len(cited) == 2
        assert lines[cited[1] - 1] == ""

    def test_json_cites_each_passage(self, shell: Shell) -> None:
        told = shell.invoke("docs", "search", "who is greeted", "-k", "1", "--json").json()

        assert [hit["page"] for hit in told] == ["greet.md"]
        assert told[0]["citation"].startswith("greet.md#")
        assert told[0]["heading"]

    @pytest.mark.parametrize("options", [[], ["--json"]])
    def test_nothing_wanted_is_nothing_found(self, shell: Shell, options: list[str]) -> None:
        done = shell.invoke("docs", "search", "", *options)

        assert done.code == 1
        assert done.json() == [] if options else done.err == "nothing found\n"


class TestBuild:
    def test_pages_are_written_once_and_again_only_if_they_change(self, admitted: Shell) -> None:
        first = admitted.run("docs", "build", "site", "--no-html")
        again = admitted.invoke("docs", "build", "site", "--no-html", "--json").json()

        assert (first.code, first.out) == (0, "site\n")
        assert " written, 0 unchanged, 0 removed\n" in first.err
        assert (admitted.folder / "site" / "tools" / "greet.md").is_file()
        assert (admitted.folder / "site" / "tools" / "greet.rst").is_file()
        assert not (admitted.folder / "site" / "html").exists()
        assert (again["written"], again["removed"], again["html"]) == (0, 0, None)

    def test_sphinx_makes_a_site(self, admitted: Shell) -> None:
        pytest.importorskip("sphinx")

        done = admitted.run("docs", "build", "site")

        assert (done.code, done.out) == (0, "site/html\n")
        page = (admitted.folder / "site" / "html" / "tools" / "greet.html").read_text()
        assert "Greet a person by name." in page

    def test_without_sphinx_it_says_what_to_install(
        self, admitted: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("toolkiln.docs.site.find_spec", lambda name: None)

        done = admitted.invoke("docs", "build", "site")

        assert (done.code, done.out) == (2, "")
        assert "Sphinx" in done.err
        assert "toolkiln[docs]" in done.err

    def test_pages_that_somebody_else_wrote_are_left_alone(self, admitted: Shell) -> None:
        (admitted.folder / "site").mkdir()
        (admitted.folder / "site" / "index.md").write_text("mine")

        done = admitted.invoke("docs", "build", "site", "--no-html")

        assert (done.code, done.out) == (2, "")
        assert "'site/index.md' was not written by Toolkiln" in done.err
        assert (admitted.folder / "site" / "index.md").read_text() == "mine"

    def test_a_file_in_its_place_is_a_clear_error(self, admitted: Shell) -> None:
        (admitted.folder / "site").write_text("mine")

        done = admitted.run("docs", "build", "site", "--no-html")

        assert done.code in (2, 3)
        assert done.err.startswith("error: ")
        assert (admitted.folder / "site").read_text() == "mine"

    def test_nothing_admitted_is_nothing_to_build(self, desk: Shell) -> None:
        done = desk.invoke("docs", "build", "site", "--no-html")

        assert done.code == 2
        assert "toolkiln admit" in done.err
        assert not (desk.folder / "site").exists()


def test_a_reader_that_leaves_early_is_no_error(shell: Shell) -> None:
    done = subprocess.run(
        f"{COMMAND} docs index | head -c 1 > /dev/null",
        shell=True, cwd=shell.folder, env=shell.environ(), capture_output=True, timeout=BOUND,
    )  # fmt: skip

    assert b"Traceback" not in done.stderr


def test_a_site_elsewhere_is_written_there(admitted: Shell, tmp_path: Path) -> None:
    target = tmp_path / "a folder" / "größe"

    done = admitted.invoke("docs", "build", str(target), "--no-html")

    assert (done.code, done.out) == (0, f"{target}\n")
    assert (target / "tools" / "greet.md").is_file()
