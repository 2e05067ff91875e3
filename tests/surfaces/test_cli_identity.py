"""Whom a command acts for: the local operator, or the user of a session token or an API key.

`COMMANDS` lists every command with the privilege it takes. A new command must be added to it.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from tables import each_row
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.model.audit import AuditFilter
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR, NoSession, account_name
from toolkiln.surfaces.cli.app import app

from .conftest import GREET, POLITE, Shell, token

ANYONE, LOCAL, CLIENT = "any session", "local operator", "its client"
ADMIN, APPROVE, WRITE_TOOLS = "ADMIN", "APPROVE", "WRITE_TOOLS"
NOWHERE = ("--redis", "redis://127.0.0.1:1")
VAULT = '''
def vault(name: str) -> str:
    """Open the vault for a person.

    Args:
        name: Who gets in.
    """
    return f"open for {name}"
'''
CODE = {
    "greet.py": GREET,
    "vault.py": VAULT,
    "kit.py": '''
from pydantic import BaseModel
from toolkiln import tool

class Service(BaseModel):
    url: str = "here"

@tool(needs_approval=True)
def wipe(path: str) -> str:
    """Wipe a path.

    Args:
        path: Which one.
    """
    return f"wiped {path}"

@tool
def own(name: str) -> str:
    """Do something of the caller's own.

    Args:
        name: What.
    """
    return f"did {name}"

@tool(settings=Service)
def speak(word: str) -> str:
    """Say a word aloud.

    Args:
        word: Which one.
    """
    return word
''',
}
SETTINGS = """
[[rules]]
effect = "deny"
groups = ["guests"]
tools = ["vault"]
reason = "guests stay outside"

