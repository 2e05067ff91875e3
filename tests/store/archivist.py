"""A process that uses an archive, for the tests to race and to kill. Not a test itself.

archivist.py PLACE race WHO N      prints `waiting`, waits for a line, keeps N versions of one
                                   file, prints their numbers
archivist.py PLACE open STATEMENT  opens the store; before the SQL statement that starts like
                                   this (COMMIT is one, too) prints `halted` and waits until
                                   its input ends
archivist.py PLACE keep STATEMENT  the same while it keeps a version
archivist.py PLACE note STATEMENT  the same while it notes a usage
"""

import hashlib
import sys
from typing import Any

from sqlalchemy import Engine, event

from toolkiln.model.catalog import Arrival, VersionContent
from toolkiln.model.source import Reading
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.store.store import open_store

ADMITTED = Arrival(action="admit", by="anna", at="2026-01-02T03:04:05Z", note="looks fine")


def spec(name: str, digest: str, **changed: Any) -> ToolSpec:
    """A tool of which little is known."""
    fixed = {"dialect": Dialect.FUNCTION, "entry": name, "display_name": name, "line": 1}
    fields = {"description": "Greets.", "parameters": {"type": "object"}, "path": "greet.py"}
    return ToolSpec.model_validate({**fixed, **fields, "name": name, "digest": digest, **changed})


def content(
    text: str = "one", file: str = "greet.py", tools: tuple[str, ...] = ("greet",)
) -> VersionContent:
    """A file with this text that declares these tools."""
    source = text.encode()
    digest = hashlib.sha256(source).hexdigest()
    reading = Reading(path=file, digest=digest, tools=tuple(spec(name, digest) for name in tools))
    return VersionContent(file=file, reading=reading, sources={file: source})


def halt_before(beginning: str) -> None:
    """Says so there, and waits until the input ends."""

    def halt(statement: str) -> None:
        if statement.strip().startswith(beginning):
            print("halted", flush=True)
            sys.stdin.read()

    @event.listens_for(Engine, "before_cursor_execute")
    def execute(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        halt(statement)

    @event.listens_for(Engine, "commit")
    def commit(connection: Any) -> None:
        halt("COMMIT")


def main(place: str, task: str, argument: str, count: str = "1") -> None:
    """Does one of the things above."""
    if task == "open":
        halt_before(argument)
    archive = open_store(place).archive
    if task == "race":
        print("waiting", flush=True)
        sys.stdin.readline()
        texts = [f"{argument} {number}" for number in range(int(count))]
        print(*(archive.add("c", content(text), ADMITTED).number for text in texts), flush=True)
    elif task == "keep":
        halt_before(argument)
        archive.add("c", content("two"), ADMITTED)
    elif task == "note":
        halt_before(argument)
        archive.add_usage("c", "greet", "hello", ADMITTED.at)


if __name__ == "__main__":
    main(*sys.argv[1:])
