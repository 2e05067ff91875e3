"""Who may run what, on the command line: keys, sessions, rules, and what is listed for whom."""

import re
from pathlib import Path

import pytest

from tables import each_row

from .conftest import GREET, Shell, token

HOSTILE = "eve\nroot  \x1b[2J\u202e"
SETTINGS = """
[[rules]]
effect = "deny"
groups = ["guests"]
tools = ["gr*"]
reason = "guests do not greet"

[[rules]]
effect = "ask"
users = ["discord:42"]

[privileges]
ann = ["APPROVE"]
"group:staff" = ["UNSANDBOXED_EXEC"]

[rates.hurry]
caller = "1/hour"
"""
TOOLS = {
    "greet.py": GREET,
    "open.py": '''
from toolkiln import tool

@tool(sandbox=False, network=["api.example.com"], workspace="read", requires_secrets=["KEY"])
def reach(name: str) -> str:
    """Reach out to a person.

    Args:
        name: Whom.
    """
    return name

@tool(needs_approval=True)
def wipe() -> None:
    """Wipe everything."""

@tool
def hurry() -> str:
    """Make haste."""
    return "made"
''',
}


class TestKeys:
    def test_a_key_is_printed_once_and_never_again(self, fresh: Shell) -> None:
        done = fresh.invoke("keys", "create", "bot", "--user", "ann")

        key = done.out.strip()
        assert (done.code, key[:3]) == (0, "tk_")
        assert "cannot be shown again" in done.err
        assert key not in fresh.invoke("keys", "list").out
        assert key not in fresh.invoke("keys", "list", "--json").out
        for file in Path(fresh.variables["TOOLKILN_STATE"]).glob("*.db*"):
            assert key.encode() not in file.read_bytes()

    def test_a_key_has_the_scope_that_it_was_made_with(self, fresh: Shell) -> None:
        scope = ["--group", "a", "--group", "b", "--privilege", "APPROVE", "--tool", "g*"]
        fresh.invoke("keys", "create", "bot", "--user", "ann", *scope, "--for-ever")

        (key,) = fresh.invoke("keys", "list", "--json").json()

        assert (key["name"], key["user"], key["groups"]) == ("bot", "ann", ["a", "b"])
        assert (key["privileges"], key["tools"]) == (["APPROVE"], ["g*"])
        assert (key["expires"], key["state"]) == (None, "valid")

    def test_a_revoked_key_is_listed_as_such(self, fresh: Shell) -> None:
        assert fresh.invoke("keys", "list").err == "no keys\n"

        for by in ("id", "name"):
            made = fresh.invoke("keys", "create", "bot", "--user", "ann", "--json").json()
            done = fresh.invoke("keys", "revoke", made[by])

            assert (done.code, done.out) == (0, f"revoked: {made['id']} bot\n")
        _, *rows = fresh.invoke("keys", "list").out.splitlines()
        assert [row.split()[-1] for row in rows] == ["revoked", "revoked"]

    def test_a_rotated_key_stays_valid_beside_the_new_one_until_it_expires(
        self, fresh: Shell
    ) -> None:
        scope = ["--group", "a", "--privilege", "APPROVE", "--tool", "g*", "--days", "30"]
        old = fresh.invoke("keys", "create", "bot", "--user", "ann", *scope, "--json").json()

        new = fresh.invoke("keys", "rotate", "bot", "--keep", "2h", "--json").json()

        listed = {key["id"]: key for key in fresh.invoke("keys", "list", "--json").json()}
        was, now = listed[old["id"]], listed[new["id"]]
        for key in (old["key"], new["key"]):
            assert fresh.having(TOOLKILN_API_KEY=key).invoke("list").code == 0
        assert was["expires"] < old["expires"]
        assert (was["state"], now["state"], now["name"]) == ("valid", "valid", "bot")
        for name in ("user", "groups", "privileges", "tools"):
            assert now[name] == was[name]

    def test_a_key_that_is_rotated_at_once_opens_no_session(self, fresh: Shell) -> None:
        old = fresh.invoke("keys", "create", "bot", "--user", "ann", "--json").json()

        fresh.invoke("keys", "rotate", old["id"], "--keep", "0")

        assert "revoked" in fresh.having(TOOLKILN_API_KEY=old["key"]).refused("list")
        fresh.refused("keys", "rotate", old["id"])

    def test_what_is_no_duration_rotates_nothing(self, fresh: Shell) -> None:
        fresh.invoke("keys", "create", "bot", "--user", "ann")

        for keep in ("soon", "-1h", "1", "9999999d", "99999d", ""):
            fresh.refused("keys", "rotate", "bot", f"--keep={keep}")

        assert len(fresh.invoke("keys", "list", "--json").json()) == 1

    @each_row(
        "options",
        [
            ["a\nb", "--user", "ann"],
            ["\x1b[31m", "--user", "ann"],
            ["", "--user", "ann"],
            ["x" * 101, "--user", "ann"],
            ["bot", "--user", ""],
            ["bot"],
            ["bot", "--user", "ann", "--days", "0"],
            ["bot", "--user", "ann", "--days", "nan"],
            ["bot", "--user", "ann", "--days", "-1"],
            ["bot", "--user", "ann", "--days", "1", "--no-expiry"],
        ],
    )
    def test_what_makes_no_key_is_a_clear_error(self, fresh: Shell, options: list[str]) -> None:
        done = fresh.invoke("keys", "create", *options)

        assert (done.code, done.out) == (2, "")
        assert done.err

    def test_a_name_is_given_once(self, fresh: Shell) -> None:
        fresh.invoke("keys", "create", "bot", "--user", "ann")

        error = fresh.refused("keys", "create", "bot", "--user", "bob")

        assert "a key named 'bot' already exists" in error

    def test_an_unknown_key_cannot_be_revoked(self, fresh: Shell) -> None:
        assert "no key 'nonsense'" in fresh.refused("keys", "revoke", "nonsense")


