"""Secrets and settings of tools on the command line: set, shown without values, forgotten."""

import json
import stat
from pathlib import Path

from tables import each_row

from .conftest import Done, Shell
from .test_cli_guarding_approvals import typed

SETTINGS = """
[grants.mail]
secrets = ["KEY"]
"""
TOOLS = {
    "mail.py": '''
from typing import Literal

from pydantic import BaseModel, Field, SecretStr

from toolkiln import Context, tool


class Mail(BaseModel):
    """How mail is sent."""

    server: str = Field(description="Where to.")
    port: int = 25
    tag: str | None = None
    kind: Literal["1", "2"] = "1"
    hosts: list[str] = []
    password: SecretStr


@tool(settings=Mail, requires_secrets=["KEY"])
def mail(to: str, ctx: Context) -> str:
    """Send mail.

    Args:
        to: Whom.
    """
    settings = ctx.settings
    length = len(settings["password"].get_secret_value())
    return f"{to} {settings['server']}:{settings['port']} {length}"


@tool
def plain() -> str:
    """Have no settings."""
    return "plain"
''',
    "kit.py": '''
from pydantic import BaseModel


class Tools:
    """Letters."""

    class UserValves(BaseModel):
        sender: str

    def __init__(self):
        self.user_valves = self.UserValves(sender="")

    def letter(self, to: str, __user__: dict) -> str:
        """Write a letter.

        :param to: Whom.
        """
        return to
''',
}
VALUE = "hunter2-\u00e9-hunter2"


def state(shell: Shell) -> Path:
    return Path(shell.variables["TOOLKILN_STATE"])


def holders(shell: Shell, value: str) -> set[str]:
    """The files of the state that a value is in."""
    return {
        file.name
        for file in state(shell).rglob("*")
        if file.is_file() and value.encode() in file.read_bytes()
    }


def values(done: Done) -> dict[str, object]:
    return {field["name"]: field["value"] for field in done.json() if "value" in field}


class TestSecrets:
    def test_a_secret_is_in_a_private_file_and_nowhere_else(self, fresh: Shell) -> None:
        done = fresh.invoke("secrets", "set", "KEY", stdin=f"{VALUE}\n")

        assert (done.code, done.out) == (0, "set: KEY\n")
        assert VALUE not in done.out + done.err
        assert holders(fresh, VALUE) == {"secrets.toml"}
        assert stat.S_IMODE((state(fresh) / "secrets.toml").stat().st_mode) == 0o600

    def test_names_are_listed_with_their_sources_and_no_values(self, fresh: Shell) -> None:
        fresh.invoke("secrets", "set", "KEPT", stdin=VALUE)
        shell = fresh.having(TOOLKILN_SECRET_OTHER="another value")

        table = shell.invoke("secrets", "list")
        as_json = shell.invoke("secrets", "list", "--json")

        assert table.out.splitlines()[1].split() == ["KEPT", str(state(fresh) / "secrets.toml")]
        assert table.out.splitlines()[2].split() == ["OTHER", "$TOOLKILN_SECRET_OTHER"]
        for done in (table, as_json):
            assert VALUE not in done.out + done.err
            assert "another value" not in done.out + done.err
        assert as_json.json()["missing"] == {"KEY": ["mail"]}

    def test_missing_secrets_of_tools_are_reported(self, fresh: Shell) -> None:
        before = fresh.invoke("secrets", "list").err
        fresh.invoke("secrets", "set", "KEY", stdin=VALUE)

        after = fresh.invoke("secrets", "list").err

        assert "note: KEY is not set; requested by mail\n" in before
        assert after == ""

    def test_there_need_not_be_tools(self, tmp_path: Path) -> None:
        shell = Shell(tmp_path)

        assert shell.invoke("secrets", "set", "KEY", stdin=VALUE).code == 0
        assert shell.invoke("secrets", "list").out.splitlines()[1].startswith("KEY ")

    def test_a_secret_is_removed(self, fresh: Shell) -> None:
        fresh.invoke("secrets", "set", "KEY", stdin=VALUE)

        done = fresh.invoke("secrets", "remove", "KEY")

        assert (done.code, done.out) == (0, "removed: KEY\n")
        assert holders(fresh, VALUE) == set()
        fresh.refused("secrets", "remove", "KEY")

    def test_a_variable_is_not_removed(self, fresh: Shell) -> None:
        shell = fresh.having(TOOLKILN_SECRET_KEY="a value")

        assert "$TOOLKILN_SECRET_KEY" in shell.refused("secrets", "remove", "KEY")

    def test_a_name_or_a_value_that_is_none_is_a_clear_error(self, fresh: Shell) -> None:
        for name in ("", "a b", "a\nb", "x" * 200, "../x", "1", "\x1b[2J"):
            assert VALUE not in fresh.refused("secrets", "set", name, stdin=VALUE)
        for value in (b"", b"\n", b"abc", b"\xff\xfe" * 10, b"a\0bcdef", b"x" * 2_000_000):
            assert len(fresh.refused("secrets", "set", "KEY", stdin=value)) < 500

        assert holders(fresh, VALUE) == set()

    def test_a_value_may_have_several_lines(self, fresh: Shell) -> None:
        fresh.invoke("secrets", "set", "KEY", stdin="-----BEGIN-----\nline\n-----END-----\n")

        assert fresh.invoke("policy", "explain", "ann", "mail").out.count("has: a value") == 1

    def test_what_is_typed_is_not_shown(self, fresh: Shell) -> None:
        code, shown = typed(
            fresh, b"typed-value\n", "secrets", "set", "KEY", marker=b"the secret KEY: "
        )

        assert code == 0
        assert "typed-value" not in shown
        assert holders(fresh, "typed-value") == {"secrets.toml"}


