"""Settings about who may do what: read strictly, because a slip would let somebody in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolkiln.config import Settings, check_setting, load, parse_rate, read_stamp
from toolkiln.errors import ConfigError


def loaded(folder: Path, text: str, **environ: str) -> Settings:
    (folder / "toolkiln.toml").write_text(text, "utf-8")
    return load(folder, environ)


def refused(folder: Path, text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, **environ)
    return caught.value


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

    assert settings.policy == "deny"
    assert settings.rules == (
        {
            "effect": "deny",
            "groups": ("guests",),
            "hints": ("destructive",),
            "reason": "guests change nothing",
        },
        {
            "effect": "ask",
            "users": ("ann", "discord:42"),
            "privileges": ("APPROVE",),
            "tools": ("delete_*", "[a-c]?"),
            "toolkits": ("files",),
            "approve_own": True,
        },
    )


@pytest.mark.parametrize(
    ("rule", "place", "hint"),
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
def test_a_rule_that_cannot_be_meant_is_an_error_at_its_place(
    tmp_path: Path, rule: str, place: str, hint: str
) -> None:
    error = refused(tmp_path, f"[[rules]]\neffect = 'allow'\n[[rules]]\n{rule}")

    assert error.message.startswith(f"{tmp_path / 'toolkiln.toml'}: {place}")
    assert hint in str(error.hint)


@pytest.mark.parametrize("text", ["rules = 'deny'", "rules = ['deny']", "[rules]\neffect = 'deny'"])
def test_rules_that_are_no_list_of_tables_are_an_error(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert "rules" in error.message
    assert "[[rules]]" in str(error.hint)


def test_huge_values_are_cut_in_errors(tmp_path: Path) -> None:
    error = refused(tmp_path, f"[[rules]]\neffect = '{'x' * 1_000_000}'")

    assert len(error.message) + len(str(error.hint)) < 1000


def test_what_is_checked_can_be_checked_again(tmp_path: Path) -> None:
    rules = [{"effect": "deny", "tools": "a"}]

    once: Any = check_setting("rules", rules, "here")

    assert check_setting("rules", once, "here") == once


# Privileges and rates


def test_privileges_are_given_to_users_and_groups(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path, '[privileges]\nann = "APPROVE"\n"group:admins" = ["ADMIN", "OUR_OWN"]'
    )

    assert settings.privileges == {"ann": ("APPROVE",), "group:admins": ("ADMIN", "OUR_OWN")}


@pytest.mark.parametrize(
    "text",
    [
        "privileges = ['ADMIN']",
        "[privileges]\nann = 1",
        "[privileges]\nann = []",
        "[privileges]\nann = ['']",
        "[privileges]\nann = [['ADMIN']]",
        "[privileges]\n'' = ['ADMIN']",
        "[privileges]\n' ann' = ['ADMIN']",
        "[privileges]\n'*' = ['ADMIN']",
        "[privileges]\n'group:' = ['ADMIN']",
    ],
)
def test_privileges_for_nobody_or_of_no_name_are_an_error(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert "toolkiln.toml: privileges" in error.message
    assert error.hint


def test_rates_are_by_glob_of_tools(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[rates."*"]\ncaller = "60/minute"\n[rates."send_*"]\ntool = "1000/hour"\ncaller = "1/day"',
    )

    assert settings.rates == {
        "*": {"caller": "60/minute"},
        "send_*": {"tool": "1000/hour", "caller": "1/day"},
    }


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1/second", (1, 1)),
        ("60/minute", (60, 60)),
        ("1000/hour", (1000, 3600)),
        ("1000000000/day", (10**9, 86_400)),
    ],
)
def test_a_rate_says_how_many_within_which_time(text: str, meant: tuple[int, int]) -> None:
    assert parse_rate(text) == meant


@pytest.mark.parametrize(
    "rate",
    [
        "60",
        "60/minutes",
        "0/minute",
        "-1/minute",
        "1.5/minute",
        "1000000001/day",
        "60 / minute",
        "٦٠/minute",
        "60/minute\n",
        "9" * 10_000 + "/day",
        "",
    ],
)
def test_a_rate_that_means_nothing_is_an_error_at_its_place(tmp_path: Path, rate: str) -> None:
    written = rate.replace("\n", "\\n")

    error = refused(tmp_path, f'[rates."*"]\ncaller = "{written}"')

    assert "toolkiln.toml: rates.'*'.caller" in error.message
    assert "60/minute" in str(error.hint)


@pytest.mark.parametrize(
    "text",
    [
        "rates = '60/minute'",
        "[rates]\n'*' = '60/minute'",
        "[rates.'*']\ncaller = 60",
        "[rates.'*']\ncallers = '60/minute'",
        "[rates.'']\ncaller = '60/minute'",
    ],
)
def test_rates_of_another_form_are_an_error(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert "toolkiln.toml: rates" in error.message
    assert error.hint


def test_grants_name_secrets(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[grants.mail]\nsecrets = ["SMTP"]')

    assert settings.grants == {"mail": {"secrets": ["SMTP"]}}
    assert "secrets" in str(refused(tmp_path, "[grants.mail]\nsecrets = 'SMTP'").hint)


# Plain ones


def test_plain_settings_have_variables(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        'policy = "ask"',
        TOOLKILN_POLICY="deny",
        TOOLKILN_APPROVAL_SECONDS="5",
        TOOLKILN_SESSION_SECONDS="6",
        TOOLKILN_AUDIT_KEY="k",
        TOOLKILN_AUDIT_DAYS="7",
        TOOLKILN_SECRETS_FILE="s.toml",
        TOOLKILN_KEYRING="true",
        TOOLKILN_REDIS="redis://localhost/0",
    )

    assert settings == Settings(
        tools=tmp_path / "tools",
        state=tmp_path / ".toolkiln",
        policy="deny",
        approval_seconds=5,
        session_seconds=6,
        audit_key="k",
        audit_days=7,
        secrets_file=tmp_path / "s.toml",
        keyring=True,
        redis="redis://localhost/0",
        environ=settings.environ,
    )


@pytest.mark.parametrize(
    "text",
    [
        "policy = 'denny'",
        "approval_seconds = 0",
        "session_seconds = 0",
        "session_seconds = -1",
        "session_seconds = 1.5",
        "session_seconds = true",
        f"audit_days = {2**60}",
        f"audit_days = {'9' * 5000}",
        "secrets_file = ''",
        "keyring = 'no'",
        "redis = 'localhost'",
        "source = 'x'",
        "seen = 1",
        "environ = {}",
    ],
)
def test_plain_settings_that_make_no_sense_are_an_error(tmp_path: Path, text: str) -> None:
    error = refused(tmp_path, text)

    assert "toolkiln.toml" in error.message
    assert error.hint


@pytest.mark.parametrize("digits", ["²", "9" * 5000, "-1", "1_000"])
def test_a_variable_that_is_no_number_is_named(tmp_path: Path, digits: str) -> None:
    error = refused(tmp_path, "", TOOLKILN_AUDIT_DAYS=digits)

    assert "TOOLKILN_AUDIT_DAYS" in error.message


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


def test_variables_that_hold_secrets_are_no_settings(tmp_path: Path) -> None:
    environ = {
        "TOOLKILN_SECRET_POLICY": "x",
        "TOOLKILN_SECRET_S_FILE": "/y",
        "TOOLKILN_SECRET_": "",
    }

    settings = loaded(tmp_path, "", **environ)

    assert (settings.policy, settings.secrets_file) == ("allow", None)


@pytest.mark.parametrize("name", ["RULES", "PRIVILEGES", "RATES", "SOURCE", "SEEN"])
def test_tables_have_no_variable(tmp_path: Path, name: str) -> None:
    settings = loaded(tmp_path, "", **{f"TOOLKILN_{name}": "x"})

    assert replace(settings, environ={}) == load(tmp_path, {})


# Where they come from


def test_settings_know_the_file_and_how_it_was(tmp_path: Path) -> None:
    without = load(tmp_path, {})
    with_file = loaded(tmp_path, "dev = true")

    file = tmp_path / "toolkiln.toml"
    assert (without.source, without.file_stamp) == (file, None)
    assert (with_file.source, with_file.file_stamp) == (file, read_stamp(file))
    assert Settings().source is None


def test_the_file_is_known_wherever_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert load(Path(), {}).source == tmp_path / "toolkiln.toml"
