"""Reading about tools on the command line: pages, guides, the index, the site."""

import pytest

from .conftest import GREET, KIT, POLITE, Shell, write

SETTINGS = ""
TOOLS = {"greet.py": GREET, "kit.py": KIT}


class TestPages:
    def test_the_page_of_a_tool_is_markdown(self, shell: Shell) -> None:
        done = shell.run("docs", "show", "greet")
        as_json = shell.invoke("docs", "show", "greet", "--json").json()

        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("# Greet\n")
        assert "- `name` (string; required): Who is greeted." in done.out
        assert "## Version" in done.out
        assert as_json["tool"] == "greet"
        assert as_json["page"].startswith("# Greet\n")

    def test_a_terminal_gets_it_laid_out(self, shell: Shell) -> None:
        code, shown = shell.on_terminal("docs", "show", "greet")

        assert code == 0
        assert "# Greet" not in shown
        assert "Who is greeted." in shown

    def test_the_guide_is_for_a_model_that_has_chosen(self, shell: Shell) -> None:
        done = shell.invoke("docs", "guide", "greet")

        assert done.out == shell.invoke("show", "greet", "--as", "docs").out
        assert "**Parameters**\n- name: Who is greeted." in done.out
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

    def test_an_unknown_tool_is_a_clear_error(self, shell: Shell) -> None:
        for name in ("great", "", "../greet", "größe", "x" * 5000):
            shell.refused("docs", "show", "--", name)
        shell.refused("docs", "guide", "great")

    def test_pages_of_built_in_tools_can_be_read(self, shell: Shell) -> None:
        done = shell.invoke("docs", "show", "write_python_tool")

        assert done.code == 0
        assert "write_python_tool" in done.out


class TestSearch:
    def test_passages_are_cited_by_page_and_heading(self, shell: Shell) -> None:
        done = shell.run("docs", "search", "which drawer number", "-k", "2")

        lines = done.out.splitlines()
        cited = [number for number, line in enumerate(lines) if ".md#" in line]
        page, _, heading = lines[0].partition("#")
        assert (done.code, done.err) == (0, "")
        assert page in ("open_drawer.md", "close_drawer.md")
        assert heading
        assert len(cited) == 2
        assert lines[cited[1] - 1] == ""
        assert "\x1b" not in done.out

    def test_json_cites_each_passage(self, shell: Shell) -> None:
        (hit,) = shell.invoke("docs", "search", "who is greeted", "-k", "1", "--json").json()

        assert hit["page"] == "greet.md"
        assert hit["citation"].startswith("greet.md#")
        assert hit["heading"]

    def test_an_empty_query_finds_nothing(self, shell: Shell) -> None:
        done = shell.invoke("docs", "search", "")
        as_json = shell.invoke("docs", "search", "", "--json")

        assert (done.code, done.err) == (1, "nothing found\n")
        assert (as_json.code, as_json.json()) == (1, [])


class TestBuild:
    def test_pages_are_written_once_and_again_only_if_they_change(self, admitted: Shell) -> None:
        site = admitted.folder / "a folder" / "größe"
        build = ("docs", "build", str(site), "--no-html")

        first = admitted.run(*build)
        again = admitted.invoke(*build, "--json").json()

        assert (first.code, first.out) == (0, f"{site}\n")
        assert " written, 0 unchanged, 0 removed\n" in first.err
        assert (site / "tools" / "greet.md").is_file()
        assert (site / "tools" / "greet.rst").is_file()
        assert not (site / "html").exists()
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

        error = admitted.refused("docs", "build", "site")

        assert "Sphinx" in error
        assert "toolkiln[docs]" in error

    @pytest.mark.parametrize("name", ["site/index.md", "site"])
    def test_pages_and_files_of_others_are_left_alone(self, admitted: Shell, name: str) -> None:
        file = admitted.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")

        done = admitted.invoke("docs", "build", "site", "--no-html")

        assert done.code in (2, 3)
        assert done.err.startswith("error: ")
        assert name == "site" or f"'{name}' was not written by Toolkiln" in done.err
        assert file.read_text() == "mine"

    def test_without_admitted_tools_there_is_nothing_to_build(self, desk: Shell) -> None:
        assert "toolkiln admit" in desk.refused("docs", "build", "site", "--no-html")
        assert not (desk.folder / "site").exists()