class TestSessions:
    def test_an_unknown_token_gives_nothing(self, fresh: Shell) -> None:
        for command in ("list", "task list", "search greet", "docs index", "call greet name=Ada"):
            for unknown in ("", "forged"):
                done = fresh.invoke(*command.split(), "--token", unknown)

                assert (done.code, done.out) == (2, "")
                assert "session" in done.err

    def test_the_token_is_not_listed(self, fresh: Shell) -> None:
        made = fresh.invoke(
            "sessions", "create", "42", "--platform=discord", "--guild=g", "--channel=c",
            "--agent=a", "--workspace=w", "--group=x", "--privilege=P", "--json",
        ).json()  # fmt: skip

        table = fresh.invoke("sessions", "list").out
        (session,) = fresh.invoke("sessions", "list", "--json").json()

        assert made["token"] not in table
        assert made["trace_id"] in table
        assert "discord:42" in table
        assert (session["guild_id"], session["channel_id"]) == ("g", "c")
        assert (session["agent_id"], session["workspace"]) == ("a", "w")
        assert (session["groups"], session["privileges"]) == (["x"], ["P"])
        assert 0 < session["seconds"] <= 300

    @pytest.mark.parametrize("how", ["argument", "variable", "stdin"])
    def test_a_session_is_renewed_and_ended_by_its_token(self, fresh: Shell, how: str) -> None:
        held = token(fresh, "ann", "--seconds", "50", "--privilege", "ADMIN")
        given = [held] if how == "argument" else []
        stdin = f"{held}\n" if how == "stdin" else ""
        shell = fresh.having(TOOLKILN_TOKEN=held) if how == "variable" else fresh

        renewed = shell.invoke("sessions", "renew", *given, "--seconds", "5000", stdin=stdin)
        (session,) = fresh.invoke("sessions", "list", "--json").json()
        ended = shell.invoke("sessions", "end", *given, stdin=stdin)

        assert (renewed.code, ended.code, ended.out) == (0, 0, "ended\n")
        assert renewed.out == f"renewed: {session['trace_id']}\n"
        assert session["seconds"] > 4000
        assert fresh.invoke("list", "--token", held).code == 2
        assert fresh.invoke("sessions", "list").err == "no sessions\n"

    def test_a_token_that_is_none_is_a_clear_error(self, fresh: Shell) -> None:
        for command in ("renew", "end"):
            for stdin in (b"", b"\n", b"forged\n", b"\xff\xfe", b"x" * 2_000_000):
                assert len(fresh.refused("sessions", command, stdin=stdin)) < 500

    def test_what_makes_no_session_is_a_clear_error(self, fresh: Shell) -> None:
        for options in ([""], ["x" * 201], ["ann", "--seconds", "0"], ["ann", "--seconds", "nan"]):
            fresh.refused("sessions", "create", *options)

    def test_a_name_forges_no_row(self, fresh: Shell) -> None:
        token(fresh, HOSTILE)

        for command in (["sessions", "list"], ["audit", "list", "--outcome=ok"]):
            out = fresh.invoke(*command).out
            assert len(out.splitlines()) == 2 + (command[0] == "audit"), out
            assert "eve\\nroot  \\x1b[2J\\u202e" in out
            assert not set(out) & {"\x1b", "\u202e"}


