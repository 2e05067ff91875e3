"""What parts of Toolkiln log while a command runs: on stderr, like all that commands say."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from toolkiln.surfaces.cli.tables import one_line
from toolkiln.surfaces.cli.terminal import say


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {one_line(record.getMessage(), 1000)}", err=True)


@contextmanager
def logs_told() -> Iterator[None]:
    """Warnings and worse are printed meanwhile, each on one line."""
    logger, teller = logging.getLogger("toolkiln"), _Teller(logging.WARNING)
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)
