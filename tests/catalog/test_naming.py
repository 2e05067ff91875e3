"""Names of tools: which files they get, and why a name is refused."""

import keyword
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.catalog.files import file_for, name_finding, tool_files
from toolkiln.errors import InputError
from toolkiln.model.source import Severity


def refused(name: str, folder: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        file_for(name, folder)

    assert caught.value.hint
    return caught.value


@each_row("name", ["convert", "Convert", "a", "x1", "match", "jsonify", "a" * 64])
def test_a_module_name_becomes_a_file_in_the_folder(name: str, tmp_path: Path) -> None:
    assert file_for(name, tmp_path) == tmp_path / f"{name}.py"


def test_the_suffix_is_taken_off_once(tmp_path: Path) -> None:
    assert file_for("convert.py", tmp_path) == tmp_path / "convert.py"
    refused("convert.py.py", tmp_path)


MODULES = ["json", "os", "toolkiln", "pydantic", "typing_extensions", "email", "this"]
REFUSED = {
    "a tool needs a name": ["", ".py"],
    "is a path": ["../x", "/etc/passwd", "a/b", "..\\x", "C:\\x", "..", ".", "x\0.py", "x/", "\0"],
    "marks files that are not read": ["_x", ".x", "__init__", "__main__.py", "_"],
    "cannot be the name of a Python module": [
        "class", "None", "async", "1x", "a-b", "a b", "x\n", "x;y", "C:x", "x.y", "\x1b[2J",
    ],
    "would hide the module": MODULES,
    "is reserved": [
        "conftest", "setup", "noxfile", "test_x", "x_test", "Conftest", "Test_x", "SETUP",
    ],
    "Windows": ["con", "AUX", "nul", "prn", "com1", "LPT9.py"],
}  # fmt: skip


@each_row("reason, name", [(reason, name) for reason, names in REFUSED.items() for name in names])
def test_an_unusable_name_is_refused_with_the_reason(
    reason: str, name: str, tmp_path: Path
) -> None:
    error = refused(name, tmp_path)

    assert reason in error.message
    assert error.message.isprintable()


@each_row(
    "name, code_point, meant",
    [
        ("соnvert", "U+0441 CYRILLIC SMALL LETTER ES", "convert"),
        ("cοnvert", "U+03BF GREEK SMALL LETTER OMICRON", "convert"),
        ("ｃonvert", "U+FF43 FULLWIDTH LATIN SMALL LETTER C", "convert"),
        ("ﬁles", "U+FB01 LATIN SMALL LIGATURE FI", "files"),
        ("résumé", "U+00E9 LATIN SMALL LETTER E WITH ACUTE", "resume"),
        ("con\u200bvert", "U+200B ZERO WIDTH SPACE", "convert"),
        ("\u202econvert", "U+202E RIGHT-TO-LEFT OVERRIDE", "convert"),
        ("𝓬onvert", "U+1D4EC MATHEMATICAL BOLD SCRIPT SMALL C", "convert"),
    ],
)
def test_a_look_alike_is_named_with_the_ascii_spelling(
    name: str, code_point: str, meant: str, tmp_path: Path
) -> None:
    error = refused(name, tmp_path)

    assert code_point in error.message
    assert error.message.isascii()
    assert error.hint == f"did you mean {meant!r}?"


@each_row("name", ["转换", "\ud800", "\ue000", "ß"])
def test_a_name_without_an_ascii_spelling_is_refused_all_the_same(
    name: str, tmp_path: Path
) -> None:
    error = refused(name, tmp_path)

    assert f"U+{ord(name[0]):04X}" in error.message
    assert error.hint is not None
    assert "did you mean" not in error.hint


@each_row(
    "name, meant",
    [
        ("../x", "x"), ("a-b", "a_b"), (" to EUR ", "to_EUR"),
        *((name, f"{name}_tool") for name in MODULES),
    ],
)  # fmt: skip
def test_the_hint_has_the_nearest_name_that_is_accepted(
    name: str, meant: str, tmp_path: Path
) -> None:
    assert refused(name, tmp_path).hint == f"did you mean {meant!r}?"


@each_row("length", [65, 5_000_000])
def test_an_over_long_name_is_refused_in_few_words(length: int, tmp_path: Path) -> None:
    error = refused("ж" * length, tmp_path)

    assert f"{length:,} characters" in error.message
    assert len(error.message) < 100


def put(folder: Path, entry: str) -> None:
    """Make a file, a folder `x/`, a pipe `x|` or a link `x -> y`."""
    name, _, target = entry.partition(" -> ")
    path = folder / name.rstrip("/|")
    if target:
        path.symlink_to(target)
    elif name.endswith("/"):
        path.mkdir()
    elif name.endswith("|"):
        os.mkfifo(path)
    else:
        path.touch()


@each_row("entries", [["convert.py"], ["convert"], ["convert -> nothing"], ["convert -> convert"]])
def test_a_regular_file_and_what_is_no_folder_are_no_clash(
    entries: list[str], tmp_path: Path
) -> None:
    for entry in entries:
        put(tmp_path, entry)

    assert file_for("convert", tmp_path) == tmp_path / "convert.py"


@each_row(
    "entries, said",
    [
        *(([name], name) for name in ("Convert.py", "convert.PY", "CONVERT.Py")),
        (["convert.py", "Convert.py"], "only in case"),
        *(([name], "folder") for name in ("convert/", "Convert/")),
        (["elsewhere/", "convert -> elsewhere"], "folder"),
        # Nothing that is no regular file is written to.
        (["other.py", "convert.py -> other.py"], "not a regular file"),
        *(
            ([entry], "not a regular file")
            for entry in (
                "convert.py -> nowhere.py", "convert.py -> convert.py", "convert.py/",
                "convert.py|",
            )
        ),
    ],
)  # fmt: skip
def test_what_is_there_already_may_be_a_clash(
    entries: list[str], said: str, tmp_path: Path
) -> None:
    for entry in entries:
        put(tmp_path, entry)

    assert said in refused("convert", tmp_path).message


def test_a_folder_that_is_yet_to_be_made_holds_no_clash(tmp_path: Path) -> None:
    assert file_for("convert", tmp_path / "tools") == tmp_path / "tools" / "convert.py"


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("tools").touch()

    assert "cannot be read" in refused("convert", tmp_path / "tools").message


@each_row("name", ["convert", "a", "a" * 40])
def test_a_portable_name_has_no_finding(name: str) -> None:
    assert name_finding(Path(f"{name}.py")) is None


@each_row("name", ["Convert", "a" * 41])
def test_a_name_that_clients_mangle_has_a_warning(name: str) -> None:
    finding = name_finding(Path("tools", f"{name}.py"))

    assert finding is not None
    assert (finding.rule, finding.severity) == ("bad-name", Severity.WARNING)
    assert finding.path == str(Path("tools", f"{name}.py"))


PARTS = st.sampled_from(
    [
        *"./\\\0_-: ~%$", "..", ".py", "con", "test_", "_test", "json", "Convert", "convert",
        "а", "\u202e", "\ud800", "class", "1", "é", "com1", "setup",
    ]
)  # fmt: skip
NAMES = st.one_of(
    st.text(max_size=80),
    st.lists(st.one_of(PARTS, st.text(max_size=3)), max_size=6).map("".join),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,70}(\.py)?", fullmatch=True),
)


@given(NAMES)
@example("Convert")
@example("taken")
def test_any_string_is_refused_or_a_module_that_the_catalog_reads(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.joinpath("convert.py").touch()
        folder.joinpath("taken").mkdir()
        try:
            file = file_for(name, folder)
        except InputError:
            error = refused(name, folder)
            assert len(error.message) < 400
            assert error.message.isprintable()
            return
        file.touch()

        assert file.parent == folder
        assert file.suffix == ".py"
        assert file.stem.isascii()
        assert file.stem.isidentifier()
        assert not keyword.iskeyword(file.stem)
        assert file.stem not in sys.stdlib_module_names
        assert file in list(tool_files([folder]))
        assert file_for(file.name, folder) == file