class TestPolicy:
    def test_the_rule_that_decides_is_named(self, fresh: Shell) -> None:
        done = fresh.invoke("policy", "explain", "ann", "greet", "--group", "guests")

        lines = done.out.splitlines()
        assert (done.code, lines[0]) == (1, "deny")
        assert lines[1].startswith('rule 1: effect = "deny", groups = ["guests"]')
        assert "guests do not greet" in lines[2]

    def test_without_a_rule_the_default_decides(self, fresh: Shell) -> None:
        done = fresh.invoke("policy", "explain", "ann", "greet")

        assert done.code == 0
        assert done.out == 'allow\nwhy: no rule fits, and policy = "allow" decides\n'

    def test_a_user_is_known_by_their_platform(self, fresh: Shell) -> None:
        explained = fresh.invoke("policy", "explain", "42", "greet", "--platform=discord", "--json")

        told = explained.json()
        assert explained.code == 0
        assert (told["effect"], told["rule"], told["user"]) == ("ask", 2, "discord:42")
        assert told["approvals"] == ["the rules"]

    def test_explain_names_what_a_call_lacks(self, fresh: Shell) -> None:
        lines = fresh.invoke("policy", "explain", "ann", "reach").out.splitlines()

        assert [line for line in lines if line.startswith(("has", "lacks"))] == [
            "lacks: the privilege UNSANDBOXED_EXEC",
            "lacks: the grant: network api.example.com",
            "lacks: the grant: workspace read",
            "lacks: the grant: to run without the sandbox",
            "lacks: the grant: secrets KEY",
            "lacks: a value for the secret KEY",
        ]

    def test_explain_names_what_a_call_has(self, fresh: Shell) -> None:
        shell = fresh.having(TOOLKILN_SECRET_KEY="a value")

        done = shell.invoke("policy", "explain", "ann", "reach", "--group", "staff")

        assert "\nhas: the privilege UNSANDBOXED_EXEC\n" in done.out
        assert "\nhas: a value for the secret KEY\n" in done.out
        assert "a value\n" not in done.out

    def test_a_tool_that_asks_for_a_person_says_so(self, fresh: Shell) -> None:
        done = fresh.invoke("policy", "explain", "ann", "wipe")

        assert (done.code, done.out.splitlines()[0]) == (0, "allow")
        assert "asks a person: wipe, before every call" in done.out

    def test_an_empty_user_or_an_unknown_tool_cannot_be_explained(self, fresh: Shell) -> None:
        for user, tool in (("", "greet"), ("ann", "great"), ("ann", "")):
            fresh.refused("policy", "explain", user, tool)

    def test_rules_are_shown_in_their_order(self, fresh: Shell) -> None:
        done = fresh.invoke("policy", "check")

        assert (done.code, done.err) == (0, "")
        assert [line.split(":")[0] for line in done.out.splitlines()] == ["1", "2", "otherwise"]

    @each_row(
        "rules, shadows",
        [
            ([{"effect": "allow"}, {"effect": "deny", "tools": ["x"]}], [None, 1]),
            ([{"effect": "deny", "users": ["*"]}, {"effect": "allow"}], [None, 1]),
            ([{"effect": "deny", "toolkits": ["*"]}, {"effect": "allow"}], [None, None]),
            ([{"effect": "deny", "tools": ["a", "b"]}, {"effect": "allow", "tools": ["b", "a"]}],
             [None, 1]),
            # What denies fits names that look the same, too.
            ([{"effect": "allow", "tools": ["a"]}, {"effect": "deny", "tools": ["a"]}],
             [None, None]),
            ([{"effect": "allow", "users": ["a"]}, {"effect": "deny", "users": ["a"]}], [None, 1]),
            ([{"effect": "allow", "users": ["a"]}, {"effect": "deny", "users": ["b"]}],
             [None, None]),
        ],
    )  # fmt: skip
    def test_a_rule_that_never_decides_is_reported(
        self, rules: list[dict[str, object]], shadows: list[int | None], tmp_path: Path
    ) -> None:
        tables = [
            "\n".join(["[[rules]]", *(f"{name} = {value!r}" for name, value in rule.items())])
            for rule in rules
        ]
        (tmp_path / "toolkiln.toml").write_text("\n".join(tables))

        done = Shell(tmp_path).invoke("policy", "check", "--json")
        said = Shell(tmp_path).invoke("policy", "check")

        assert [rule["shadowed_by"] for rule in done.json()["rules"]] == shadows
        assert ("rule 2 never decides: rule 1" in said.err) == (shadows[1] is not None)

    def test_rules_that_cannot_be_used_are_a_clear_error(self, tmp_path: Path) -> None:
        (tmp_path / "toolkiln.toml").write_text('[[rules]]\neffect = "maybe"\n')

        assert "rules[1].effect is 'maybe'" in Shell(tmp_path).refused("policy", "check")


