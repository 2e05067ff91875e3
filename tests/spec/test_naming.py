"""Display names and portable names."""

import keyword

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.spec.names import accepted_name, display_name, name_problem, portable_name
from toolkiln.spec.reader import read


@each_row(
    "identifier, shown",
    [
        ("SandboxFilesTool", "Sandbox Files"), ("sb_shell_tool", "Sb Shell"),
        ("browser_navigate_to", "Browser Navigate To"), ("READ_FILE", "READ FILE"),
        # A suffix goes, but never the whole name.
        ("Toolbox_tool", "Toolbox"), ("FilesTool_tool", "Files"), ("WebTool_tool", "Web"),
        ("Tooling", "Tooling"), ("Toolbox", "Toolbox"), ("stool", "Stool"),
        ("Tool", "Tool"), ("_tool", "Tool"), ("tool", "Tool"), ("Tool_tool", "Tool"),
        ("ToolTool", "Tool"), ("", "Tool"),
        # Abbreviations and digits.
        ("MCPSearchTool", "MCP Search"), ("HTTPServerTool", "HTTP Server"),
        ("PDFToHTMLTool", "PDF To HTML"), ("getURLForID", "Get URL For ID"),
        ("listURLs", "List URLs"), ("URLsOfID", "URLs Of ID"), ("ID", "ID"),
        ("parseJSON2XML", "Parse JSON2 XML"), ("Base64Encoder", "Base64 Encoder"),
        ("convert2pdf", "Convert2pdf"), ("v2_api_tool", "V2 Api"), ("get_url2_v3", "Get Url2 V3"),
        # Other separators, underscores and scripts.
        ("web-search-tool", "Web Search"), ("web.search", "Web Search"),
        ("web search", "Web Search"), ("__x__", "X"), ("_private", "Private"), ("x", "X"),
        ("___", "___"), ("größe_ändern", "Größe Ändern"), ("ÄnderungÜben", "Änderung Üben"),
        ("名前を変える", "名前を変える"),
    ],
)  # fmt: skip
def test_display_name_is_words_in_title_case(identifier: str, shown: str) -> None:
    assert display_name(identifier) == shown


@given(st.text())
def test_display_name_is_never_empty(identifier: str) -> None:
    assert display_name(identifier)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,30}", fullmatch=True))
def test_display_name_keeps_every_letter_but_the_suffix(identifier: str) -> None:
    shown = display_name(identifier).replace(" ", "").casefold()

    assert identifier.replace("_", "").casefold().startswith(shown)


@each_row("name", ["a", "convert", "read_file2", "a" * 40, *keyword.softkwlist[1:]])
def test_portable_names_have_no_problem(name: str) -> None:
    assert portable_name(name)
    assert name_problem(name) is None


@each_row(
    "name, words",
    [
        ("read-file", "Codex replaces '-' with '_'"),
        ("a" * 41, "Gemini CLI"),
        ("a" * 64, "Gemini CLI"),
        ("getFile", "upper-case"),
        ("2fa", "Gemini rejects"),
        ("-x", "Gemini rejects"),
        ("_x", "private"),
    ],
)
def test_accepted_names_that_clients_change_say_which_and_how(name: str, words: str) -> None:
    assert accepted_name(name)
    assert not portable_name(name)
    assert words in (name_problem(name) or "")


def test_a_name_problem_lists_every_effect() -> None:
    problem = name_problem("Read-" + "x" * 40) or ""

    assert problem.count(";") == 2


@each_row(
    "name, words",
    [
        ("", "needs a name"),
        ("a" * 65, "65 characters"),
        ("web.search", "Claude Code, Codex and OpenCode replace it with '_'"),
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


@given(st.text())
def test_a_name_is_portable_or_has_a_printable_problem(name: str) -> None:
    problem = name_problem(name)

    assert portable_name(name) == (problem is None)
    assert problem is None or problem.isprintable()


def test_names_that_look_alike_are_a_finding() -> None:
    source = "".join(f"def {name}(): ...\n" for name in ("read_file", "read_fi1e", "readings"))

    found = [f for f in read(source, "<memory>").findings if f.rule == "confusable-name"]

    assert [finding.tool for finding in found] == ["read_file", "read_fi1e"]
