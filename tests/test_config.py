"""Settings from `toolkiln.toml`, overridden by `TOOLKILN_*` variables, with strict checks."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.config import Settings, check_setting, load, parse_rate, read_stamp
from toolkiln.errors import ConfigError


def loaded(folder: Path, text: str, **environ: str) -> Settings:
    (folder / "toolkiln.toml").write_text(text, "utf-8")
    return load(folder, environ)


def refused(folder: Path, text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **environ)
    assert caught.value.hint
    assert caught.value.code == "bad_config"
    return caught.value


# Paths and variables


@each_row(
    "text, environ, tools",
    [
        (None, {}, "tools"),
        ('tools = "mine/all"', {}, "mine/all"),
        ('tools = "mine"', {"TOOLKILN_TOOLS": "yours"}, "yours"),
        (None, {"TOOLKILN_TOOLS": "/opt/tools"}, "/opt/tools"),
    ],
)
def test_a_variable_overrides_the_file_which_overrides_the_default(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    environ: dict[str, str],
    tools: str,
) -> None:
    monkeypatch.setenv("TOOLKILN_TOOLS", "the-real-environment-is-ignored")
    if text is not None:
        (tmp_path / "toolkiln.toml").write_text(text)

    assert load(tmp_path, environ).tools == tmp_path / tools


def test_without_anything_all_settings_have_their_default(tmp_path: Path) -> None:
    assert load(tmp_path, {}) == Settings(tools=tmp_path / "tools", state=tmp_path / ".toolkiln")


@each_row(
    "content",
    [
        b"tools = ", b"\xff\xfe\x00", b"tools = 3", b'tools = ""', b"tools = ['a']",
        b"[tools]\nx = 1", b"tolos = 'a'", b"nonsense = 1", b"x = " + b"[" * 10_000,
        b"tools = 'a'\ntools = 'b'", b'tools = "a\\u0000b"',
    ],
)  # fmt: skip
def test_an_unusable_file_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "toolkiln.toml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})

    assert "toolkiln.toml" in caught.value.message
    assert caught.value.hint


def test_the_hint_for_a_misspelt_setting_is_the_nearest(tmp_path: Path) -> None:
    assert "'tools'" in str(refused(tmp_path, "tolls = 'a'").hint)


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").mkdir()

    with pytest.raises(ConfigError):
        load(tmp_path, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").touch(mode=0)

    with pytest.raises(ConfigError):
        load(tmp_path, {})


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().tools = Path("x")  # type: ignore[misc]


@each_row(
    "name, value",
    [
        ("TOOLS", ""), ("PORT", "65536"), ("BODY_BYTES", "0"), ("REQUEST_SECONDS", "0"),
        ("TELEMETRY", "there:4318"), ("AUDIT_DAYS", "²"), ("AUDIT_DAYS", "9" * 5000),
        ("AUDIT_DAYS", "-1"), ("AUDIT_DAYS", "1_000"),
    ],
)  # fmt: skip
def test_an_invalid_variable_is_an_error_that_names_it(
    tmp_path: Path, name: str, value: str
) -> None:
    error = refused(tmp_path, "", **{f"TOOLKILN_{name}": value})

    assert error.message.startswith(f"TOOLKILN_{name}: {name.lower()}")


# Rules


def test_rules_keep_their_order_and_what_they_give(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        policy = "deny"
        [[rules]]
        effect = "deny"
        groups = ["guests"]
        hints = "destructive"
        reason = "guests change nothing"
        [[rules]]
        effect = "ask"
        users = ["ann", "discord:42"]
        privileges = "APPROVE"
        tools = ["delete_*", "[a-c]?"]
        toolkits = "files"
        approve_own = true
        """,
    )
    first = {"groups": ("guests",), "hints": ("destructive",), "reason": "guests change nothing"}
    second = {
        "users": ("ann", "discord:42"), "privileges": ("APPROVE",), "toolkits": ("files",),
        "tools": ("delete_*", "[a-c]?"), "approve_own": True,
    }  # fmt: skip

    assert settings.policy == "deny"
    assert settings.rules == ({"effect": "deny", **first}, {"effect": "ask", **second})


