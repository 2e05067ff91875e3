"""`toolkiln mcp` as a process, and what it says."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from ..conftest import COMMAND
from .wire import meta


class Spoken(AbstractContextManager["Spoken"]):
    """A process that ends with the block."""

    def __init__(
        self, place: Path, *options: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.state = place / "state"
        self.errors = place / "errors"
        with self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [COMMAND, "mcp", *options],
                cwd=place,
                env=environ or {**os.environ, "TOOLKILN_STATE": str(self.state)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next message."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def say(self, method: str, id: object = None, **params: Any) -> None:  # noqa: A002
        """Send a request, or without an id a notification."""
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        self.send(json.dumps(body if id is None else {**body, "id": id}).encode())

    def hear(self, id: object) -> dict[str, Any]:  # noqa: A002
        """The answer to a request."""
        while (message := self.receive()).get("id") != id:
            pass
        return message

    def ask(self, method: str, id: object = 1, **params: Any) -> dict[str, Any]:  # noqa: A002
        """The answer to a request of the modern era."""
        self.say(method, id, **{"_meta": meta(), **params})
        return self.hear(id)

    def peak(self) -> int:
        """Bytes of memory that it has used at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    def close(self) -> None:
        """Say that nothing more will come."""
        assert self.process.stdin is not None
        self.process.stdin.close()
