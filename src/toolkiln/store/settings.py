"""What operators and users set for tools, as it is written down.

What may be set, and what is secret, is `execution`'s business. Methods block and are
thread-safe; all raise StoreError when the database fails or a row is damaged.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import String, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from toolkiln.store.database import Database
from toolkiln.store.records import hash_of, intact, write_json
from toolkiln.store.schema import settings, settings_version

_KEY = bindparam("the_key", type_=String)


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
        count = dialect.insert(settings_version).values(id=1, number=1)
        self._count = count.on_conflict_do_update(
            index_elements=[settings_version.c.id], set_={"number": settings_version.c.number + 1}
        )
        self._version = select(func.coalesce(func.max(settings_version.c.number), 0))

    def read(self, tool: str, user: str = "") -> dict[str, Any]:
        """What is set for a tool, by the operator or for a user."""
        with self._database.transaction(reading=True) as connection:
            text = connection.scalar(self._read, {"the_key": hash_of([tool, user])})
        with intact(f"what is set for {tool[:100]!r}"):
            values: dict[str, Any] = {} if text is None else dict(json.loads(text))
        return values

    def write(self, tool: str, values: Mapping[str, Any], user: str = "") -> None:
        """Sets these values in the place of all that were set; no values remove them."""
        content = write_json(f"what is set for {tool[:100]!r}", dict(values))
        row = {"key": hash_of([tool, user]), "tool": tool, "user": user, "content": content}
        with self._database.transaction() as connection:
            connection.execute(self._count)  # first: writers take turns from here on
            if values:
                connection.execute(self._keep, row)
            else:
                connection.execute(self._remove, {"the_key": row["key"]})

    def version(self) -> int:
        """A number that grows with every write, by whichever process."""
        with self._database.transaction(reading=True) as connection:
            number: int = connection.execute(self._version).scalar_one()
        return number
