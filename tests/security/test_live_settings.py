"""Settings that follow a real file, whatever becomes of it."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.config import Settings, effective_settings, load, reload
from toolkiln.errors import ConfigError
from toolkiln.model.identity import Caller
from toolkiln.model.policy import Rate
from toolkiln.security import live_settings
from toolkiln.security.live_settings import LIVE, LiveSettings
from toolkiln.security.rules import Rules

from .test_rules import spec

TOOL = spec()
DENY = '[[rules]]\neffect = "deny"\ntools = "delete_*"\n'
ALLOW = '[[rules]]\neffect = "allow"\n'
ASK = '[[rules]]\neffect = "ask"\n'


class Following:
    """A file, the settings that follow it, and what they reported."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.file = folder / "toolkiln.toml"
        self.environ = environ
        self.reported: list[tuple[str, ConfigError | None]] = []

    def start(self, text: str | None = None) -> LiveSettings:
        if text is not None:
            self.file.write_text(text)
        self.live = LiveSettings(load(self.file.parent, self.environ), self.tell)
        return self.live

    def tell(self, summary: str, error: ConfigError | None) -> None:
        self.reported.append((summary, error))

    def replace(self, text: str) -> None:
        """As careful programs do."""
        beside = self.file.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.file)

    @property
    def effect(self) -> str:
        return effect(self.live.rules())


def effect(rules: Rules) -> str:
    return rules.decide(Caller(user_id="ann"), TOOL).effect


@pytest.fixture
def following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Following:
    """Looks at the file with every question."""
    monkeypatch.setattr(live_settings, "_INTERVAL", 0.0)
    return Following(tmp_path)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.wall


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(live_settings, "time", clock)
    return clock


@pytest.fixture
def started(tmp_path: Path, clock: Clock) -> Following:
    """A file that denies, looked at when the clock says so."""
    following = Following(tmp_path)
    following.start(DENY)
    return following


# Files that can be used


def test_a_changed_file_is_where_settings_come_from(following: Following) -> None:
    following.start('policy = "ask"\nport = 1\n')
    following.replace("approval_seconds = 7\nport = 2\n")

    origins = {one.name: one.origin for one in effective_settings(following.live.current())}

    file = str(following.file)
    assert (origins["approval_seconds"], origins["policy"]) == (file, "default")
    assert (origins["port"], following.live.current().port) == (file, 1)