[[rules]]
effect = "ask"
tools = ["own"]
approve_own = true
reason = "look first"
"""


class Command(NamedTuple):
    """What a command takes, and arguments to try it with."""

    takes: str
    arguments: tuple[str, ...] = ()


COMMANDS = {
    # Local files and processes: they run as the operator, whatever the environment holds.
    "new": Command(LOCAL, ("fresh_tool",)),
    "check": Command(LOCAL),
    "version": Command(LOCAL),
    "doctor": Command(LOCAL),
    "serve": Command(LOCAL),
    "dev": Command(LOCAL),
    "worker": Command(LOCAL),
    "fleet keygen": Command(LOCAL),
    "mcp": Command(CLIENT),
    # Tools, as far as the caller may see them.
    "list": Command(ANYONE),
    "show": Command(ANYONE, ("greet",)),
    "call": Command(ANYONE, ("greet", "name=Ada")),
    "search": Command(ANYONE, ("greet",)),
    "eval search": Command(ANYONE, ("queries.jsonl",)),
    "docs show": Command(ANYONE, ("greet",)),
    "docs guide": Command(ANYONE, ("greet",)),
    "docs index": Command(ANYONE),
    "docs search": Command(ANYONE, ("greet",)),
    "docs build": Command(ANYONE, ("site", "--no-html")),
    "history": Command(ANYONE, ("greet",)),
    "diff": Command(WRITE_TOOLS, ("greet", "1", "1")),
    # The caller's own calls.
    "task list": Command(ANYONE),
    "task check": Command(ANYONE, ("1",)),
    "task await": Command(ANYONE, ("1",)),
    "task cancel": Command(ANYONE, ("1",)),
    "output": Command(ANYONE, ("handle",)),
    "approvals list": Command(ANYONE),
    "approvals show": Command(ANYONE, ("abcdef",)),
    "approvals approve": Command(ANYONE, ("abcdef",)),
    "approvals reject": Command(ANYONE, ("abcdef",)),
    "approvals forget": Command(APPROVE, ("abcdef",)),
    "sessions end": Command(ANYONE),
    # Administration.
    "add": Command(ADMIN, ("more.py",)),
    "import": Command(ADMIN, ("more.py",)),
    "admit": Command(ADMIN, ("--yes",)),
    "reject": Command(ADMIN, ("tools/greet.py",)),
    "status": Command(ADMIN),
    "rollback": Command(ADMIN, ("greet", "1", "--yes")),
    "remove": Command(ADMIN, ("greet", "--yes")),
    "enable": Command(ADMIN, ("greet",)),
    "disable": Command(ADMIN, ("greet",)),
    "settings": Command(ADMIN, ("speak", "url=there")),
    "secrets list": Command(ADMIN),
    "secrets set": Command(ADMIN, ("NAME",)),
    "secrets remove": Command(ADMIN, ("NAME",)),
    "install": Command(
        ADMIN, ("cursor", "--url", "http://127.0.0.1:8420/mcp", "--scope", "project")
    ),  # which creates a key; without --url it only edits the client's file
    "keys create": Command(ADMIN, ("more", "--user", "eve")),
    "keys list": Command(ADMIN),
    "keys rotate": Command(ADMIN, ("spare",)),
    "keys revoke": Command(ADMIN, ("spare",)),
    "sessions create": Command(ADMIN, ("eve",)),
    "sessions list": Command(ADMIN),
    "sessions renew": Command(ADMIN),
    "policy explain": Command(ADMIN, ("ann", "greet")),
    "policy check": Command(ADMIN),
    "audit list": Command(ADMIN),
    "audit export": Command(ADMIN),
    "audit verify": Command(ADMIN),
    "audit prune": Command(ADMIN, ("--older-than", "0", "--yes")),
    "usages list": Command(ADMIN),
    "usages clear": Command(ADMIN),
    "env list": Command(ADMIN),
    "env build": Command(ADMIN),
    "env upgrade": Command(ADMIN),
    "env prune": Command(ADMIN),
    "workspace list": Command(ADMIN),
    "workspace export": Command(ADMIN, ("default", "exported")),
    "workspace clear": Command(ADMIN, ("default",)),
    "fleet status": Command(ADMIN, NOWHERE),
    "fleet drain": Command(ADMIN, ("--pool", "default", *NOWHERE)),
    "fleet clear-catalog": Command(ADMIN, ("--yes", *NOWHERE)),
    "fleet reload": Command(ADMIN, NOWHERE),
    "fleet dead-letters list": Command(ADMIN, NOWHERE),
    "fleet dead-letters retry": Command(ADMIN, ("--all", *NOWHERE)),
    "fleet dead-letters drop": Command(ADMIN, ("--all", *NOWHERE)),
}
ACTING = sorted(name for name, one in COMMANDS.items() if one.takes not in (LOCAL, CLIENT))
HERE = [name for name in ACTING if not name.startswith("fleet")]
"""Those that keep sessions in the store; `tests/fleet` has the others, with a real Redis."""
PRIVILEGED = [name for name in HERE if COMMANDS[name].takes != ANYONE]
IGNORING = ("new", "check", "version")
"""Local commands that end by themselves, within a second."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with admitted tools, two users with keys, and files for commands to work on."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "tools").mkdir()
    for name, source in CODE.items():
        (folder / "tools" / name).write_text(source, "utf-8")
    (folder / "toolkiln.toml").write_text(SETTINGS, "utf-8")
    (folder / "more.py").write_text(VAULT.replace("vault", "more"), "utf-8")
    (folder / "queries.jsonl").write_text('{"query": "greet", "gold": ["greet"]}\n')
    shell = Shell(folder, {"TOOLKILN_DEV": "0"})
    assert shell.invoke("admit", "--yes", "--no-probe").code == 0
    assert shell.invoke("keys", "create", "spare", "--user", "eve").code == 0
    return shell


def greeting(name: str) -> str:
    """Greet a person.

    Args:
        name: Who is greeted.
    """
    return f"Hello {name}"


def key(shell: Shell, user: str, *options: str) -> str:
    done = shell.invoke("keys", "create", secrets.token_hex(), "--user", user, *options)
    assert done.code == 0, done
    return done.out.strip()


