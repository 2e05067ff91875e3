"""Settings come from `toolkiln.toml`, overridden by `TOOLKILN_*` variables."""

import os
from pathlib import Path

import pytest

from toolkiln.config import Settings, load
from toolkiln.errors import ConfigError


def test_without_anything_the_tools_are_in_tools(tmp_path: Path) -> None:
    assert load(tmp_path, {}) == Settings(tools=tmp_path / "tools", state=tmp_path / ".toolkiln")


def test_the_file_says_where_the_tools_are(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").write_text('tools = "mine/all"')

    assert load(tmp_path, {}).tools == tmp_path / "mine" / "all"


def test_a_variable_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").write_text('tools = "mine"')

    assert load(tmp_path, {"TOOLKILN_TOOLS": "yours"}).tools == tmp_path / "yours"


def test_an_absolute_path_stays_absolute(tmp_path: Path) -> None:
    assert load(tmp_path, {"TOOLKILN_TOOLS": "/opt/tools"}).tools == Path("/opt/tools")


def test_the_real_environment_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLKILN_TOOLS", "elsewhere")

    assert load(tmp_path, {}).tools == tmp_path / "tools"


@pytest.mark.parametrize(
    "content",
    [
        b"tools = ",
        b"\xff\xfe\x00",
        b"tools = 3",
        b'tools = ""',
        b"tools = ['a']",
        b"[tools]\nx = 1",
        b"tolos = 'a'",
        b"nonsense = 1",
        b"x = " + b"[" * 10_000,
        b"tools = 'a'\ntools = 'b'",
        b'tools = "a\\u0000b"',
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "toolkiln.toml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})

    assert "toolkiln.toml" in caught.value.message
    assert caught.value.hint
    assert caught.value.code == "bad_config"


def test_a_misspelt_setting_is_answered_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").write_text("tolls = 'a'")

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})

    assert "'tools'" in str(caught.value.hint)


def test_an_empty_variable_is_named_as_the_culprit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TOOLKILN_TOOLS"):
        load(tmp_path, {"TOOLKILN_TOOLS": ""})


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").mkdir()

    with pytest.raises(ConfigError):
        load(tmp_path, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "toolkiln.toml").touch(mode=0)

    with pytest.raises(ConfigError):
        load(tmp_path, {})


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load(tmp_path, {})

    with pytest.raises(AttributeError):
        settings.tools = Path("x")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", "65536"), ("body_bytes", "0"), ("request_seconds", "0"), ("telemetry", "there:4318")],
)
def test_what_no_server_can_do_is_an_error_with_what_would_do(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"TOOLKILN_{name.upper()}: {name}") as caught:
        load(tmp_path, {f"TOOLKILN_{name.upper()}": value})

    assert caught.value.hint
