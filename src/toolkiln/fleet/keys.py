"""Every key that Toolkiln has in Redis.

Names that come from elsewhere are hashed: whatever they hold, a key is short, printable
and nobody else's. There are no hash tags, as one script touches keys that belong to
different slots: a Redis Cluster is refused (`connection`). Two installations on one server
need a database number each.
"""

from hashlib import sha256
from typing import Literal

SESSIONS = "toolkiln:sessions"
"""A sorted set: the keys of all sessions, by when they expire."""

FLEET_KEY = "toolkiln:fleet-key"
"""A string: what the fleet seals with, where no setting says it."""
CATALOG = "toolkiln:catalog"
"""A hash: the number of the catalog, whose numbers these are, and the permissions."""
CATALOG_NAMES = "toolkiln:catalog-names"
"""A hash: by the name of a tool, which entry is served, and for which pool."""
CATALOG_CHANGES = "toolkiln:catalog-changes"
"""A sorted set: names of tools, gone ones too, by the number that last changed them."""
PUBLISHERS = "toolkiln:publishers"
"""A sorted set: the keys of those who publish tools, by when they were last heard of."""
ANNOUNCEMENTS = "toolkiln:announcements"
"""A stream: what every process of the fleet has to know at once."""

APPROVALS = "toolkiln:approvals"
"""A sorted set: the ids of all requests for approval, by until when they are kept.

The requests themselves are hashes, `toolkiln:approval:ID`; see `approvals.lua`.
"""
APPROVAL_IDS = "toolkiln:approval-ids"
"""A sorted set: the same ids in their order, to find one by its beginning."""
POOLS = "toolkiln:pools"
"""A set: the names of all pools that have or lately had workers."""


PUBLISHER_TABLES = "toolkiln:publisher:*"
"""A pattern: the tables of all publishers."""
REFUSED_WORKERS = "toolkiln:refused:*"
"""A pattern: all workers that refused to start."""


def session(token_hash: str) -> str:
    """A hash: one session."""
    return _named("session", token_hash)


def sessions_of_key(key_id: str) -> str:
    """A sorted set: the keys of the sessions that an API key made, by when they expire."""
    return _named("sessions-of-key", key_id)


def bucket(name: str) -> str:
    """A hash: the tokens that were left, and when."""
    return _named("bucket", name)


def calls(pool: str) -> str:
    """A stream: the calls that a pool's workers have to make, as `record`, `call`, `by`, `tries`.

    `call` is an envelope, or its digest where that is a key of its own (`body`); `by` the
    deadline in milliseconds of Redis's clock, or 0; `tries` how often a worker began it
    before. An entry goes when its call ends, so that its length is what is under way.
    """
    # Shorter than the others: Redis keeps records far smaller whose fields have 64 bytes at most.
    return f"toolkiln:calls:{_short(pool)}"


def lives(pool: str) -> str:
    """A hash: the server that a pool was last read from, and up to where it may have forgotten
    what became of calls (`lives`). It has the stream's name, as `enqueue.lua` makes both.
    """
    return f"{calls(pool)}:lives"


GROUP = "workers"
"""The consumer group of a stream of calls."""


def dead(pool: str) -> str:
    """A stream: calls that were given up, as `record`, `call`, `tries`, `why`."""
    return _named("dead", pool)


def control(pool: str) -> str:
    """A stream: what a pool's workers are asked to do, as `ask` and `of`."""
    return control_of(calls(pool))


def control_of(stream: str) -> str:
    """The control stream beside a pool's stream of calls, of which a record has the name."""
    return stream.replace(":calls:", ":control:", 1)


def asks(pool: str) -> str:
    """A stream: what clients ask a pool's workers, for their own calls; like `control`."""
    return asks_of(calls(pool))


def asks_of(stream: str) -> str:
    """The stream of clients beside a pool's stream of calls."""
    return stream.replace(":calls:", ":asks:", 1)


def record(record: str) -> str:
    """A hash: one call, from when it was accepted until some time after its end.

    `print`: what its tool and arguments hash to, empty if its id is not its caller's own and
    so nothing is remembered; `pool`: the key of its stream; `entry`: its
    id there; `askers`: the keys of the reply streams, separated by spaces. After the end
    `state` is `done`, or `open` if the id can be used for another call, and `reply` the packed
    reply, if it is to be remembered.
    """
    return f"toolkiln:call:{record}"


def body(record: str, what: Literal["call", "result"]) -> str:
    """A string: an envelope or a reply of one call that is too large for a stream."""
    return f"toolkiln:body:{what}:{record}"


def question(question_id: str) -> str:
    """A string: what a running call asks its caller, whom alone the id is told."""
    return f"toolkiln:body:question:{question_id}"


def answer(question_id: str) -> str:
    """A string: what the caller answered, until the worker has taken it."""
    return f"toolkiln:body:answer:{question_id}"


def replies(reply_to: str) -> str:
    """A stream: what one client process is told, as `replies`, several packed in one entry.

    The name stays readable, so that a server's ACL can give each client its own prefix.
    """
    return f"toolkiln:replies:{reply_to}"


def worker(worker_id: str) -> str:
    """A hash: one worker, as it describes itself for as long as it lives."""
    return f"toolkiln:worker:{worker_id}"


def refused(publisher_id: str) -> str:
    """A hash: a worker that refused to start, and why, for some minutes."""
    return _named("refused", publisher_id)


def sweeper(pool: str) -> str:
    """A string: the worker that looks after a pool's abandoned calls, for as long as it does."""
    return _named("sweeper", pool)


def approvals_of_call(call_key: str) -> str:
    """A sorted set: the ids of the requests that one call made."""
    return _named("approvals-of-call", call_key)


def remembered(key: str) -> str:
    """A sorted set: the ids of the requests whose answer is remembered by one key."""
    return _named("remembered", key)


def claim(record: str) -> str:
    """A hash: what is remembered of a call by its caller's id; see `records.lua`."""
    return f"toolkiln:claim:{record}"


def claims_of(scope: str) -> str:
    """A sorted set: the keys of one caller's claims, by when they were made."""
    return f"toolkiln:claims-of:{scope}"


def output(handle: str) -> str:
    """A hash: a text to page through, in parts by their numbers."""
    return _named("output", handle)


def outputs_of(scope: str) -> str:
    """A sorted set: the keys and lengths of one caller's outputs, by until when they are kept."""
    return f"toolkiln:outputs-of:{scope}"


def publisher(pool: str, publisher_id: str) -> str:
    """A hash: by the name of a tool, the entry that one publisher has; see `publish.lua`."""
    return f"toolkiln:publisher:{_short(pool)}:{_short(publisher_id)}"


def entry(entry_id: str) -> str:
    """A string: one tool as it is published, by the SHA-256 of the string."""
    return f"toolkiln:entry:{entry_id}"


def version(tool: str, digest: str) -> str:
    """A string: the id of the entry that has this version of a tool."""
    return _named("version", f"{digest} {tool}")


def source(sha256_: str) -> str:
    """A string: the bytes of a file, by their SHA-256."""
    return _named("source", sha256_)


def _short(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _named(kind: str, name: str) -> str:
    return f"toolkiln:{kind}:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
