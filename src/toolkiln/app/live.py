"""Settings that follow their file: rules, rates and what else may change while work goes on.

Nothing runs in the background: whoever asks for the settings looks after the file, a few
times a second at most. A file that cannot be used leaves everything as it was. Settings
that parts were built from (folders, the store, the sandbox) keep their first value.
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
from toolkiln.config import Settings, Stamp
from toolkiln.errors import ConfigError
from toolkiln.execution import Rates, Rules
from toolkiln.model import Rate, Rule

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
"""The settings that change while work goes on."""
PERMISSIONS = ("policy", "rules", "privileges", "rates", "authoring", "refuse")
"""Those of them that decide who may see and do what; a fleet's workers publish them."""
_LOOK = 0.25
"""Seconds between two looks at the file, and for which it must have been left alone."""
_log = logging.getLogger(__name__)


class Live:
    """The settings of this moment; any thread may ask.

    Settings without a file never change. What a program replaced in settings that came
    from a file lasts until that file changes.
    """

    def __init__(
        self,
        settings: Settings,
        on_change: Callable[[str, ConfigError | None], None] = lambda _, __: None,
    ) -> None:
        """`on_change` gets a sentence and, if a changed file cannot be used, the reason.

        What it raises reaches whoever asked for the settings.

        Raises:
            ConfigError: a program made the settings up, and they cannot be used.
        """
        self._held = _version(settings)
        self._on_change = on_change
        self._seen = settings.seen
        """The file as it was when it was last taken or refused."""
        self._glimpsed = settings.seen
        """The file as it was at the last look."""
        self._is_refused = False
        self._looking = threading.Lock()
        self._next_look = inf if settings.source is None else time.monotonic() + _LOOK

    def current(self) -> Settings:
        """The settings, as the file has them."""
        if time.monotonic() >= self._next_look:
            self._look()
        return self._held.settings

    def rules(self) -> Rules:
        """The rules; the same object as long as no setting changes."""
        self.current()
        return self._held.rules

    def rates(self) -> Rates:
        """The rates; the same object as long as no setting changes."""
        self.current()
        return self._held.rates

    def _look(self) -> None:
        # Whoever comes while another looks, or from `on_change`, goes on with what is there.
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._next_look = time.monotonic() + _LOOK
            self._follow(self._held.settings)
        finally:
            self._looking.release()

    def _follow(self, old: Settings) -> None:
        assert old.source is not None
        stamp, before = config.stamp(old.source), self._glimpsed
        self._glimpsed = stamp
        # A file that is being written may be readable and say only half of it.
        if stamp == self._seen or not (stamp == before or _is_settled(stamp)):
            return
        found: _Version | ConfigError
        try:
            found = _version(_reread(old, old.source, stamp))
        except ConfigError as error:
            found = error
        if config.stamp(old.source) != stamp:
            return
        self._seen = stamp
        if isinstance(found, ConfigError):
            self._refuse(found)
        else:
            self._take(found)

    def _refuse(self, error: ConfigError) -> None:
        self._is_refused = True
        said = f"{error.message}; the rules and settings read before stay in force"
        _log.error("%s (%s)", said, error.hint)
        self._on_change(said, error)

    def _take(self, version: "_Version") -> None:
        old, new = self._held.settings, version.settings
        changed = [name for name in LIVE if getattr(old, name) != getattr(new, name)]
        was_refused, self._is_refused = self._is_refused, False
        if changed:
            self._held = version
        if changed or was_refused:
            said = f"{new.source} was read again: {', '.join(changed) or 'nothing'} changed"
            _log.warning("%s", said)
            self._on_change(said, None)


class FleetLive(Live):
    """The settings of this moment, as workers of a fleet have those that say who may do what."""

    def __init__(
        self, settings: Settings, permissions: Callable[[], Mapping[str, Any] | None]
    ) -> None:
        """`permissions` are the fleet's: the same object as long as they stay; None: unknown."""
        super().__init__(replace(settings, source=None))
        self._own = settings
        self._permissions = permissions
        self._taken: Mapping[str, Any] | None = None

    def current(self) -> Settings:
        """The settings, with the fleet's permissions.

        Raises:
            StoreError: nothing is known of the fleet yet.
        """
        told = self._permissions()
        if told is not self._taken and told is not None:
            known = {name: told[name] for name in PERMISSIONS if name in told}
            self._held, self._taken = _version(replace(self._own, **known)), told
        return self._held.settings


class _Version(NamedTuple):
    """Settings, and what was made of them."""

    settings: Settings
    rules: Rules
    rates: Rates


def _version(settings: Settings) -> _Version:
    def checked(name: str) -> Any:
        """A setting, looked at once more: programs may hand over anything."""
        return config.checked(name, getattr(settings, name), "settings")

    rules = [Rule(**rule) for rule in checked("rules")]
    rates = {
        glob: {of: Rate(*config.pace(text)) for of, text in texts.items()}
        for glob, texts in checked("rates").items()
    }
    return _Version(settings, Rules(rules, checked("policy"), checked("privileges")), Rates(rates))


def _reread(old: Settings, source: Path, stamp: Stamp | None) -> Settings:
    """The settings with what the file says of those that may change."""
    if stamp is None:
        raise ConfigError(f"{source} is gone", hint="put it back")
    if not stamp.size:  # cut short by a full disk or a pause, rather than meant
        raise ConfigError(f"{source} is empty", hint="put a comment in it if that is meant")
    read = config.reload(old)
    kept = {name: one for name, one in old.given.items() if name not in LIVE}
    told = {name: one for name, one in read.given.items() if name in LIVE}
    values = {name: getattr(read, name) for name in LIVE}
    return replace(old, given=kept | told, **values)


def _is_settled(stamp: Stamp | None) -> bool:
    return stamp is not None and abs(time.time() - stamp.changed / 1e9) >= _LOOK
