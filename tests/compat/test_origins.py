"""What Toolkiln's origins promise: each row is shown by a test, or kept different on purpose.

The rows are those of a list of 72 behaviours that Toolkiln lacked when this test was written.
"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
GUIDE = TESTS.parent / "docs" / "migrating.md"
ROWS = {
    *(6, 9, 14, 18, 19, 23, 32, 34, 35, 42, 63, 78, 79, 80, 81, 85, 86, 87, 93, 99, 101, 102, 103),
    *(108, 117, 120, 121, 122, 123, 127, 128, 130, 132, 133, 139, 144, 145, 152, 165, 167, 168),
    *(169, 175, 189, 198, 202, 203, 204, 209, 215, 220, 223, 238, 239, 241, 242, 243, 244, 245),
    *(246, 247, 254, 255, 258, 261, 265, 266, 270, 271, 272, 273, 274),
}
_ATLOOP = "frameworks/test_atloop.py"
_SUNA = "frameworks/test_suna.py"
_CORPUS = "execution/test_classification.py::test_a_corpus_of_returns_is_classified_precisely"
_FILES = "compat/test_foreign_files.py::test_the_tools_are_called_unmodified"
_PAGES = "operations/test_builtin_tools.py::test_the_file_of_a_tool_is_documented_and_found"
_STARGAZER = "frameworks/test_stargazer.py"
_TEXTS = f"{_ATLOOP}::test_the_documentation_is_the_same_text_everywhere"
_SECTIONS = "docstrings/test_description.py::test_the_most_important_section_of_each_kind_is_shown"
SHOWN = {
    14: _PAGES,
    18: _PAGES,
    19: _PAGES,
    23: "catalog/test_reports.py::test_a_module_with_constants_is_documented_too",
    32: f"{_STARGAZER}::test_what_a_call_cannot_have_says_what_to_do_instead",
    34: "operations/test_authoring.py::"
    "test_another_name_than_the_tool_has_is_a_warning_in_the_reply",
    35: "catalog/test_reports.py::test_a_module_with_constants_is_documented_too",
    42: "spec/test_toolkits.py::test_a_subclass_of_sunas_tool_needs_no_decorators",
    63: "spec/test_false_errors.py::"
    "test_icons_in_the_spelling_of_react_are_known_and_unknown_ones_get_a_fallback",
    78: f"{_SUNA}::test_a_core_toolkit_is_in_lists_without_being_visible",
    79: _FILES,
    80: _FILES,
    81: f"{_SUNA}::test_a_toolkit_of_suna_runs_unchanged",
    85: f"{_SUNA}::test_a_toolkit_is_one_object_with_its_methods_as_declared",
    87: f"{_SUNA}::test_a_toolkit_is_one_object_with_its_methods_as_declared",
    93: _FILES,
    101: f"{_STARGAZER}::test_what_a_call_cannot_have_says_what_to_do_instead",
    102: "surfaces/http/test_api_calls.py::"
    "test_what_a_tool_sends_comes_while_it_runs_and_once_to_a_client_that_reconnects",
    108: f"{_STARGAZER}::test_what_is_added_to_the_lists_of_the_context_is_delivered_in_order",
    117: "security/test_redaction.py::test_a_long_description_is_cut_with_a_mark",
    122: "fleet/test_worker.py::test_it_logs_each_call_with_its_end",
    123: "fleet/test_worker.py::test_it_logs_each_call_with_its_end",
    127: _CORPUS,
    128: _CORPUS,
    132: _CORPUS,
    133: _CORPUS,
    145: f"{_STARGAZER}::test_what_is_added_to_the_lists_of_the_context_is_delivered_in_order",
    167: "frameworks/test_letta.py::test_options_of_letta_are_those_of_a_tool",
    168: "frameworks/test_letta.py::test_options_beside_the_source_become_part_of_it",
    169: "frameworks/test_letta.py::test_options_of_letta_are_those_of_a_tool",
    175: "spec/test_false_errors.py::test_a_documented_parameter_that_does_not_exist_is_a_finding",
    198: "frameworks/test_letta.py::"
    "test_what_a_tool_changes_in_the_state_comes_back_for_the_caller_to_keep",
    215: "surfaces/test_cli_catalog.py::test_packages_that_the_folder_lists_are_listed",
    223: "execution/test_contract.py::test_processor_time_and_memory_are_measured",
    238: "test_define.py::test_a_result_is_short_in_logs",
    239: _FILES,
    241: f"{_ATLOOP}::test_the_base_class_is_abstract_and_the_enum_complete",
    242: f"{_ATLOOP}::test_outputs_have_the_limits_of_their_kinds",
    244: "spec/test_base_tool.py::test_kinds_have_the_defaults_and_the_names_of_atloop",
    245: "spec/test_base_tool.py::test_kinds_have_the_defaults_and_the_names_of_atloop",
    246: f"{_ATLOOP}::test_outputs_have_the_limits_of_their_kinds",
    247: f"{_ATLOOP}::test_outputs_have_the_limits_of_their_kinds",
    254: _TEXTS,
    255: "docstrings/test_description.py::test_a_text_is_never_missing",
    258: _SECTIONS,
    261: "docstrings/test_description.py::test_parts_come_once_each_in_a_fixed_order",
    265: _SECTIONS,
    266: _SECTIONS,
    270: _SECTIONS,
    271: _TEXTS,
    272: _TEXTS,
    273: "docstrings/test_description.py::test_a_text_is_never_missing",
    274: _TEXTS,
}
"""The test that shows the promised behaviour, by row."""
KEPT = {
    6: "writing a tool leaves no RST stub",
    9: "takes the privilege `WRITE_TOOLS`, which `UNSANDBOXED_EXEC` includes",
    86: "The name of a toolkit is that of its class",
    99: "The protocol between a client and the workers is private and sealed",
    103: "There are no operations of a chat platform's SDK",
    120: "the agent and the session, not the channel: the session has it",
    121: "Which tools are privileged follows from what they declare",
    130: "Words of refusal count at the beginning of a clause of an error",
    139: "at most 500 characters instead of 200",
    144: "there is no switch that lets calls in without one",
    152: "A worker serves its health only with `--health-port`",
    165: "The id of a tool is its name and the digest of its version",
    189: "Nothing is removed from a source and no scanner calls it safe",
    202: "Modal, E2B and containers for each call are not supported",
    203: "Modal, E2B and containers for each call are not supported",
    204: "Modal, E2B and containers for each call are not supported",
    209: "Text is not sanitised",
    220: "There is one kind of installation",
    243: "`OutputSemanticType` is called `OutputKind` in Toolkiln's own files",
}
"""The sentence of docs/migrating.md about a difference that is kept on purpose, by row."""


def test_each_row_is_shown_by_a_test_or_kept_on_purpose() -> None:
    assert len(ROWS) == 72
    assert SHOWN.keys() & KEPT.keys() == set()
    assert SHOWN.keys() | KEPT.keys() == ROWS


def test_the_tests_exist() -> None:
    missing = []
    for row, name in SHOWN.items():
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        names = {
            n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        if test.rpartition("::")[2] not in names:
            missing.append((row, name))

    assert missing == []


def test_the_sentences_are_in_the_guide() -> None:
    text = re.sub(r"\s+", " ", GUIDE.read_text("utf-8"))

    assert [row for row, sentence in KEPT.items() if sentence not in text] == []
