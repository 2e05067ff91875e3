"""Errors that a comment overrules, at the command line, where a person decides."""

from .conftest import ADMITTED, GREET, Shell, write

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
MARKED = f'KEY = "{SECRET}"  # toolkiln: ignore[literal-secret]\n{GREET}'


def test_check_passes_with_a_warning_unless_it_is_strict_or_the_comment_is_gone(
    desk: Shell,
) -> None:
    write(desk, "greet.py", MARKED)

    usual, strict = desk.invoke("check", "tools"), desk.invoke("check", "--strict", "tools")

    assert (usual.code, strict.code) == (0, 1)
    assert "warning[literal-secret] literal-secret is overruled in line 1" in usual.out
    write(desk, "greet.py", MARKED.replace("  # toolkiln: ignore[literal-secret]", ""))
    refused = desk.invoke(*ADMITTED)
    assert (refused.code, "error[literal-secret]" in refused.err) == (1, True)


def test_admit_shows_it_and_status_and_history_name_who_overruled_what(desk: Shell) -> None:
    write(desk, "greet.py", MARKED)

    shown = desk.run("admit", stdin=b"y\n")
    status = desk.invoke("status")
    [listed] = desk.invoke("status", "--json").json()
    history = desk.invoke("history", "greet")
    audit = desk.invoke("audit", "list", "--json")

    [entry] = listed["admission"]["overruled"]
    assert shown.code == 0, shown.err
    assert "literal-secret is overruled in line 1" in shown.out
    assert f"literal-secret overruled by {entry['by']} (greet.py:1)" in status.out
    assert (entry["rule"], entry["file"], entry["line"]) == ("literal-secret", "greet.py", 1)
    assert entry["by"] == listed["admission"]["admitted_by"]
    assert "overruled: literal-secret (line 1)" in history.out
    assert "overruled: literal-secret (line 1)" in audit.out


def test_add_overrules_it_too(desk: Shell) -> None:
    (desk.folder / "other.py").write_text(MARKED.replace("greet", "welcome"))

    done = desk.invoke("add", "other.py")

    assert done.code == 0, done.err
    assert "literal-secret is overruled in line 1" in done.err
