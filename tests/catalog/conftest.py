"""A folder of tools with its state, catalogs over it, and processes that work beside them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog, CatalogOptions
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.catalog import FileState, Version
from toolkiln.store.store import Store, open_store
from toolkiln.store.version_archive import VersionArchive


def tool(name: str, value: object = 1, *, doc: str = "Answer.", extra: str = "") -> str:
    """The source of a tool that returns a value."""
    return f'{extra}\ndef {name}() -> object:\n    """{doc}"""\n    return {value!r}\n'


class Workshop:
    """A tools' folder and its store."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.tools = folder / "tools"
        self.tools.mkdir()
        self._stores: list[Store] = []

    def write(self, file: str, source: str) -> Path:
        """Puts a file into the tools' folder."""
        path = self.tools / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
        return path

    def archive(self) -> VersionArchive:
        """Of a store that stays open until the test ends."""
        if not self._stores:
            self._stores.append(open_store(self.state / "store.db"))
        return self._stores[-1].archive

    def catalog(self, place: Path | None = None, **options: Any) -> Catalog:
        """A catalog that knows nothing yet, as a process that just started has it."""
        given = {"cache": self.state / "readings", **options}
        return Catalog(place or self.tools, self.archive, CatalogOptions(**given))

    def admissions(self, **options: Any) -> Admissions:
        """The decisions of a process that just started."""
        return Admissions(self.catalog(**options))

    def admit(self, *files: str, grant: bool = False, **options: Any) -> list[Version]:
        """Admits files as they are."""
        admissions = self.admissions(**options)
        decision = AdmissionDecision("ann", grant=grant)
        return admissions.admit([admissions.candidate(file) for file in files], decision)

    def add(self, file: str, source: str = "", *, grant: bool = False) -> Path:
        """Writes and admits a file, by default with a tool that is named like it."""
        path = self.write(file, source or tool(Path(file).stem))
        self.admit(file, grant=grant)
        return path

    def propose(self, file: str) -> None:
        """Proposes a file as it is."""
        admissions = self.admissions()
        admissions.propose(admissions.candidate(file), "bot", 20)

    def states(self, **options: Any) -> dict[str, FileState]:
        """The state of every file, for a process that starts at this moment."""
        return states(self.catalog(**options))

    def served(self, **options: Any) -> dict[str, str]:
        """The files that a process that starts at this moment would serve, by tool."""
        snapshot = self.catalog(**options).snapshot
        return {name: snapshot.served[name].file for name in sorted(snapshot.tools)}

    def leftovers(self) -> list[str]:
        """What lies in the folder beside tools and manifest."""
        found = (path.name for path in self.tools.rglob("*") if path.is_file())
        return [name for name in found if not name.endswith(".py") and name != "_manifest.json"]

    def close(self) -> None:
        """Ends what was opened."""
        for store in self._stores:
            store.close()
        self._stores.clear()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    """An empty folder of tools."""
    shop = Workshop(tmp_path)
    yield shop
    shop.close()


def text_of(catalog: Catalog, name: str) -> str:
    """The source that calls of a tool would run."""
    served = catalog.snapshot.served[name]
    return next(iter(served.sources.values())).decode()


def states(catalog: Catalog) -> dict[str, FileState]:
    """The state of every file that a catalog knows."""
    return {status.file: status.state for status in catalog.statuses()}


Start = Callable[..., "subprocess.Popen[str]"]
SOON = 60.0
"""Seconds after which a test gives up."""


def read_line(process: "subprocess.Popen[str]") -> str:
    """The next line that a program prints."""
    assert process.stdout
    return process.stdout.readline()


def run_at_once(*processes: "subprocess.Popen[str]") -> list[str]:
    """What programs print that start together: each says `ready` and waits for a line."""
    assert [read_line(process) for process in processes] == ["ready\n"] * len(processes)
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=SOON)[0] for process in processes]


@pytest.fixture
def start_python() -> Iterator[Start]:
    """Starts a program beside the test; dead at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str | Path, **options: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", dedent(code), *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