def records(shell: Shell, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell.invoke("audit", "list", "--json", *options).json()
    return found


def attempt(shell: Shell, name: str) -> Any:
    return shell.invoke(*name.split(), *COMMANDS[name].arguments, stdin="secret value\n")


def refused(shell: Shell, name: str, stdin: str = "secret value\n") -> str:
    """The error of a command that is refused, with the arguments of the table."""
    return shell.refused(*name.split(), *COMMANDS[name].arguments, stdin=stdin)


def files(shell: Shell) -> dict[str, bytes]:
    """Everything in the folder but the state."""
    found = (path for path in sorted(shell.folder.rglob("*")) if path.is_file())
    state = shell.folder / "state"
    return {str(path): path.read_bytes() for path in found if state not in path.parents}


def commands(group: Any, before: str = "") -> Iterator[str]:
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_the_table_lists_every_command() -> None:
    assert sorted(commands(typer.main.get_command(app))) == sorted(COMMANDS)


class TestCredentials:
    @each_row("name", HERE, batches=2)
    def test_an_unknown_token_is_refused_before_anything_happens(
        self, base: Shell, name: str
    ) -> None:
        before = files(base)

        error = refused(base.having(TOOLKILN_TOKEN="ts_unknown"), name)

        assert "TOOLKILN_TOKEN" in error
        assert "unknown" in error
        assert "hint:" in error
        assert files(base) == before

    @each_row("name", ACTING, batches=2)
    def test_an_unknown_key_or_an_empty_variable_is_refused_before_anything_happens(
        self, base: Shell, name: str
    ) -> None:
        before = files(base)

        unknown = refused(base.having(TOOLKILN_API_KEY="tk_unknown"), name)
        no_key = refused(base.having(TOOLKILN_API_KEY=""), name)
        no_token = refused(base.having(TOOLKILN_TOKEN=""), name)

        assert "TOOLKILN_API_KEY: this API key is unknown, revoked or expired" in unknown
        assert "hint:" in unknown
        assert "TOOLKILN_API_KEY is empty" in no_key
        assert "unset TOOLKILN_API_KEY" in no_key
        assert "TOOLKILN_TOKEN is empty" in no_token
        assert "unset TOOLKILN_TOKEN" in no_token
        assert files(base) == before

    @each_row("name", ["list", "approvals list", "status", "mcp"])
    def test_one_kind_of_credential_in_place_of_another_is_named_as_such(
        self, base: Shell, name: str
    ) -> None:
        both = refused(base.having(TOOLKILN_TOKEN="ts_a", TOOLKILN_API_KEY="tk_a"), name)
        as_token = refused(base.having(TOOLKILN_TOKEN=key(base, "ann")), name)
        as_key = refused(base.having(TOOLKILN_API_KEY=token(base, "ann")), name)
        as_option = base.refused("list", "--token", key(base, "ann"))

        assert "TOOLKILN_TOKEN and TOOLKILN_API_KEY are both set" in both
        assert "TOOLKILN_TOKEN is an API key, not a session token" in as_token
        assert "set TOOLKILN_API_KEY" in as_token
        assert "TOOLKILN_API_KEY is a session token, not an API key" in as_key
        assert "set TOOLKILN_TOKEN" in as_key
        assert "--token is an API key, not a session token" in as_option

    def test_the_option_goes_before_the_variables(self, base: Shell) -> None:
        shell = base.having(TOOLKILN_API_KEY="tk_unknown", TOOLKILN_TOKEN="ts_unknown")

        done = shell.invoke("call", "greet", "name=Ada", "--token", token(base, "ann"))

        assert (done.code, done.out) == (0, "Hello Ada\n")

    def test_an_expired_token_or_a_revoked_key_is_refused(self, base: Shell) -> None:
        expired = token(base, "ann", "--seconds", "0.001")
        made = base.invoke("keys", "create", "gone", "--user", "ann").out.strip()
        by_key = base.having(TOOLKILN_API_KEY=made)
        before = by_key.invoke("list")
        base.invoke("keys", "revoke", "gone")

        assert before.code == 0
        assert "revoked" in by_key.refused("list")
        assert "expired" in base.having(TOOLKILN_TOKEN=expired).refused("list")

    def test_a_refused_credential_is_recorded_as_a_denied_login(self, base: Shell) -> None:
        base.having(TOOLKILN_API_KEY="tk_wrong").invoke("keys", "list")

        (record,) = records(base, "--act=login", "--limit=1")

        assert (record["outcome"], record["surface"]) == ("denied", "cli")
        assert "TOOLKILN_API_KEY" in record["detail"]
        assert account_name() in record["detail"]
        assert "tk_wrong" not in record["detail"]

    def test_commands_about_local_files_need_no_credential(self, tmp_path: Path) -> None:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "greet.py").write_text(GREET)
        plain = Shell(tmp_path)
        for name in IGNORING:
            expected = attempt(plain, name)
            (tmp_path / "tools" / "fresh_tool.py").unlink(missing_ok=True)
            done = attempt(plain.having(TOOLKILN_TOKEN="ts_unknown", TOOLKILN_API_KEY=""), name)
            (tmp_path / "tools" / "fresh_tool.py").unlink(missing_ok=True)

            assert done == expected
            assert done.code == 0
        for options in ([], ["cursor", "--scope", "project"]):
            # An entry without a key.
            assert plain.having(TOOLKILN_TOKEN="ts_unknown").invoke("install", *options).code == 0

    def test_a_server_runs_as_the_operator_whatever_the_environment_holds(
        self, base: Shell
    ) -> None:
        shell = base.having(TOOLKILN_TOKEN="ts_unknown")
        with shell.start("serve", "--port", "0") as serving:
            assert serving.stderr is not None
            said = [next(serving.stderr) for _ in range(2)]
            serving.terminate()
            rest = serving.stderr.read()

        assert "tools of tools" in said[0], (said, rest)
        assert "error" not in "".join(said) + rest


