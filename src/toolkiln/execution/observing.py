"""Observers: functions that hear what a call tells before it ends."""

import logging
from collections.abc import Callable

from toolkiln.model import Event

Observe = Callable[[Event], None]
_log = logging.getLogger(__name__)


def careful(observe: Observe, tool: str) -> Observe:
    """An observer whose own faults do not end the call."""

    def pass_on(event: Event) -> None:
        try:
            observe(event)
        except Exception:  # noqa: BLE001 - the observer's own fault; the call goes on
            _log.exception("an event of %s could not be observed", tool)

    return pass_on
