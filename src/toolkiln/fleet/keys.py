"""Every Redis key of Toolkiln.

Names from outside are hashed, so that keys are short, printable and unique. There are no hash
tags, because one script uses keys of different slots: Redis Cluster is not supported. Two
installations on one server need different database numbers.
"""

from hashlib import sha256
from typing import Literal

SESSIONS = "toolkiln:sessions"
"""Sorted set: keys of all sessions, by expiry."""

FLEET_KEY = "toolkiln:fleet-key"
"""String: the fleet key, if it is not configured."""
CATALOG = "toolkiln:catalog"
"""Hash: number and epoch of the catalog, and the permissions."""
CATALOG_NAMES = "toolkiln:catalog-names"
"""Hash: served entry and pool by tool name."""
CATALOG_CHANGES = "toolkiln:catalog-changes"
"""Sorted set: tool names, including removed ones, by the catalog number of the last change."""
PUBLISHERS = "toolkiln:publishers"
"""Sorted set: keys of publishers, by their last refresh."""
ANNOUNCEMENTS = "toolkiln:announcements"
"""Stream: announcements to every process of the fleet."""

APPROVALS = "toolkiln:approvals"
"""Sorted set: ids of all approval requests, by expiry.

The requests are hashes, `toolkiln:approval:ID`; see `approvals.lua`.
"""
APPROVAL_IDS = "toolkiln:approval-ids"
"""Sorted set: the same ids in lexical order, for lookup by prefix."""
POOLS = "toolkiln:pools"
"""Set: names of all pools that have or recently had workers."""
PUBLISHER_TABLES = "toolkiln:publisher:*"
"""Pattern: the hashes of all publishers."""
REFUSED_WORKERS = "toolkiln:refused:*"
"""Pattern: all workers that refused to start."""


def session(token_hash: str) -> str:
    """Hash: one session."""
    return _named("session", token_hash)


def sessions_of_key(key_id: str) -> str:
    """Sorted set: keys of the sessions of an API key, by expiry."""
    return _named("sessions-of-key", key_id)


def bucket(name: str) -> str:
    """Hash: remaining tokens, and when they were counted."""
    return _named("bucket", name)


def calls(pool: str) -> str:
    """Stream: the calls of a pool, as `record`, `call`, `by`, `tries`.

    `call` is an envelope, or its digest if it is stored under a separate key (`body`); `by` the
    deadline in milliseconds of the Redis clock, or 0; `tries` how often workers started it before.
    An entry is deleted when its call ends, so the length is the number of unfinished calls.
    """
    # Short: Redis encodes hashes compactly if their fields have at most 64 bytes.
    return f"toolkiln:calls:{_short(pool)}"


def lives(pool: str) -> str:
    """Hash: the server that a pool was last read from, and up to which entry it may have lost
    deliveries (`RestartTracker`). `enqueue.lua` derives its name from the stream's.
    """
    return f"{calls(pool)}:lives"


GROUP = "workers"
"""The consumer group of a stream of calls."""


def dead(pool: str) -> str:
    """Stream: dead letters, as `record`, `call`, `tries`, `why`."""
    return _named("dead", pool)


def control(pool: str) -> str:
    """Stream: control messages to the workers of a pool, as `ask` and `of`."""
    return control_of(calls(pool))


def control_of(stream: str) -> str:
    """Return the control stream for a stream of calls, whose name is in a record."""
    return stream.replace(":calls:", ":control:", 1)


def asks(pool: str) -> str:
    """Stream: control messages from clients, about their own calls; like `control`."""
    return asks_of(calls(pool))


def asks_of(stream: str) -> str:
    """Return the client control stream for a stream of calls."""
    return stream.replace(":calls:", ":asks:", 1)


def record(record: str) -> str:
    """Hash: one call, from acceptance until some time after its end.

    `print`: fingerprint of tool and arguments, empty if the call is not remembered; `pool`: key of
    its stream; `entry`: its entry id; `askers`: keys of the reply streams, separated by spaces.
    After the end, `state` is `done`, or `open` if the id can be reused, and `reply` is the encoded
    reply, if it is remembered.
    """
    return f"toolkiln:call:{record}"


def body(record: str, what: Literal["call", "result"]) -> str:
    """String: an envelope or reply too large for a stream."""
    return f"toolkiln:body:{what}:{record}"


def question(question_id: str) -> str:
    """String: a running call's question, whose id only its caller learns."""
    return f"toolkiln:body:question:{question_id}"


def answer(question_id: str) -> str:
    """String: the caller's answer, until the worker has read it."""
    return f"toolkiln:body:answer:{question_id}"


def replies(reply_to: str) -> str:
    """Stream: replies to one client process, as `replies`, several per entry.

    The name is readable, so that an ACL can give each client its own prefix.
    """
    return f"toolkiln:replies:{reply_to}"


def worker(worker_id: str) -> str:
    """Hash: description of a live worker."""
    return f"toolkiln:worker:{worker_id}"


def refused(publisher_id: str) -> str:
    """Hash: a worker that refused to start, and why, for some minutes."""
    return _named("refused", publisher_id)


def sweeper(pool: str) -> str:
    """String: the worker whose sweeper is active for a pool."""
    return _named("sweeper", pool)


def approvals_of_call(call_key: str) -> str:
    """Sorted set: ids of the approval requests of one call."""
    return _named("approvals-of-call", call_key)


def remembered(key: str) -> str:
    """Sorted set: ids of the requests whose verdict is remembered under one key."""
    return _named("remembered", key)


def claim(record: str) -> str:
    """Hash: the call record of a caller's id; see `records.lua`."""
    return f"toolkiln:claim:{record}"


def claims_of(scope: str) -> str:
    """Sorted set: keys of one caller's claims, by creation time."""
    return f"toolkiln:claims-of:{scope}"


def output(handle: str) -> str:
    """Hash: an output in numbered chunks."""
    return _named("output", handle)


def outputs_of(scope: str) -> str:
    """Sorted set: keys and lengths of one caller's outputs, by expiry."""
    return f"toolkiln:outputs-of:{scope}"


def publisher(pool: str, publisher_id: str) -> str:
    """Hash: entries of one publisher by tool name; see `publish.lua`."""
    return f"toolkiln:publisher:{_short(pool)}:{_short(publisher_id)}"


def entry(entry_id: str) -> str:
    """String: a published tool, by its SHA-256."""
    return f"toolkiln:entry:{entry_id}"


def version(tool: str, digest: str) -> str:
    """String: the entry id of a version of a tool."""
    return _named("version", f"{digest} {tool}")


def source(sha256_: str) -> str:
    """String: the bytes of a file, by their SHA-256."""
    return _named("source", sha256_)


def _short(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _named(kind: str, name: str) -> str:
    return f"toolkiln:{kind}:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