class TestPrivileges:
    @each_row("name", PRIVILEGED, batches=2)
    def test_a_command_takes_its_privilege(self, base: Shell, name: str) -> None:
        before = files(base)
        held = token(base, "bob")

        error = refused(base.having(TOOLKILN_TOKEN=held), name, stdin=f"{held}\n")

        assert f"bob may not do this: it requires the privilege {COMMANDS[name].takes}" in error
        assert files(base) == before
        (record,) = records(base, "--user=bob", "--limit=1")
        assert record["outcome"] == "denied"

    def test_a_caller_cannot_give_a_key_a_privilege_that_they_lack(self, base: Shell) -> None:
        shell = base.having(TOOLKILN_API_KEY=key(base, "ann", "--privilege", "ADMIN"))

        error = shell.refused("keys", "create", "x", "--user", "eve", "--privilege", "APPROVE")

        assert "ann cannot grant APPROVE" in error

    def test_a_user_does_not_read_the_settings_of_the_operator(self, base: Shell) -> None:
        bob = base.having(TOOLKILN_TOKEN=token(base, "bob"))

        assert "ADMIN" in bob.refused("settings", "speak")


class TestVisibility:
    @pytest.fixture
    def guest(self, base: Shell) -> Shell:
        return base.having(TOOLKILN_API_KEY=key(base, "ann", "--group", "guests"))

    @each_row(
        "command",
        [
            "call vault name=Eve",
            "show vault",
            "docs show vault",
            "docs guide vault",
            "history vault",
            "settings vault",
        ],
    )
    def test_a_hidden_tool_is_like_one_that_is_not_there(self, guest: Shell, command: str) -> None:
        hidden = guest.refused(*command.split())
        missing = guest.refused(*command.replace("vault", "vauxt").split())

        assert hidden == missing.replace("vauxt", "vault")

    def test_listings_leave_hidden_tools_out(self, guest: Shell, base: Shell) -> None:
        assert "vault" in base.invoke("list", "--json").out
        for command in ("list --json", "search vault", "docs index", "docs search vault"):
            done = guest.invoke(*command.split())

            assert done.code == 0
            assert "greet" in done.out or "search" in command
            assert "vault" not in done.out + done.err
        assert "1 not listed, because of the rules" in guest.invoke("list").err

    def test_pages_are_built_of_visible_tools(self, guest: Shell, tmp_path: Path) -> None:
        done = guest.invoke("docs", "build", str(tmp_path / "site"), "--no-html")

        assert done.code == 0
        pages = {path.stem for path in (tmp_path / "site").rglob("*.md")}
        assert "greet" in pages
        assert "vault" not in pages

    def test_names_of_disabled_tools_are_for_administrators(
        self, guest: Shell, base: Shell
    ) -> None:
        base.invoke("disable", "vault")
        try:
            listed = guest.invoke("list")
            shown = guest.invoke("show", "vault")
            by_operator = base.invoke("list")
        finally:
            base.invoke("enable", "vault")

        assert "vault" not in listed.out + listed.err
        assert "no tool named 'vault'" in shown.err
        assert "disabled: vault" in by_operator.err