@each_row(
    "rule, place, hint",
    [
        ("users = ['a']", "rules[2] has no effect", "allow, deny, ask"),
        ("effect = 'denny'", "rules[2].effect is 'denny'", "'deny'"),
        ("effect = 'Deny'", "rules[2].effect", "'deny'"),
        ("effect = true", "rules[2].effect is True", "string"),
        ("effect = ['deny']", "rules[2].effect", "string"),
        ("effect = ''", "rules[2].effect", "allow, deny, ask"),
        ("efect = 'deny'", "rules[2] has no 'efect'", "'effect'"),
        ("effect = 'deny'\nuser = 'a'", "rules[2] has no 'user'", "'users'"),
        ("effect = 'deny'\nzzz = 'a'", "rules[2] has no 'zzz'", "toolkits"),
        ("effect = 'deny'\nusers = []", "rules[2].users is empty", "remove it"),
        ("effect = 'deny'\nusers = ['']", "rules[2].users has ''", "non-empty"),
        ("effect = 'deny'\ntools = ''", "rules[2].tools has ''", "non-empty"),
        ("effect = 'deny'\ntools = ['a', '']", "rules[2].tools has ''", "non-empty"),
        ("effect = 'deny'\ntools = ' a'", "rules[2].tools has ' a'", "spaces"),
        ("effect = 'deny'\ntools = [\"a\\n\"]", "rules[2].tools has 'a\\n'", "spaces"),
        ("effect = 'deny'\ntoolkits = [1]", "rules[2].toolkits has 1", "strings"),
        ("effect = 'deny'\ngroups = 7", "rules[2].groups is 7", "list of strings"),
        ("effect = 'deny'\ngroups = {a = 1}", "rules[2].groups", "list of strings"),
        (
            "effect = 'deny'\nhints = ['destuctive']",
            "rules[2].hints is 'destuctive'",
            "'destructive'",
        ),
        ("effect = 'deny'\nhints = 'zzz'", "rules[2].hints", "read_only"),
        ("effect = 'deny'\napprove_own = 1", "rules[2].approve_own is 1", "true or false"),
        ("effect = 'deny'\napprove_own = 'yes'", "rules[2].approve_own", "true or false"),
        ("effect = 'deny'\nreason = ['x']", "rules[2].reason", "string"),
    ],
)
def test_an_invalid_rule_is_an_error_at_its_place(
    tmp_path: Path, rule: str, place: str, hint: str
) -> None:
    error = refused(tmp_path, f"[[rules]]\neffect = 'allow'\n[[rules]]\n{rule}")

    assert error.message.startswith(f"{tmp_path / 'toolkiln.toml'}: {place}")
    assert hint in str(error.hint)


