"""Redis servers that die and come back with what is on their disk. Not a test itself."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from . import servers


class Mortal:
    """A server that can be killed and started again in its place."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._options = folder, options
        self._life = ExitStack()
        self.server = self._life.enter_context(servers.running(folder, *options))

    def die(self) -> None:
        """Kill it."""
        self.server.process.kill()
        self._life.close()

    def rise(self) -> None:
        """Start it again with what it finds on its disk."""
        again = servers.running(self._folder, *self._options, port=self.server.port)
        self.server = self._life.enter_context(again)

    def save(self) -> None:
        """Write to the disk what there is at this moment."""
        with closing(self.server.client()) as client:
            client.save()


@contextmanager
def mortal(folder: Path, *options: str) -> Iterator[Mortal]:
    """One that lives, and is dead at the end."""
    one = Mortal(folder, *options)
    try:
        yield one
    finally:
        one.die()
