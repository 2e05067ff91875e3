"""What operators and users set for tools, as it is written down.

What may be set, and what is secret, is `execution`'s business. Methods block and are
thread-safe; all raise StoreError when the database fails or a row is damaged.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, String, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.store.database import Database
from toolkiln.store.records import hash_of, intact, write_json
from toolkiln.store.schema import settings

_KEY = bindparam("the_key", type_=String)
_TURN = int.from_bytes(b"settings")
"""Names the lock under which writers take turns on PostgreSQL."""


class ToolSettings:
    """The values of each tool: the operator's, and each user's."""

    def __init__(self, database: Database) -> None:
        self._database = database
        dialect = postgresql if database.postgres else sqlite
        add = dialect.insert(settings)
        self._keep = add.on_conflict_do_update(
            index_elements=[settings.c.key], set_={"content": add.excluded.content}
        )
        self._remove = delete(settings).where(settings.c.key == _KEY)
        self._read = select(settings.c.content).where(settings.c.key == _KEY)

    def read(self, tool: str, user: str = "") -> dict[str, Any]:
        """What is set for a tool, by the operator or for a user."""
        with self._database.transaction(reading=True) as connection:
            return self._values(connection, tool, user)

    def change(
        self, tool: str, edit: Callable[[dict[str, Any]], Mapping[str, Any]], user: str = ""
    ) -> None:
        """Sets what `edit` makes of what is set; nobody else changes it meanwhile."""
        with self._database.transaction() as connection:
            if self._database.postgres:
                connection.execute(select(func.pg_advisory_xact_lock(_TURN)))
            values = dict(edit(self._values(connection, tool, user)))
            content = write_json(f"what is set for {tool[:100]!r}", values)
            row = {"key": hash_of([tool, user]), "tool": tool, "user": user, "content": content}
            if values:
                connection.execute(self._keep, row)
            else:
                connection.execute(self._remove, {"the_key": row["key"]})

    def _values(self, connection: Connection, tool: str, user: str) -> dict[str, Any]:
        text = connection.scalar(self._read, {"the_key": hash_of([tool, user])})
        with intact(f"what is set for {tool[:100]!r}"):
            return {} if text is None else dict(json.loads(text))
