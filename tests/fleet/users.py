"""The Redis users of deploy/: a server that has them, and a worker of its fleet."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis

from toolkiln.fleet.message_auth import generate_worker_keys
from toolkiln.model.question import FormAnswer, Question

from . import servers
from .servers import Server
from .workers import Running, tools_folder, worker

DEPLOY = Path(__file__).parents[2] / "deploy"
FLEET_KEY = "a key of this test"
PRIVATE, PUBLIC = generate_worker_keys()
KEYS = f'fleet_key = "{FLEET_KEY}"\nworker_key = "{PRIVATE}"\nworker_keys = ["{PUBLIC}"]\n'


def users_file() -> Path:
    """The users of deploy/ that the server here can read."""
    return DEPLOY / "redis" / ("users-6.2.acl" if servers.version() < (7,) else "users.acl")


@contextmanager
def guarded_server(user: str, other: str) -> Iterator[Server]:
    """A server with the users of deploy/, another one like `user`, and one who looks on."""
    users = users_file().read_text()
    (line,) = [line for line in users.splitlines() if line.startswith(f"user {user} ")]
    second = line.replace(f"user {user} ", f"user {other} ").replace(f":{user}:", f":{other}:")
    users += f"{second}\nuser looker on nopass ~* +@all\n"
    with tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp") as name:
        file = Path(name, "users.acl")
        file.write_text(users)
        with servers.running(Path(name), "--aclfile", str(file)) as server:
            yield server


@contextmanager
def guarded_worker(server: Server, folder: Path, source: str, settings: str) -> Iterator[Running]:
    """A worker that signs what it sends."""
    with worker(url(server, "worker"), tools_folder(folder, KEYS + settings, some=source)) as one:
        yield one


def url(server: Server, user: str) -> str:
    """The address for a user; one that the test added has the password of its model."""
    model = {"other": "web", "mallory": "client"}.get(user, user)
    return f"redis://{user}:{model.upper()}-PASSWORD@127.0.0.1:{server.port}"


def looker(server: Server) -> "redis.Redis":
    """A client that may do anything."""
    return server.client(username="looker", password="")


def refusals(server: Server) -> list[Any]:
    """What users tried and may not, since the last look."""
    with closing(looker(server)) as client:
        found: list[Any] = client.acl_log()
        client.acl_log_reset()
    refused = [(entry["username"], entry["reason"], entry["object"]) for entry in found]
    # redis-py tells its version with CLIENT SETINFO, and a worker asks with its first read how
    # Redis syncs, which may be after it is ready; both take a no for an answer.
    expected = (("command", "client"), ("command", "config"))
    return [one for one in refused if (one[1], one[2].partition("|")[0]) not in expected]


async def be_ada(_: tuple[Question, ...]) -> list[FormAnswer]:
    return [FormAnswer(action="accept", content={"name": "Ada"})]