def wait_for_approval(base: Shell, call_id: str) -> str:
    """Make a call that waits for a person; the id of its approval."""
    base.run("call", "wipe", "path=/a", f"--id={call_id}", "--background")
    listed = base.invoke("approvals", "list", "--json").json()
    (waiting,) = [one["id"] for one in listed if one["call_id"] == call_id]
    return str(waiting)


class TestRecords:
    @pytest.fixture
    def ann(self, base: Shell) -> Shell:
        every = [part for name in (ADMIN, APPROVE, WRITE_TOOLS) for part in ("--privilege", name)]
        return base.having(TOOLKILN_API_KEY=key(base, "ann", *every))

    def test_calls_here_and_in_the_background_run_for_the_user_of_the_key(
        self, base: Shell
    ) -> None:
        shell = base.having(TOOLKILN_API_KEY=key(base, "dave"))

        shell.invoke("call", "greet", "name=Ada")
        begun = shell.run("call", "greet", "name=Ada", "--id=daves", "--background")
        ended = shell.run("task", "await", "daves")

        assert (begun.code, begun.out) == (0, "daves\n")
        assert (ended.code, ended.out) == (0, "Hello Ada\n")
        found = records(base, "--user=dave", "--act=call", "--outcome=ok")
        assert [record["tool"] for record in found] == ["greet", "greet"]

    @pytest.mark.parametrize(("how", "answer"), [("token", "approve"), ("key", "reject")])
    def test_an_approval_is_recorded_for_the_person_who_gave_it(
        self, base: Shell, ann: Shell, how: str, answer: str
    ) -> None:
        waiting = wait_for_approval(base, call_id := f"waits-{answer}")
        by = "ann"
        if how == "token":
            by, ann = "amy", base.having(TOOLKILN_TOKEN=token(base, "amy", "--privilege", APPROVE))

        done = ann.invoke("approvals", answer, waiting)

        assert done.code == 0, done
        decided = base.invoke("approvals", "show", waiting, "--json").json()
        assert decided["decided_by"] == by
        (record, *_) = records(base, f"--act={answer}", "--outcome=ok", f"--user={by}")
        assert record["call_id"] == call_id
        base.run("task", "await", call_id)

    def test_an_approval_at_the_terminal_is_recorded_for_the_caller(self, base: Shell) -> None:
        shell = base.having(TOOLKILN_API_KEY=key(base, "frank"))

        code, said = shell.typed(
            [(b"[y/N] ", b"y\n")], "call", "own", "name=it", "--id", "terminal"
        )

        assert code == 0, said
        (record,) = records(base, "--act=approve", "--outcome=ok", "--user=frank")
        assert record["call_id"] == "terminal"

    def test_decisions_about_tools_are_recorded_for_the_caller(
        self, base: Shell, ann: Shell
    ) -> None:
        file = base.folder / "tools" / "greet.py"
        before = base.invoke("history", "greet", "--json").json()[0]["number"]
        file.write_text(POLITE)

        assert ann.invoke("admit", "--yes", "--no-probe").code == 0
        assert ann.invoke("disable", "greet").code == 0
        assert ann.invoke("enable", "greet").code == 0
        assert ann.invoke("rollback", "greet", str(before), "--yes").code == 0
        file.write_text(POLITE + "\n")
        assert ann.invoke("reject", "tools/greet.py").code == 0
        file.write_text(GREET)
        assert ann.invoke("add", "more.py").code == 0
        assert ann.invoke("remove", "more", "--yes").code == 0

        acts = [one["act"] for one in records(base, "--user=ann", "--outcome=ok")]
        assert {"admit", "switch", "rollback", "reject", "remove"} <= set(acts)
        assert ann.invoke("history", "greet", "--json").json()[0]["by"] == "ann"
        assert ann.invoke("diff", "greet", "1", str(before)).code == 0

    def test_settings_secrets_and_identities_are_recorded_for_the_caller(
        self, base: Shell, ann: Shell
    ) -> None:
        assert ann.invoke("settings", "speak", "url=there").code == 0
        assert ann.invoke("secrets", "set", "NAME", stdin="long enough\n").code == 0
        assert ann.invoke("secrets", "list").code == 0
        assert ann.invoke("secrets", "remove", "NAME").code == 0
        assert ann.invoke("keys", "create", "made by ann", "--user", "eve").code == 0
        assert ann.invoke("keys", "revoke", "made by ann").code == 0
        held = ann.invoke("sessions", "create", "eve").out.strip()
        assert ann.invoke("sessions", "renew", held).code == 0
        assert ann.invoke("sessions", "end", held).code == 0

        acts = {one["act"] for one in records(base, "--user=ann", "--outcome=ok")}
        assert {
            "settings", "secret.set", "secret.remove", "key.create", "key.revoke",
            "session.create", "session.renew",
        } <= acts  # fmt: skip

    def test_the_rest_of_administration_works_with_the_privilege(
        self, base: Shell, ann: Shell
    ) -> None:
        names = [
            "status", "keys list", "sessions list", "policy explain", "policy check", "audit list",
            "audit export", "audit verify", "usages list", "env list", "env prune",
            "workspace list",
        ]  # fmt: skip

        for name in names:
            done = attempt(ann, name)
            assert done.code == 0, (name, done)
        (record,) = records(base, "--act=environment.prune", "--user=ann")
        assert record["surface"] == "cli"


