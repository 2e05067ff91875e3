"""SQL over CSV text, in a database that lives in memory and can do nothing but read."""

import csv
import io
import sqlite3
from typing import Annotated, Any

from pydantic import BaseModel, Field

from toolkiln import ToolError, tool

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


class Answer(BaseModel):
    """The rows that a query gave."""

    columns: list[str]
    rows: list[list[str | int | float | None]]
    more: bool = Field(description="Whether there are rows beyond the limit.")


@tool(capabilities=["files"], read_only=True, timeout=30, memory="256MB", icon="database")
def query_csv(
    csv_text: str,
    sql: str,
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> Answer:
    """Answer a question about CSV data with a SQL query.

    The data is the table `data`; its columns are named by the first line. Values that look
    like numbers are numbers. The query may select, group, join and sort, but not change
    anything.

    Args:
        csv_text: The data as CSV, with names in the first line.
        sql: One SELECT statement in SQLite's dialect.
        limit: How many rows to return at most.

    Returns:
        The columns and rows of the answer.

    Raises:
        ToolError: The data has no header, or the query is refused.

    Examples:
        >>> people = "name,team,age\\nAda,red,36\\nAlan,blue,41\\nGrace,red,85"
        >>> query_csv(people, "SELECT team, avg(age) FROM data GROUP BY team").rows
        [['blue', 41.0], ['red', 60.5]]
    """
    lines = list(csv.reader(io.StringIO(csv_text)))
    if not lines or not all(lines[0]):
        raise ToolError("the first line has to name every column")
    width = len(lines[0])
    names = ", ".join('"' + name.replace('"', '""') + '" NUMERIC' for name in lines[0])
    rows = [(line + [""] * width)[:width] for line in lines[1:] if line]
    marks = ", ".join("?" * width)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE TABLE data ({names})")
        connection.executemany(f"INSERT INTO data VALUES ({marks})", rows)  # noqa: S608
        connection.set_authorizer(_authorize)
        cursor = connection.execute(sql)
        found: list[Any] = cursor.fetchmany(limit + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise ToolError(f"the query is refused: {error}") from error
    finally:
        connection.close()
    return Answer(
        columns=[column[0] for column in cursor.description or ()],
        rows=[list(row) for row in found[:limit]],
        more=len(found) > limit,
    )


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
