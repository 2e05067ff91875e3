"""What a person sees of a change: lines, findings and requested permissions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.catalog.diff import RequestedPermissions, new_findings, requested_permissions, unified
from toolkiln.model.source import Finding, Reading, Severity
from toolkiln.model.spec import Capability, Permissions
from toolkiln.spec.reader import read

TEN = b"".join(b"x%d = 1\n" % n for n in range(10))


def added(diff: str) -> list[str]:
    return [line[1:] for line in diff.split("\n") if line[:1] == "+" and line[:4] != "+++ "]


@each_row(
    "old, new, shown",
    [
        (TEN, TEN, ""),
        (None, None, ""),
        (None, b"x = 1\ny = 2\n", "@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n"),
        (None, b"", "diff a/a.py b/a.py\n--- /dev/null\n+++ b/a.py\n"),
        (b"x\n", b"x\nx\n", "@@ -1,1 +1,2 @@\n x\n+x\n"),
        (b"x\n", b"x", "-x\n+x\n\\ No newline at end of file\n"),
        (b"x\n", b"x\r\n", "-x\n+x<U+000D>\n"),
        (b"", b"# harmless\rimport os\n", "+# harmless<U+000D>\n+import os\n"),
        (b"x\n", b"\xef\xbb\xbfx\n", "-x\n+<U+FEFF>x\n"),
        (b"<0xFF>\n", b"\xff\n", "-<0xFF>\n+<0xFF>\n"),
        (b"", b"\xff\xfe \xc3\xa9 \xed\xa0\x80\n", "+<0xFF><0xFE> é <0xED><0xA0><0x80>\n"),
        (b"", b"x" * 5_000 + b"\n", f"\n+{'x' * 1_000}<… 4,000 more characters>\n"),
        (b"", b"# coding: utf-7\n# harmless +AAo-import os\n",
         "@@\n+# coding: utf-7\n+# harmless \n+import os\n"),
        (b"# coding: utf-7\nx = 1\n", b"# coding: utf-7\nx +AD0- 1\n",
         "+++ b/a.py\n… the bytes differ, the text does not\n"),
    ],
)  # fmt: skip
def test_a_diff_shows_every_change_of_bytes(
    old: bytes | None, new: bytes | None, shown: str
) -> None:
    versions = ({} if data is None else {"a.py": data} for data in (old, new))

    diff = unified(*versions)

    assert diff.endswith(shown)
    assert (diff == "") == (shown == "")


def test_a_changed_line_is_shown_with_the_lines_around_it() -> None:
    diff = unified({"a.py": TEN}, {"a.py": TEN.replace(b"x5 = 1", b"x5 = 2")})

    assert diff == (
        "diff a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -3,7 +3,7 @@\n"
        " x2 = 1\n x3 = 1\n x4 = 1\n-x5 = 1\n+x5 = 2\n x6 = 1\n x7 = 1\n x8 = 1\n"
    )


def test_the_tool_comes_first_and_files_that_are_gone_last() -> None:
    old = {"tool.py": b"1\n", "gone.py": b"2\n", "same.py": b"3\n"}
    new = {"tool.py": b"4\n", "a/fresh.py": b"5\n", "same.py": b"3\n"}

    diff = unified(old, new)

    assert re.findall(r"^diff a/(\S+)", diff, re.M) == ["tool.py", "a/fresh.py", "gone.py"]
    assert "--- /dev/null\n+++ b/a/fresh.py\n@@ -0,0 +1,1 @@\n+5\n" in diff
    assert "--- a/gone.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-2\n" in diff


@each_row(
    "hidden",
    [
        "\u202e", "\u2066", "\u200b", "\x1b", "\x08", "\0", "\x9b", "\u2028", "\xa0", "\ufeff",
        "\u3164", "\U000e0041", "\ufe01",
    ],
)  # fmt: skip
def test_what_does_not_show_is_spelt_out(hidden: str) -> None:
    diff = unified({"a.py": b""}, {"a.py": f"x = 1 # {hidden}[2J{hidden}y\n".encode()})

    spelt = f"<U+{ord(hidden):04X}>"
    assert added(diff) == [f"x = 1 # {spelt}[2J{spelt}y"]


def test_what_does_not_show_is_spelt_out_in_names_and_unchanged_lines() -> None:
    name = "a\x1b[2J\nb\u202e.py"

    diff = unified({name: "\u202e1\n2\n".encode()}, {name: "\u202e1\n3\n".encode()})

    assert diff.startswith("diff a/a<U+001B>[2J<U+000A>b<U+202E>.py b/a<U+001B>")
    assert "\n <U+202E>1\n" in diff


def test_a_last_line_that_ends_in_a_carriage_return_has_ended() -> None:
    assert "No newline" not in unified({}, {"a.py": b"x\r"})


@each_row("encoding", [b"rot13", b"no-such", b"ascii", b"undefined", b"utf-16"])
def test_an_encoding_that_python_refuses_is_shown_byte_by_byte(encoding: bytes) -> None:
    diff = unified({}, {"a.py": b"# coding: %s\n\xc3\xa9\xff\n" % encoding})

    assert added(diff)[1] == "é<0xFF>"


def test_a_line_of_a_file_cannot_pose_as_the_start_of_another() -> None:
    old = {"a.py": b"-- a/harmless.py\n1\n"}
    new = {"a.py": b"++ b/harmless.py\ndiff a/harmless.py b/harmless.py\n"}

    diff = unified(old, new)

    assert re.findall(r"^diff .*", diff, re.M) == ["diff a/a.py b/a.py"]


def test_a_long_difference_is_cut_with_a_count_of_what_is_left_out() -> None:
    lines = b"".join(b"x%d = 1\n" % n for n in range(5_000))

    diff = unified({}, {"tool.py": lines, "help\ner.py": b"evil()\n"})

    assert diff.count("\n") == 2_001
    assert diff.endswith("… lines not shown: 3,004 of tool.py, 5 of help<U+000A>er.py\n")


def test_a_large_file_with_a_small_change_is_compared_line_by_line() -> None:
    old = b"".join(b"x%d = 1\n" % n for n in range(50_000))

    diff = unified({"a.py": old}, {"a.py": old.replace(b"x40000 = 1\n", b"")})

    assert diff.endswith(
        "@@ -39998,7 +39998,6 @@\n x39997 = 1\n x39998 = 1\n x39999 = 1\n-x40000 = 1\n"
        " x40001 = 1\n x40002 = 1\n x40003 = 1\n"
    )


def test_far_apart_changes_are_shown_apart() -> None:
    old = b"".join(b"x%d\n" % n for n in range(30))

    diff = unified({"a.py": old}, {"a.py": old.replace(b"x5\n", b"").replace(b"x13\n", b"y\n")})

    assert re.findall("^@@.*", diff, re.M) == ["@@ -3,7 +3,6 @@", "@@ -11,7 +10,7 @@"]


def test_a_large_part_that_is_replaced_is_shown_as_a_whole() -> None:
    old = b"".join(b"same %d\nold %d\n" % (n, n) for n in range(2_000))

    diff = unified({"a.py": old}, {"a.py": b"first\n" + old.replace(b"old", b"later")})

    assert "@@ -1,4000 +1,4001 @@\n-same 0\n-old 0\n-same 1\n" in diff


LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "@@ -1 +1 @@", "-- x", "é"]), max_size=30)


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch(1) here")
def test_patch_turns_the_old_version_into_the_later_one(tmp_path: Path) -> None:
    @given(LINES, LINES, st.booleans(), st.booleans())
    def check(before: list[str], after: list[str], ends: bool, later_ends: bool) -> None:
        old = "\n".join(before) + "\n" * ends
        new = "\n".join(after) + "\n" * later_ends
        file = tmp_path / "a.py"
        file.write_text(old, "utf-8")

        diff = unified({"a.py": old.encode()}, {"a.py": new.encode()})

        command = ["patch", "--quiet", "--posix", "--strip=1", file.name]
        subprocess.run(command, input=diff.encode(), cwd=tmp_path, check=True)
        assert file.read_text("utf-8") == new

    check()


SOURCES = st.dictionaries(st.sampled_from(["a.py", "b\n.py", "c.py"]), st.binary(max_size=60))


@given(SOURCES, SOURCES)
def test_any_bytes_make_a_diff_that_a_terminal_shows_as_it_is(
    old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    diff = unified(old, new)

    assert all(char.isprintable() or char in "\n\t" for char in diff)
    assert (diff == "") == (old == new)


def finding(message: str = "m", **given: object) -> Finding:
    fields = {"rule": "r", "severity": Severity.WARNING, "message": message, "fix": "f", **given}
    return Finding.model_validate(fields)


def found(*findings: Finding) -> Reading:
    return Reading(path="a.py", digest="0" * 64, findings=findings)


def test_all_findings_of_a_first_version_are_listed() -> None:
    assert new_findings(None, found(finding(), finding("n"))) == [finding(), finding("n")]


def test_a_finding_that_moved_is_known() -> None:
    old = found(finding(line=3), finding("bound again in line 12"))
    later = found(finding(line=9), finding("bound again in line 40"))

    assert new_findings(old, later) == []


@each_row("change", [{"rule": "s"}, {"tool": "t"}, {"message": "n"}])
def test_a_finding_of_another_rule_tool_or_message_is_listed(change: dict[str, str]) -> None:
    other = finding(**change)

    assert new_findings(found(finding()), found(finding(), other)) == [other]


def test_the_same_finding_once_more_is_listed() -> None:
    old, later = found(finding(line=1)), found(finding(line=1), finding(line=2))

    assert new_findings(old, later) == [finding(line=2)]


def asks(options: str, name: str = "f") -> Reading:
    return read(f'@tool({options})\ndef {name}(x: int) -> int:\n    "Say."\n    return x\n', "<m>")


def test_nothing_more_is_asked_for_by_the_same_or_fewer_rights() -> None:
    everything = asks('network=["a.b"], requires_secrets=["K"], workspace="write", sandbox=False')

    assert requested_permissions(everything, everything) == ()
    assert requested_permissions(everything, asks("")) == ()
    assert requested_permissions(everything, asks('workspace="read"')) == ()
    assert requested_permissions(None, asks("needs_approval=True")) == ()


@each_row(
    "old, new, more",
    [
        ('network=["a.b"]', 'network=["c.d", "a.b"]', {"network": ("c.d",)}),
        ('requires_secrets=["A"]', 'requires_secrets=["A", "B"]', {"secrets": ("B",)}),
        ("", 'capabilities=["subprocess"]', {"capabilities": (Capability.SUBPROCESS,)}),
        ("", 'workspace="read"', {"workspace": "read"}),
        ('workspace="read"', 'workspace="write"', {"workspace": "write"}),
        ("", "sandbox=False", {"without_sandbox": True}),
        ("needs_approval=True", "", {"without_approval": True}),
    ],
)
def test_what_is_requested_beyond_the_earlier_version_is_listed(
    old: str, new: str, more: dict[str, object]
) -> None:
    wanted = RequestedPermissions.model_validate({"tool": "f", **more})

    assert requested_permissions(asks(old), asks(new)) == (wanted,)


def test_a_tool_of_another_name_asks_anew() -> None:
    old, later = asks('network=["a.b"]'), asks('network=["a.b"]', "g")

    assert requested_permissions(old, later) == (RequestedPermissions(tool="g", network=("a.b",)),)
    assert requested_permissions(None, old) == (RequestedPermissions(tool="f", network=("a.b",)),)


def test_the_rights_of_every_kind_are_compared() -> None:
    by_another_name = {"tool", "without_sandbox", "without_approval"}
    compared = RequestedPermissions.model_fields.keys() - by_another_name

    others = {"sandbox", "needs_approval", "approval_function"}
    assert compared | others == Permissions.model_fields.keys()


def test_requested_permissions_are_one_line() -> None:
    (asked,) = requested_permissions(
        asks("needs_approval=True"),
        asks(
            'network=["a.b", "\\x1b[2J\\n\\u202e"], requires_secrets=["K"], workspace="write", '
            'capabilities=["files"], sandbox=False'
        ),
    )

    assert str(asked) == (
        "f asks for network a.b, <U+001B>[2J<U+000A><U+202E>; secrets K; capabilities files; "
        "workspace write; to run without the sandbox; to be called without approval"
    )
