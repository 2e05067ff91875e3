"""Requirements: only names with versions are accepted, each normalised."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.sandbox.environments.lockfile import normalise, read_requirements_file

REFUSED = [
    "-r other.txt", "-e .", "-", "--index-url=https://example.com/simple",
    "six --hash=sha256:00", "six --no-binary :all:", "six_", "six[extra_]", "six=1", "six==",
    "https://example.com/six.whl", "six @ https://example.com/six.whl",
    "six @ file:///tmp/six.whl", "six @ git+https://example.com/six.git",
    "git+https://example.com/six.git", "./six", "/tmp/six", "../six-1.0.whl",
    "six idna", "six\nidna", "six\n--index-url=https://example.com",
    "six===${HOME}", "six===1.0\\", "six; os.system('true')", "six; 'linux' ~= 'windows'",
    "six; python_version >= '3' and " + "(" * 300 + "'a' == 'a'" + ")" * 100,
    "s" * 501, "", "\0", "six\0",
]  # fmt: skip


def test_every_spelling_of_a_requirement_is_normalised() -> None:
    one = normalise(["Foo_Bar[B,a_b] >= 1, <2", "six", "six "])
    other = normalise(["six", "foo-bar[a.b,b]<2,>=1"])

    assert one == other == ("foo-bar[a-b,b]<2,>=1", "six")


@each_row("versions", ["==1.0", ">=1", "<=2", "~=1.2", "!=1.1", "===1.0", "==1.*"])
def test_every_kind_of_constraint_is_kept(versions: str) -> None:
    assert normalise([f"six{versions}"]) == (f"six{versions}",)


def test_only_requirements_whose_marker_matches_count() -> None:
    found = normalise(
        ["six>=1; python_version >= '3'", "pywin32; sys_platform == 'win32'", "idna; extra == 'x'"]
    )

    assert found == ("six>=1",)


@each_row("text", REFUSED)
def test_what_is_not_a_name_with_versions_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        normalise([text])

    assert caught.value.hint


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_requirement_or_refused(text: str) -> None:
    try:
        found = normalise([text])
    except InputError:
        return

    assert normalise(found) == found
    assert not any(set(item) & set("$\\ \n\r@/#;") for item in found)


def test_requirements_file_has_comments_blank_and_continued_lines(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(
        "\ufeff# ours\n\nsix >= 1  # old\n  \nidna \\\n  >= 2, \\\n  < 4\n"
        "iniconfig \\\n# a comment ends it\nattrs#not-a-comment\n",
        "utf-8",
    )

    with pytest.raises(InputError, match=r"requirements\.txt:10: 'attrs#not-a-comment'"):
        read_requirements_file(file)
    file.write_text(file.read_text("utf-8").replace("#not-a", " #a"), "utf-8")

    assert normalise(read_requirements_file(file)) == ("attrs", "idna<4,>=2", "iniconfig", "six>=1")


@each_row(
    "line, at",
    [
        *((line, 3) for line in ("-r other.txt", "--index-url https://example.com", "./six")),
        ("six==1 --hash=sha256:0", 3),
        ("idna\nsix==1 \\\n    --hash=sha256:0", 4),  # where the continued line starts
    ],
)
def test_requirements_file_refuses_options_with_their_line(
    tmp_path: Path, line: str, at: int
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"# first\nsix\n{line}\n", "utf-8")

    with pytest.raises(InputError, match=rf"requirements\.txt:{at}: "):
        read_requirements_file(file)


def test_requirements_file_may_be_absent_or_end_in_a_backslash(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    absent = read_requirements_file(file)
    file.write_text("six\\", "utf-8")

    assert absent == ()
    assert read_requirements_file(file) == ("six",)


def test_unreadable_requirements_file_is_reported(tmp_path: Path) -> None:
    folder, binary, pipe, large = (tmp_path / name for name in ("folder", "binary", "pipe", "big"))
    folder.mkdir()
    binary.write_bytes(b"\xff\xfe\x00")
    os.mkfifo(pipe)
    large.write_bytes(b"# " + b"x" * (1 << 20))

    for file in (folder, binary, pipe, large):
        with pytest.raises(InputError, match=str(file)):
            read_requirements_file(file)
