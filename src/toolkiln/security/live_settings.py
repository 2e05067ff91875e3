"""Settings that are reloaded when their file changes: rules, rates, grants and a few more.

No background task: reading the settings checks the file, at most four times a second. An
invalid file leaves the settings unchanged. Settings that other parts were built from (folders,
the store, the sandbox) keep their first value.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln import config
from toolkiln.config import FileStamp, Settings
from toolkiln.errors import ConfigError
from toolkiln.model.policy import Rate, Rule
from toolkiln.security.guard import Rates
from toolkiln.security.rules import Rules

LIVE = (
    "policy",
    "rules",
    "privileges",
    "rates",
    "grants",
    "approval_seconds",
    "session_seconds",
    "authoring",
    "proposals_per_caller",
    "refuse",
)
"""The settings that are reloaded."""
PERMISSIONS = ("policy", "rules", "privileges", "rates", "authoring", "refuse")
"""The reloaded settings that control access; the workers of a fleet publish them."""
_INTERVAL = 0.25
"""Seconds between two checks of the file, and that it must be unchanged before it is read."""
_log = logging.getLogger(__name__)


class LiveSettings:
    """The current settings; thread-safe.

    Settings without a file never change. Values that a program replaced last until the file
    changes.
    """

    def __init__(
        self,
        settings: Settings,
        on_change: Callable[[str, ConfigError | None], None] = lambda _, __: None,
    ) -> None:
        """`on_change` gets a summary and, if the changed file is invalid, the error.

        An exception it raises reaches the code that reads the settings.

        Raises:
            ConfigError: a program passed invalid settings.
        """
        self._loaded = _loaded(settings)
        self._on_change = on_change
        self._handled = settings.file_stamp
        """The version of the file that was last loaded or rejected."""
        self._last_seen = settings.file_stamp
        """The version of the file at the last check."""
        self._is_rejected = False
        self._lock = threading.Lock()
        self._next_check = inf if settings.source is None else time.monotonic() + _INTERVAL

    def current(self) -> Settings:
        """Return the settings, reloaded if the file has changed."""
        if time.monotonic() >= self._next_check:
            self._check_file()
        return self._loaded.settings

    def rules(self) -> Rules:
        """Return the rules; the same object until a setting changes."""
        self.current()
        return self._loaded.rules

    def rates(self) -> Rates:
        """Return the rate limits; the same object until a setting changes."""
        self.current()
        return self._loaded.rates

    def _check_file(self) -> None:
        # Other threads, and calls from `on_change`, use the settings loaded so far.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._next_check = time.monotonic() + _INTERVAL
            self._reload(self._loaded.settings)
        finally:
            self._lock.release()

    def _reload(self, old: Settings) -> None:
        assert old.source is not None
        stamp, before = config.read_stamp(old.source), self._last_seen
        self._last_seen = stamp
        # A file that is still being written may be valid but incomplete.
        if stamp == self._handled or not (stamp == before or _is_settled(stamp)):
            return
        result: _Loaded | ConfigError
        try:
            result = _loaded(_reread(old, old.source, stamp))
        except ConfigError as error:
            result = error
        if config.read_stamp(old.source) != stamp:
            return
        self._handled = stamp
        if isinstance(result, ConfigError):
            self._reject(result)
        else:
            self._apply(result)

    def _reject(self, error: ConfigError) -> None:
        self._is_rejected = True
        summary = f"{error.message}; the rules and settings read before stay in force"
        _log.error("%s (%s)", summary, error.hint)
        self._on_change(summary, error)

    def _apply(self, loaded: "_Loaded") -> None:
        old, new = self._loaded.settings, loaded.settings
        changed = [name for name in LIVE if getattr(old, name) != getattr(new, name)]
        was_rejected, self._is_rejected = self._is_rejected, False
        if changed:
            self._loaded = loaded
        if changed or was_rejected:
            summary = f"{new.source} was read again: {', '.join(changed) or 'nothing'} changed"
            _log.warning("%s", summary)
            self._on_change(summary, None)


class FleetLive(LiveSettings):
    """The current settings at a front: access control comes from the fleet's workers."""

    def __init__(
        self, settings: Settings, permissions: Callable[[], Mapping[str, Any] | None]
    ) -> None:
        """`permissions` returns the fleet's: the same object until they change; None: unknown."""
        super().__init__(replace(settings, source=None))
        self._local = settings
        self._permissions = permissions
        self._applied: Mapping[str, Any] | None = None

    def current(self) -> Settings:
        """Return the settings with the fleet's permissions."""
        published = self._permissions()
        if published is not self._applied and published is not None:
            values = {name: published[name] for name in PERMISSIONS if name in published}
            self._loaded, self._applied = _loaded(replace(self._local, **values)), published
        return self._loaded.settings


class _Loaded(NamedTuple):
    settings: Settings
    rules: Rules
    rates: Rates


def _loaded(settings: Settings) -> _Loaded:
    checked: dict[str, Any] = {  # again: programs may pass any value
        name: config.check_setting(name, getattr(settings, name), "settings")
        for name in ("rules", "policy", "privileges", "rates")
    }
    rules = Rules(
        [Rule(**rule) for rule in checked["rules"]], checked["policy"], checked["privileges"]
    )
    rates = {
        glob: {of: Rate(*config.parse_rate(text)) for of, text in texts.items()}
        for glob, texts in checked["rates"].items()
    }
    return _Loaded(settings, rules, Rates(rates))


def _reread(old: Settings, source: Path, stamp: FileStamp | None) -> Settings:
    """Return the settings with reloaded values of those in `LIVE`."""
    if stamp is None:
        raise ConfigError(f"{source} does not exist any more", hint="restore it")
    if not stamp.size:  # probably truncated by a full disk or an interrupted write
        raise ConfigError(f"{source} is empty", hint="add a comment if that is intended")
    new = config.reload(old)
    fixed = {name: origin for name, origin in old.loaded.items() if name not in LIVE}
    reloaded = {name: origin for name, origin in new.loaded.items() if name in LIVE}
    values = {name: getattr(new, name) for name in LIVE}
    return replace(old, loaded=fixed | reloaded, **values)


def _is_settled(stamp: FileStamp | None) -> bool:
    return stamp is not None and abs(time.time() - stamp.changed_ns / 1e9) >= _INTERVAL
