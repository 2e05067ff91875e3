"""The `toolkiln` command for tests, without half a second of imports for each run.

`command()` returns a program that is used like `.venv/bin/toolkiln`. It hands its arguments,
environment, folder and standard streams to a server that has imported Toolkiln. The server forks,
and the fork runs the command and exits like any process. Where that would make a difference (closed
streams, variables that Python reads at its start) the program runs the real command.

What a command imports, signals and terminals are tested with the real command.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

REAL = Path(sys.executable).with_name("toolkiln")
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""Prefixes of variables that count when Python starts."""
_PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

def own():
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])

start = {{k: v for k, v in os.environ.items() if k.startswith({at_start!r})}}
try:
    for descriptor in (0, 1, 2):
        os.fstat(descriptor)
except OSError:
    own()
if start not in ({start!r}, {{"LANG": "C.UTF-8"}}):
    own()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
umask = os.umask(0)
os.umask(umask)
request = json.dumps([sys.argv[1:], dict(os.environ), umask]).encode()
folder = os.open(".", os.O_PATH)
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2, folder])
server.sendall(request)
status = int.from_bytes(server.recv(2), "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@cache
def command() -> Path:
    """Start the server of this process and return the program that uses it."""
    folder = Path(tempfile.mkdtemp(prefix="toolkiln-command-"))
    address = folder / "server"
    start = {name: text for name, text in os.environ.items() if name.startswith(_AT_START)}
    program = folder / "toolkiln"
    program.write_text(
        _PROGRAM.format(
            python=sys.executable, real=str(REAL), at_start=_AT_START, start=start,
            address=str(address),
        )
    )  # fmt: skip
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, __file__, address],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def stop() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return program


def _import_everything() -> None:
    import importlib
    import pkgutil

    import toolkiln

    # Servers are started with the real command, and these run inside the sandbox.
    skipped = ("toolkiln.runtime", "toolkiln.surfaces.http", "toolkiln.surfaces.mcp")
    for module in pkgutil.walk_packages(toolkiln.__path__, "toolkiln.", onerror=lambda _: None):
        if not module.name.startswith(skipped) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork would lose the other threads"


def _request(connection: socket.socket) -> tuple[list[str], dict[str, str], int, list[int]]:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 4)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += connection.recv(1 << 20)
    arguments, environ, umask = json.loads(text)
    return arguments, environ, umask, descriptors


def _become(connection: socket.socket) -> None:
    """Take the place of the program at the other end."""
    arguments, environ, umask, descriptors = _request(connection)
    *streams, folder = descriptors
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.fchdir(folder)
    os.close(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.argv = [str(REAL), *arguments]
    errors = "strict" if environ.get("LANG") == "C.UTF-8" else sys.stdin.errors
    sys.stdin = _stream(0, "r", errors=errors)
    sys.stdout = _stream(1, "w", errors=errors)
    sys.stderr = _stream(2, "w", errors="backslashreplace", line_buffering=True)


def _stream(number: int, mode: str, **options: Any) -> TextIOWrapper:
    binary = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - it lives as long as the process
    options.setdefault("line_buffering", os.isatty(number))
    return TextIOWrapper(binary, newline="\n" if mode == "w" else None, **options)


def _serve(address: str) -> None:
    """Fork for each connection; returns in the forks only."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    poll = select.poll()
    poll.register(0, select.POLLIN)  # closed when the process that started this one ends
    poll.register(listener, select.POLLIN)
    forks: dict[int, _Fork] = {}
    """By the two descriptors of each: the process and the connection."""
    while True:
        for descriptor, _ in poll.poll():
            fork = forks.get(descriptor)
            if descriptor == 0:
                for each in forks.values():
                    os.kill(each.pid, signal.SIGKILL)
                sys.exit()
            elif descriptor == listener.fileno():
                connection, _ = listener.accept()
                pid = os.fork()
                if pid == 0:
                    listener.close()
                    for each in set(forks.values()):
                        each.close()
                    _become(connection)
                    connection.close()
                    return
                fork = _Fork(pid, os.pidfd_open(pid), connection)
                forks |= {fork.process: fork, connection.fileno(): fork}
                poll.register(fork.process, select.POLLIN)
                poll.register(connection, select.POLLRDHUP)
            elif fork and descriptor == fork.process:
                status = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
                for each_descriptor in (fork.process, fork.connection.fileno()):
                    del forks[each_descriptor]
                    poll.unregister(each_descriptor)
                with suppress(OSError):
                    fork.connection.sendall(status.to_bytes(2, "big", signed=True))
                fork.close()
            elif fork:  # the program was killed
                os.kill(fork.pid, signal.SIGKILL)


class _Fork(NamedTuple):
    pid: int
    process: int
    connection: socket.socket

    def close(self) -> None:
        os.close(self.process)
        self.connection.close()


if __name__ == "__main__":
    import gc

    _import_everything()
    gc.freeze()
    _serve(sys.argv[1])
    from toolkiln.surfaces.cli import main

    main()