class TestSettings:
    def test_settings_are_shown_as_a_table(self, fresh: Shell) -> None:
        done = fresh.invoke("settings", "mail")

        lines = [line.split() for line in done.out.splitlines()]
        assert lines[:3] == [
            ["name", "type", "required", "default", "value"],
            ["server", "string", "yes"],
            ["port", "integer", "25"],
        ]
        assert ["password", "secret", "yes"] in lines
        assert "server, password must be set" in done.err

    def test_values_mean_what_the_schema_says_until_they_are_forgotten(self, fresh: Shell) -> None:
        given = ["server=1", "port=26", "tag=2", "kind=2", 'hosts=["a"]']

        done = fresh.invoke("settings", "mail", *given, "--json")
        less = fresh.invoke("settings", "mail", "--unset", "port", "--json")
        by_object = fresh.invoke("settings", "mail", '{"server": "-", "tag": null}', "--json")

        assert done.code == 0, done
        expected = {"server": "1", "port": 26, "tag": "2", "kind": "2", "hosts": ["a"]}
        assert values(done) == expected
        assert values(less).keys() == expected.keys() - {"port"}
        assert (values(by_object)["server"], values(by_object)["tag"]) == ("-", None)

    def test_a_secret_field_is_nowhere_but_in_the_secrets(self, fresh: Shell) -> None:
        set_up = fresh.invoke("settings", "mail", "server=x", "password=-", stdin=f"{VALUE}\n")
        shown = fresh.invoke("settings", "mail")
        as_json = fresh.invoke("settings", "mail", "--json")
        recorded = fresh.invoke("audit", "list", "--json")

        assert set_up.code == 0, set_up
        assert "must be set" not in shown.err
        for done in (set_up, shown, as_json, recorded, fresh.invoke("secrets", "list")):
            assert VALUE not in done.out + done.err
            assert json.dumps(VALUE)[1:-1] not in done.out + done.err
        assert holders(fresh, "hunter2") == {"secrets.toml"}
        assert stat.S_IMODE((state(fresh) / "secrets.toml").stat().st_mode) == 0o600
        forgotten = fresh.invoke("settings", "mail", "--unset", "password", "--json")
        assert values(forgotten) == {"server": "x"}
        assert holders(fresh, "hunter2") == set()

    def test_a_call_gets_what_was_set_and_says_how_to_set_it(self, fresh: Shell) -> None:
        fresh.invoke("secrets", "set", "KEY", stdin=VALUE)
        before = fresh.invoke("call", "mail", "to=ann")
        fresh.invoke("settings", "mail", "server=x", "port=26", "password=-", stdin=VALUE)

        done = fresh.invoke("call", "mail", "to=ann")

        assert before.code != 0
        assert "toolkiln settings mail" in before.err
        assert (done.code, done.out) == (0, f"ann x:26 {len(VALUE)}\n")

    def test_a_hidden_prompt_asks_for_it(self, fresh: Shell) -> None:
        code, shown = typed(
            fresh, b"typed-value\n", "settings", "mail", "password=-", marker=b"password: "
        )

        assert code == 0
        assert "typed-value" not in shown
        assert holders(fresh, "typed-value") == {"secrets.toml"}

    def test_settings_of_users_are_their_own(self, fresh: Shell) -> None:
        refused = fresh.refused("settings", "letter", "sender=me")
        done = fresh.invoke("settings", "letter", "sender=me", "--user", "ann", "--json")
        other = fresh.invoke("settings", "letter", "--user", "bob", "--json")

        assert "--user" in refused
        assert values(done) == {"sender": "me"}
        assert values(other) == {}

    @each_row(
        "options",
        [["plain"], ["nonsense"], ["mail", "prt=1"], ["mail", "port=x"], ["mail", "port"],
         ["mail", "kind=3"], ["mail", "port=1", "port=2"], ["mail", "port=1", "--unset", "port"],
         ["mail", "--unset", "prt"], ["mail", "--user", "ann"], ["mail", "server=@nowhere"],
         ["mail", "server=-", "password=-"], ["mail", "password=-"], ["mail", "[]"]],
    )  # fmt: skip
    def test_what_cannot_be_set_is_a_clear_error(self, fresh: Shell, options: list[str]) -> None:
        fresh.refused("settings", *options)

        if options[0] == "mail":
            assert values(fresh.invoke("settings", "mail", "--json")) == {}