class TestPython:
    @pytest.fixture
    def kiln(self, tmp_path: Path) -> Iterator[Kiln]:
        with Kiln(functions=[greeting], settings=Settings(state=tmp_path)) as kiln:
            yield kiln

    def test_a_key_as_the_session_of_a_call_is_named_as_such(self, kiln: Kiln) -> None:
        made = kiln.security.keys.create("ci", KeyScope("bot"), LOCAL_OPERATOR).text

        result = kiln.call_sync("greeting", {"name": "Ada"}, session=made)

        assert (result.status, result.error.code) == ("denied", "no_session")
        assert "this is an API key, not a session token" in result.error.message
        assert "TOOLKILN_API_KEY" in result.error.hint

    def test_a_token_as_a_key_is_named_as_such(self, kiln: Kiln) -> None:
        held = kiln.security.sessions.create("ann").token

        with pytest.raises(NoSession, match="this is a session token, not an API key") as refused:
            kiln.security.keys.session(held)

        assert "TOOLKILN_TOKEN" in (refused.value.hint or "")

    def test_listing_with_a_key_is_refused_without_a_record_of_the_key(self, kiln: Kiln) -> None:
        made = kiln.security.keys.create("ci", KeyScope("bot"), LOCAL_OPERATOR).text

        with pytest.raises(NoSession, match="not a session token"):
            kiln.specs(made)

        recorded = [str(entry.record) for entry in kiln.security.audit.entries(AuditFilter())]
        assert made not in "".join(recorded)