@pytest.mark.parametrize("write", [Following.replace, lambda f, text: f.file.write_text(text)])
def test_changed_rules_hold_at_once(
    following: Following,
    write: Callable[[Following, str], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    following.start(DENY)
    before = following.effect

    write(following, ASK)

    assert (before, following.effect) == ("deny", "ask")
    ((summary, error),) = following.reported
    assert summary == f"{following.file} was read again: rules changed"
    assert error is None
    assert summary in caplog.text


def test_a_file_that_appears_goes_and_comes_back_is_taken(following: Following) -> None:
    following.start()

    following.replace(DENY)
    effects = [following.effect]
    following.file.unlink()
    effects += [following.effect for _ in range(3)]
    following.replace(ASK)

    assert [*effects, following.effect] == ["deny"] * 4 + ["ask"]
    assert [error is None for _, error in following.reported] == [True, False, True]


def test_everything_that_may_change_does_and_nothing_else(following: Following) -> None:
    started = following.start('tools = "one"\nworkspace_files = 1').current()

    following.replace(
        """
        tools = "two"
        workspace_files = 2
        audit_key = "k"
        policy = "ask"
        refuse = ["bad-name"]
        authoring = "off"
        proposals_per_caller = 3
        approval_seconds = 1
        session_seconds = 2
        rules = [{effect = "deny", users = "bob"}]
        [privileges]
        ann = "APPROVE"
        [rates."*"]
        caller = "60/minute"
        [grants.x]
        secrets = ["A"]
        """
    )
    current = following.live.current()

    assert [name for name in LIVE if getattr(current, name) == getattr(started, name)] == []
    assert replace(current, **{name: getattr(started, name) for name in LIVE}) == started
    assert current.workspace_files == 1
    assert following.effect == "ask"
    assert following.live.rules().privileges_of(Caller(user_id="ann")) == {"APPROVE"}
    (draw,) = following.live.rates().draws(Caller(), TOOL)
    assert draw.rate == Rate(60, 60)


def test_a_variable_still_goes_before_the_file(following: Following) -> None:
    following.environ["TOOLKILN_POLICY"] = "ask"
    following.start('policy = "allow"')

    following.replace('policy = "deny"')

    assert following.effect == "ask"


def test_a_file_with_the_same_settings_is_no_change_and_not_reported(following: Following) -> None:
    following.start(DENY)

    def parts() -> tuple[object, ...]:
        return following.live.rules(), following.live.rates(), following.live.current()

    before, again = parts(), parts()
    following.replace(f"# but for this\n{DENY}")

    assert all(one is other for one, other in zip(before, again, strict=True))
    assert all(one is other for one, other in zip(before[:2], parts()[:2], strict=True))
    assert following.reported == []


def test_a_change_before_the_first_read_is_applied_from_any_working_directory(
    following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(Path(), {})
    monkeypatch.chdir("/")

    following.replace(DENY)

    assert effect(LiveSettings(settings, following.tell).rules()) == "deny"


# Files that cannot


def ruin(file: Path, how: str) -> None:
    if how == "folder":
        file.unlink()
        file.mkdir()
    elif how == "removed":
        file.unlink()
    elif how == "unreadable":
        file.chmod(0)
    elif how == "dangling":
        file.unlink()
        file.symlink_to(file)
    else:
        file.write_text(how)


AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.mark.parametrize(
    "how",
    [
        '[[rules]]\neffect = "den',
        '[[rules]]\neffect = "maybe"',
        "polcy = 'deny'",
        "x = " + "[" * 10_000,
        f"audit_days = {'9' * 5000}",
        "",
        "folder",
        "removed",
        "dangling",
        pytest.param("unreadable", marks=AS_ROOT),
    ],
    ids=lambda how: str(how)[:20],
)
def test_a_file_that_cannot_be_used_keeps_the_old_rules_and_says_so_once(
    following: Following, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    following.start(DENY)

    ruin(following.file, how)
    effects = [following.effect for _ in range(5)]

    assert effects == ["deny"] * 5
    ((summary, error),) = following.reported
    assert isinstance(error, ConfigError)
    assert error.hint
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    text = record.getMessage()
    assert str(following.file) in text
    assert error.message in text
    assert error.hint in text
    assert "stay in force" in text
    assert summary in text


@pytest.mark.parametrize(
    ("texts", "is_correct"),
    [
        (["a = ", "b = ", ASK], [False, False, True]),
        (["a = ", DENY], [False, True]),
        ([ALLOW, "a = ", DENY, ASK] * 25, [True, False, True, True] * 25),
    ],
    ids=["corrected", "restored", "flapping"],
)
def test_each_broken_version_is_reported_and_so_is_the_correction(
    following: Following, texts: list[str], is_correct: list[bool]
) -> None:
    following.start(DENY)

    for text in texts:
        following.replace(text)
        following.live.current()

    assert following.effect == ("deny" if texts[-1] == DENY else "ask")
    assert [error is None for _, error in following.reported] == is_correct
    assert ("nothing changed" in following.reported[-1][0]) is (texts[-1] == DENY)


@AS_ROOT
def test_a_file_that_may_be_read_again_is_taken(following: Following) -> None:
    following.start(DENY)

    following.file.write_text(ALLOW)
    following.file.chmod(0)
    before = following.effect
    following.file.chmod(0o600)

    assert (before, following.effect) == ("deny", "allow")


def test_a_file_that_changes_while_it_is_read_is_read_again(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    following.start(DENY)
    following.replace(ALLOW)
    read = reload

    def slowly(old: Settings) -> Settings:
        monkeypatch.setattr("toolkiln.config.reload", read)
        settings = read(old)
        following.replace(ASK)
        return settings

    monkeypatch.setattr("toolkiln.config.reload", slowly)

    assert [following.effect, following.effect] == ["deny", "ask"]
    assert len(following.reported) == 1


# When it is looked at


def touch(file: Path, text: str, clock: Clock) -> None:
    """Write a file at the clock's time, which is what the system's clock says."""
    file.write_text(text)
    clock.wall = file.stat().st_ctime_ns / 1e9


def test_a_file_is_checked_a_few_times_a_second(started: Following, clock: Clock) -> None:
    touch(started.file, ASK, clock)
    clock.wall += 10

    effects = []
    for now in (1000.0, 1000.2, 1000.26):
        clock.now = now
        effects.append(started.effect)

    assert effects == ["deny", "deny", "ask"]


def test_a_half_written_file_is_left_alone_until_whole(started: Following, clock: Clock) -> None:
    effects = []

    for text in ("# rules\n", "# rules\n" + ASK, None):
        if text is not None:
            touch(started.file, text, clock)
        clock.now += 0.3
        effects.append(started.effect)

    assert effects == ["deny", "deny", "ask"]


@pytest.mark.parametrize(("elapsed", "jump"), [(3600.0, 3600.0), (0.3, -86_400.0), (0.3, 86_400.0)])
def test_a_change_of_a_while_ago_is_applied_although_a_clock_jumps(
    started: Following, clock: Clock, elapsed: float, jump: float
) -> None:
    touch(started.file, ASK, clock)

    clock.now += elapsed
    clock.wall += jump

    assert started.effect == "ask"


def test_a_file_that_is_away_for_a_moment_is_not_reported(started: Following, clock: Clock) -> None:
    started.file.unlink()
    clock.now += 0.3
    started.live.current()
    started.file.write_text(ASK)
    clock.now += 0.3

    assert started.effect == "ask"
    assert [error for _, error in started.reported] == [None]


# Without a file


def test_settings_made_in_python_never_change(
    following: Following, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(rules=({"effect": "ask"},), rates={"*": {"tool": "1/day"}})
    current = LiveSettings(settings, following.tell)

    following.replace(DENY)

    assert effect(current.rules()) == "ask"
    assert current.current() is settings
    assert current.rates().draws(Caller(), TOOL)[0].rate == Rate(1, 86_400)


@each_row(
    "made_up",
    [
        {"rules": ({"effect": "allow", "users": ()},)},
        {"rules": ({"effect": "maybe"},)},
        {"rules": [None]},
        {"policy": "yes"},
        {"privileges": {"*": ["ADMIN"]}},
        {"rates": {"*": {"caller": "often"}}},
    ],
)
def test_settings_made_in_python_are_checked_as_strictly(made_up: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LiveSettings(Settings(**made_up))


# Several at a time


def test_threads_that_ask_get_rules_of_one_version_or_the_other(following: Following) -> None:
    following.start(DENY)
    done = threading.Event()

    def ask() -> set[str]:
        seen: set[str] = set()
        while not done.is_set():
            seen.add(following.effect)
        return seen

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask) for _ in range(4)]
        for text in (ASK, "a = ", DENY) * 10:
            following.replace(text)
            following.live.current()
        done.set()
        seen = set().union(*(one.result(30) for one in asking))

    assert seen <= {"deny", "ask"}
    assert following.effect == "deny"


def test_the_change_callback_may_read_the_settings(following: Following) -> None:
    current = following.start(DENY)
    asked: list[str] = []
    following.live = LiveSettings(current.current(), lambda *_: asked.append(following.effect))

    following.replace(ASK)

    assert following.effect == "ask"
    assert asked == ["ask"]


def test_an_error_of_the_callback_reaches_the_reader_and_rules_apply(following: Following) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    following.start(DENY)
    following.live = LiveSettings(following.live.current(), fail)
    following.replace(ASK)

    with pytest.raises(OSError, match="full"):
        following.live.current()

    assert following.effect == "ask"
