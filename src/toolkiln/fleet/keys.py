"""Every key that Toolkiln has in Redis.

Names that come from elsewhere are hashed: whatever they hold, a key is short, printable
and nobody else's. There are no hash tags, as one script touches keys that belong to
different slots: a Redis Cluster is refused (`connection`). Two installations on one server
need a database number each.
"""

from hashlib import sha256

SESSIONS = "toolkiln:sessions"
"""A sorted set: the keys of all sessions, by when they expire."""


def session(token_hash: str) -> str:
    """A hash: one session."""
    return _named("session", token_hash)


def sessions_of_key(key_id: str) -> str:
    """A sorted set: the keys of the sessions that an API key made, by when they expire."""
    return _named("sessions-of-key", key_id)


def bucket(name: str) -> str:
    """A hash: the tokens that were left, and when."""
    return _named("bucket", name)


def _named(kind: str, name: str) -> str:
    return f"toolkiln:{kind}:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