class TestCalls:
    @pytest.mark.parametrize("background", [[], ["--background"]])
    def test_a_call_of_no_tool_needs_a_session_and_is_recorded(
        self, fresh: Shell, background: list[str]
    ) -> None:
        forged = fresh.invoke("call", "greeet", "--json", "--token", "ts_forged", *background)
        fresh.invoke("call", "greeet", "a=1", *background)

        assert (forged.code, forged.out) == (2, "")
        assert "--token: this session is unknown" in forged.err
        found = fresh.invoke("audit", "list", "--json").json()
        ended = [(one["act"], one["outcome"]) for one in found if one["outcome"] != "started"]
        assert ended == [("call", "invalid"), ("login", "denied")]

    def test_tasks_and_outputs_belong_to_their_caller(self, fresh: Shell) -> None:
        ann, bob = token(fresh, "ann"), token(fresh, "bob")
        fresh.invoke("call", "greet", "name=Ada", "--id=one", "--token", ann)

        assert fresh.invoke("task", "check", "one", "--token", ann).out == "Hello Ada\n"
        assert "one" in fresh.invoke("task", "list", "--token", ann).out
        assert fresh.invoke("task", "list", "--token", bob).out == ""
        for command in ("check", "await", "cancel"):
            assert fresh.invoke("task", command, "one", "--token", bob).code == 2
        assert fresh.invoke("task", "check", "one").code == 2
        assert fresh.invoke("output", "x", "--token", bob).code == 2

    def test_no_id_forges_a_task(self, fresh: Shell) -> None:
        fresh.invoke("call", "greet", "name=Ada", "--id", "one  done\ntwo  \x1b[2Jdone")

        assert fresh.invoke("task", "list").out == "one  done\\ntwo  \\x1b[2Jdone  done     greet\n"

    def test_a_call_that_comes_too_early_says_when_to_try_again(self, fresh: Shell) -> None:
        fresh.invoke("call", "hurry")

        assert re.search(r"hint: try again in \d+\.\d s; ", fresh.refused("call", "hurry"))

    def test_secrets_that_are_not_granted_are_reported_on_admission(self, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        source = GREET.replace("read_only=True", 'requires_secrets=["KEY"]')
        (tmp_path / "tools" / "greet.py").write_text(source)

        done = Shell(tmp_path, {"TOOLKILN_DEV": "0"}).invoke("admit", "--yes", "--no-probe")

        assert "greet requests secrets KEY, which is not granted" in done.err
