"""A project with state that an earlier Toolkiln wrote, which every later one has to open.

`tests/snapshots/state` was written by `python scripts/surface_state.py`, once. Do not write it
again to make a test pass: put another folder beside it when what is stored changes.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from surface_sessions import SNAPSHOTS, project, ran

_STATE = SNAPSHOTS / "state"
_UNHIDDEN = "dot-toolkiln"
"""The state folder, under a name that git does not ignore."""
_DATABASES = ("store.db", "audit.db")
_LATER = 4_102_444_800
"""2100: what expires is to be found for long."""
_PAY = """toolkiln call pay '{"invoice": {"number": "2026-1", "amount": 5}}'"""
_HISTORY = f"""
toolkiln admit --yes --no-probe
sed -i 's/Hello/Good day/' tools/greet.py; toolkiln admit --yes --no-probe
toolkiln add drafts/triple.py; cp drafts/flawed.txt tools/flawed.py; toolkiln reject tools/flawed.py
toolkiln disable Shelf.put_up
toolkiln keys create ci --user ci --for-ever >key
toolkiln sessions create ann --workspace ann --seconds 86400 >session
echo 4711-4711 | toolkiln settings pay account=other pin=-
echo k-4711-0815 | toolkiln secrets set NOTE_KEY
toolkiln call greet name=Ada --id mine-1 --token $(cat session)
toolkiln call lorem words=6000 --json --token $(cat session) >long
sed -n 's/.*"handle": "\\(.*\\)".*/\\1/p' long >handle; rm long
{_PAY} --background --token $(cat session) >task
until toolkiln approvals list --json | grep '"id"' >approval; do :; done
toolkiln approvals approve $(grep -o '[0-9a-f]\\{{12\\}}' approval) --remember arguments
toolkiln task await $(head -n 1 task) --token $(cat session)
toolkiln audit verify >head
"""


def write() -> None:
    """Let this Toolkiln write the state."""
    shutil.rmtree(_STATE, ignore_errors=True)
    with project() as folder:
        for command in _HISTORY.strip().splitlines():
            print(command, *ran(command, folder), sep="\n")
        shutil.rmtree(folder / "drafts")
        for name in _DATABASES:
            with closing(sqlite3.connect(folder / ".toolkiln" / name)) as database:
                _put_off(database)
                dump = "\n".join(database.iterdump()) + "\n"
            (folder / ".toolkiln" / f"{name}.sql").write_text(dump, "utf-8")
        state = folder / ".toolkiln"
        kept = [
            *folder.glob("*"),
            *folder.glob("tools/*"),
            *state.glob("*.sql"),
            *state.glob("*.toml"),
        ]
        for file in filter(Path.is_file, kept):
            place = _STATE / str(file.relative_to(folder)).replace(".toolkiln", _UNHIDDEN)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Sources are data here: no linter or formatter may change them.
            shutil.copyfile(file, place.with_name(f"{place.name}.txt"))


def _put_off(database: sqlite3.Connection) -> None:
    tables = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    for table in tables:
        for column in database.execute(f"PRAGMA table_info({table})").fetchall():
            if column[1] in ("kept_until", "expires", "remembered_until"):
                change = f"UPDATE {table} SET {column[1]} = ? WHERE {column[1]} IS NOT NULL"
                database.execute(change, [_LATER])
    database.commit()


@contextmanager
def restored() -> Iterator[Path]:
    """The project as it was left."""
    with project() as folder:
        shutil.rmtree(folder)
        for file in _STATE.rglob("*.txt"):
            name = str(file.relative_to(_STATE).with_suffix(""))
            place = folder / name.replace(_UNHIDDEN, ".toolkiln")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        state = folder / ".toolkiln"
        state.chmod(0o711)
        for name in _DATABASES:
            with closing(sqlite3.connect(state / name)) as database:
                database.executescript((state / f"{name}.sql").read_text("utf-8"))
            (state / f"{name}.sql").unlink()
        for file in state.iterdir():
            file.chmod(0o600)
        yield folder


if __name__ == "__main__":
    write()
