"""Display names, portable names, icons and colors."""

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkiln.spec.naming import (
    accepted_name,
    color_problem,
    display_name,
    icon_problem,
    lucide_icon,
    name_problem,
    portable_name,
)


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        ("SandboxFilesTool", "Sandbox Files"),
        ("sb_shell_tool", "Sb Shell"),
        ("browser_navigate_to", "Browser Navigate To"),
        ("MCPSearchTool", "MCP Search"),
        ("HTTPServerTool", "HTTP Server"),
        ("getURLForID", "Get URL For ID"),
        ("listURLs", "List URLs"),
        ("URLsOfID", "URLs Of ID"),
        ("parseJSON2XML", "Parse JSON2 XML"),
        ("Base64Encoder", "Base64 Encoder"),
        ("convert2pdf", "Convert2pdf"),
        ("v2_api_tool", "V2 Api"),
        ("web-search-tool", "Web Search"),
        ("web.search", "Web Search"),
        ("web search", "Web Search"),
        ("WebTool_tool", "Web"),
        ("Toolbox", "Toolbox"),
        ("stool", "Stool"),
        ("Tool", "Tool"),
        ("_tool", "Tool"),
        ("tool", "Tool"),
        ("Tool_tool", "Tool"),
        ("ToolTool", "Tool"),
        ("__x__", "X"),
        ("_private", "Private"),
        ("x", "X"),
        ("ID", "ID"),
        ("READ_FILE", "READ FILE"),
        ("größe_ändern", "Größe Ändern"),
        ("ÄnderungÜben", "Änderung Üben"),
        ("名前を変える", "名前を変える"),
        ("___", "___"),
        ("", "Tool"),
    ],
)
def test_display_name_is_words_in_title_case(identifier: str, shown: str) -> None:
    assert display_name(identifier) == shown


@given(st.text())
def test_display_name_is_never_empty(identifier: str) -> None:
    assert display_name(identifier)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,30}", fullmatch=True))
def test_display_name_keeps_every_letter_but_the_suffix(identifier: str) -> None:
    shown = display_name(identifier).replace(" ", "").casefold()

    assert identifier.replace("_", "").casefold().startswith(shown)


@pytest.mark.parametrize("name", ["a", "convert", "read_file2", "a" * 40, *keyword.softkwlist[1:]])
def test_portable_names_have_no_problem(name: str) -> None:
    assert portable_name(name)
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("read-file", "Codex turns '-' into '_'"),
        ("a" * 41, "Gemini CLI"),
        ("a" * 64, "Gemini CLI"),
        ("getFile", "upper-case"),
        ("2fa", "Gemini refuses"),
        ("-x", "Gemini refuses"),
        ("_x", "private"),
    ],
)
def test_accepted_names_that_clients_change_say_which_and_how(name: str, words: str) -> None:
    assert accepted_name(name)
    assert not portable_name(name)
    assert words in (name_problem(name) or "")


def test_every_effect_on_a_name_is_told_at_once() -> None:
    problem = name_problem("Read-" + "x" * 40) or ""

    assert problem.count(";") == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "needs a name"),
        ("a" * 65, "65 characters"),
        ("web.search", "Claude Code, Codex and OpenCode turn it into '_'"),
        ("web search", "not ' '"),
        ("größe", "not '\\xdf', '\\xf6'"),
        ("x\n", "not '\\n'"),
        ("x\u202e", "not '\\u202e'"),
        ("🙂" * 1000, "not '\\U0001f642'"),
    ],
)
def test_names_beyond_64_plain_characters_are_not_accepted(name: str, words: str) -> None:
    problem = name_problem(name) or ""

    assert not accepted_name(name)
    assert words in problem
    assert problem.isprintable()
    assert len(problem) < 1200


@given(st.text(max_size=80))
def test_a_name_is_portable_or_has_a_problem(name: str) -> None:
    assert portable_name(name) == (name_problem(name) is None)


@pytest.mark.parametrize(
    "icon", ["x", "folder-open", "trash-2", "axis-3d", "grid-2x2", "a-large-small"]
)
def test_kebab_case_is_a_plausible_icon(icon: str) -> None:
    assert lucide_icon(icon)
    assert icon_problem(icon) is None


@pytest.mark.parametrize(
    ("icon", "meant"),
    [
        ("FolderOpen", "folder-open"),
        ("FolderOpenIcon", "folder-open"),
        ("LucideFolder", "folder"),
        ("lucide:folder-open", "folder-open"),
        ("folder_open", "folder-open"),
        ("Folder Open", "folder-open"),
        ("Trash2", "trash-2"),
        ("Grid2x2", "grid-2x2"),
        ("folder--open", "folder-open"),
        ("FOLDER", "folder"),
    ],
)
def test_icon_problem_suggests_the_name_meant(icon: str, meant: str) -> None:
    assert (icon_problem(icon) or "").endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize("icon", ["", "📁", "-", "<svg/>", "2", "a\n"])
def test_what_cannot_be_an_icon_is_a_problem(icon: str) -> None:
    assert "not the name of a Lucide icon" in (icon_problem(icon) or "")


@pytest.mark.parametrize(
    "color",
    [
        "#fff",
        "#3B82F6",
        "blue",
        "rebeccapurple",
        "blue-500",
        "slate-950",
        "bg-blue-100",
        "text-white",
        "bg-blue-100 dark:bg-blue-800/50",
    ],
)
def test_colors_have_no_problem(color: str) -> None:
    assert color_problem(color) is None


@pytest.mark.parametrize(
    ("color", "meant"),
    [("3b82f6", "#3b82f6"), ("0x3b82f6", "#3b82f6"), ("Blue", "blue"), ("turquiose", "turquoise")],
)
def test_color_problem_suggests_the_color_meant(color: str, meant: str) -> None:
    assert (color_problem(color) or "").endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize(
    "color", ["", " ", "#ff", "#gggggg", "blue-501", "url(x)", "x" * 10_000, "#fff\n"]
)
def test_what_is_no_color_is_a_problem(color: str) -> None:
    assert "is not a color" in (color_problem(color) or "")


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    for problem in (icon_problem(text), color_problem(text), name_problem(text)):
        assert problem is None or problem.isprintable()