@each_row("text", ["rules = 'deny'", "rules = ['deny']", "[rules]\neffect = 'deny'"])
def test_rules_other_than_a_list_of_tables_are_an_error(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert "rules" in error.message
    assert "[[rules]]" in str(error.hint)


def test_errors_truncate_huge_values(tmp_path: Path) -> None:
    error = refused(tmp_path, f"[[rules]]\neffect = '{'x' * 1_000_000}'")

    assert len(error.message) + len(str(error.hint)) < 1000


def test_a_checked_setting_passes_the_check_again(tmp_path: Path) -> None:
    rules = [{"effect": "deny", "tools": "a"}]

    once: Any = check_setting("rules", rules, "here")

    assert check_setting("rules", once, "here") == once


# Privileges and rates


def test_privileges_rates_and_grants_are_tables(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        [privileges]
        ann = "APPROVE"
        "group:admins" = ["ADMIN", "OUR_OWN"]
        [rates."*"]
        caller = "60/minute"
        [rates."send_*"]
        tool = "1000/hour"
        caller = "1/day"
        [grants.mail]
        secrets = ["SMTP"]
        """,
    )

    assert settings.privileges == {"ann": ("APPROVE",), "group:admins": ("ADMIN", "OUR_OWN")}
    assert settings.rates == {
        "*": {"caller": "60/minute"},
        "send_*": {"tool": "1000/hour", "caller": "1/day"},
    }
    assert settings.grants == {"mail": {"secrets": ["SMTP"]}}
    assert "secrets" in str(refused(tmp_path, "[grants.mail]\nsecrets = 'SMTP'").hint)


@each_row(
    "text, meant",
    [
        ("1/second", (1, 1)),
        ("60/minute", (60, 60)),
        ("1000/hour", (1000, 3600)),
        ("1000000000/day", (10**9, 86_400)),
    ],
)
def test_a_rate_says_how_many_within_which_time(text: str, meant: tuple[int, int]) -> None:
    assert parse_rate(text) == meant


@each_row(
    "rate",
    [
        "60", "60/minutes", "0/minute", "-1/minute", "1.5/minute", "1000000001/day", "60 / minute",
        "٦٠/minute", "60/minute\n", "9" * 10_000 + "/day", "",
    ],
)  # fmt: skip
def test_an_invalid_rate_is_an_error_at_its_place(tmp_path: Path, rate: str) -> None:
    written = rate.replace("\n", "\\n")

    error = refused(tmp_path, f'[rates."*"]\ncaller = "{written}"')

    assert "toolkiln.toml: rates.'*'.caller" in error.message
    assert "60/minute" in str(error.hint)


@each_row(
    "setting, text",
    [
        ("privileges", "privileges = ['ADMIN']"),
        *(
            ("privileges", f"[privileges]\n{entry}")
            for entry in (
                "ann = 1", "ann = []", "ann = ['']", "ann = [['ADMIN']]", "'' = ['ADMIN']",
                "' ann' = ['ADMIN']", "'*' = ['ADMIN']", "'group:' = ['ADMIN']",
            )
        ),
        ("rates", "rates = '60/minute'"),
        ("rates", "[rates]\n'*' = '60/minute'"),
        ("rates", "[rates.'*']\ncaller = 60"),
        ("rates", "[rates.'*']\ncallers = '60/minute'"),
        ("rates", "[rates.'']\ncaller = '60/minute'"),
    ],
)  # fmt: skip
def test_privileges_and_rates_of_another_form_are_an_error(
    tmp_path: Path, setting: str, text: str
) -> None:
    assert f"toolkiln.toml: {setting}" in refused(tmp_path, text).message


# Plain ones


def test_plain_settings_have_variables(tmp_path: Path) -> None:
    variables = {
        "POLICY": "deny", "APPROVAL_SECONDS": "5", "SESSION_SECONDS": "6", "AUDIT_KEY": "k",
        "AUDIT_DAYS": "7", "SECRETS_FILE": "s.toml", "KEYRING": "true",
        "REDIS": "redis://localhost/0",
    }  # fmt: skip
    environ = {f"TOOLKILN_{name}": value for name, value in variables.items()}

    settings = loaded(tmp_path, 'policy = "ask"', **environ)

    assert settings == Settings(
        tools=tmp_path / "tools", state=tmp_path / ".toolkiln", environ=settings.environ,
        policy="deny", approval_seconds=5, session_seconds=6, audit_key="k", audit_days=7,
        secrets_file=tmp_path / "s.toml", keyring=True, redis="redis://localhost/0",
    )  # fmt: skip


@each_row(
    "text",
    [
        "policy = 'denny'", "approval_seconds = 0", "session_seconds = 0", "session_seconds = -1",
        "session_seconds = 1.5", "session_seconds = true", f"audit_days = {2**60}",
        f"audit_days = {'9' * 5000}", "secrets_file = ''", "keyring = 'no'", "redis = 'localhost'",
        "source = 'x'", "seen = 1", "environ = {}",
    ],
)  # fmt: skip
def test_invalid_plain_settings_are_an_error(tmp_path: Path, text: str) -> None:
    assert "toolkiln.toml" in refused(tmp_path, text).message


def test_passwords_are_not_repeated_in_errors(tmp_path: Path) -> None:
    errors = [
        refused(tmp_path, "redis = 'http://:hunter2@host'"),
        refused(tmp_path, "audit_key = ['hunter2']"),
        refused(tmp_path, "manifest_key = {k = 'hunter2'}"),
    ]

    assert not any("hunter2" in f"{error.message} {error.hint}" for error in errors)


def test_passwords_are_not_shown_with_the_settings(tmp_path: Path) -> None:
    text = "redis = 'redis://:hunter2@host'\naudit_key = 'hunter2'\nstore = 'hunter2'"

    settings = loaded(tmp_path, text, TOOLKILN_MANIFEST_KEY="hunter2", PGPASSWORD="hunter2")

    assert "hunter2" not in repr(settings)


def test_variables_with_secrets_are_not_settings(tmp_path: Path) -> None:
    names = ("TOOLKILN_SECRET_POLICY", "TOOLKILN_SECRET_S_FILE", "TOOLKILN_SECRET_")

    settings = loaded(tmp_path, "", **dict.fromkeys(names, "/y"))

    assert (settings.policy, settings.secrets_file) == ("allow", None)


@each_row("name", ["RULES", "PRIVILEGES", "RATES", "SOURCE", "SEEN"])
def test_tables_have_no_variable(tmp_path: Path, name: str) -> None:
    settings = loaded(tmp_path, "", **{f"TOOLKILN_{name}": "x"})

    assert replace(settings, environ={}) == load(tmp_path, {})


# Where they come from


def test_settings_keep_their_file_and_its_stamp(tmp_path: Path) -> None:
    without = load(tmp_path, {})
    with_file = loaded(tmp_path, "dev = true")

    file = tmp_path / "toolkiln.toml"
    assert (without.source, without.file_stamp) == (file, None)
    assert (with_file.source, with_file.file_stamp) == (file, read_stamp(file))
    assert Settings().source is None


def test_the_path_of_the_file_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert load(Path(), {}).source == tmp_path / "toolkiln.toml"
