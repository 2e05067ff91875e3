"""Readings kept on disk: the same as reading anew, whatever became of files and cache."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Set
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkiln.catalog import folder as cache_module
from toolkiln.catalog.files import read_file, tool_files
from toolkiln.catalog.folder import Cache, read_version
from toolkiln.model.catalog import FileVersion, Sources
from toolkiln.model.source import Reading
from toolkiln.spec.requirements import listed_packages

from .conftest import Start, run_at_once, tool

EXAMPLES = Path(__file__).parents[2] / "examples" / "tools"
HELPED = "import shared\n" + tool("helped")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "a.py").write_text(tool("a"))
    (folder / "helped.py").write_text(HELPED)
    (folder / "shared.py").write_text("VALUE = 1\n")
    (folder / "sought.py").write_text("import later\n" + tool("seeker"))
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "readings.db"


def read_all(folder: Path, file: Path | None) -> dict[str, FileVersion]:
    found = Cache(file).read_all(map(str, tool_files([folder])), listed_packages(folder))
    return {str(Path(path).relative_to(folder)): read for path, read in found.items()}


def anew(folder: Path) -> dict[str, FileVersion]:
    packages = listed_packages(folder)
    return {str(f.relative_to(folder)): read_version(f, packages) for f in tool_files([folder])}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were really read."""
    names: list[str] = []

    def noted(file: Path, packages: Set[str]) -> FileVersion:
        names.append(file.name)
        return read_version(file, packages)

    monkeypatch.setattr(cache_module, "read_version", noted)
    return names


def test_unchanged_files_are_not_read_again(folder: Path, file: Path, readings: list[str]) -> None:
    first = read_all(folder, file)
    readings.clear()
    second = read_all(folder, file)

    assert first == second == anew(folder)
    assert readings == ["shared.py"]  # it declares no tool, and nothing is kept of it


def test_a_reading_is_unpacked_when_it_is_needed(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all(folder, file)
    unpacked: list[str] = []
    original = cache_module._unpacked

    def noted(packed: bytes, sources: Sources, path: str, packages: Set[str]) -> Reading:
        unpacked.append(Path(path).name)
        return original(packed, sources, path, packages)

    monkeypatch.setattr(cache_module, "_unpacked", noted)
    found = read_all(folder, file)

    assert found["a.py"].names == ("a",)
    assert unpacked == []
    assert found["a.py"].tool("a").name == "a"
    assert found["a.py"].tool("a") is found["a.py"].tool("a")
    assert unpacked == ["a.py"]


def test_examples_are_the_same_from_the_cache(tmp_path: Path, readings: list[str]) -> None:
    folder = shutil.copytree(EXAMPLES, tmp_path / "tools")
    first = read_all(folder, tmp_path / "cache.db")
    readings.clear()
    second = read_all(folder, tmp_path / "cache.db")

    assert second == first == anew(folder)
    assert readings == []


@pytest.mark.parametrize(
    ("removed", "written"),
    [
        ([], {"a.py": tool("a", 2)}),
        ([], {"a.py": tool("b")}),
        ([], {"a.py": "def a(:\n"}),
        ([], {"a.py": ""}),
        ([], {"shared.py": "VALUE = 2\n"}),
        (["shared.py"], {}),
        ([], {"later.py": "VALUE = 1\n"}),
        ([], {"later/__init__.py": "VALUE = 1\n"}),
        ([], {"requirements.txt": "later>=1\n"}),
        (["a.py"], {}),
        (["a.py"], {"a.py/x.py": tool("x")}),
        (["a.py"], {"a.py": Path("sought.py")}),
        (["a.py"], {"a.py": None}),
    ],
)
def test_changed_files_are_read_as_they_are(
    folder: Path, file: Path, removed: list[str], written: dict[str, str | Path | None]
) -> None:
    read_all(folder, file)

    for name in removed:
        (folder / name).unlink()
    for name, content in written.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if content is None:
            os.mkfifo(path)
        elif isinstance(content, Path):
            path.symlink_to(folder / content)
        else:
            path.write_text(content)

    assert read_all(folder, file) == anew(folder)
    assert read_all(folder, file) == anew(folder)


_sources = st.sampled_from([tool("a"), tool("a", 2), HELPED, "VALUE = 2\n", "def x(:", ""])
_names = st.sampled_from(["a.py", "shared.py", "helped.py", "later.py", "sub/a.py"])


@settings(max_examples=40)
@given(st.lists(st.dictionaries(_names, st.none() | _sources, max_size=2), max_size=4))
def test_any_course_of_changes_is_read_as_without_a_cache(
    tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, str | None]]
) -> None:
    top = tmp_path_factory.mktemp("course")
    (top / "tools" / "sub").mkdir(parents=True)
    (top / "tools" / "fixed.py").write_text("import later, shared\n" + tool("fixed"))
    for step in steps:
        for name, source in step.items():
            path = top / "tools" / name
            path.unlink(missing_ok=True) if source is None else path.write_text(source)

        assert read_all(top / "tools", top / "cache.db") == anew(top / "tools")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(1024, len(data), 7):
        data[at] ^= 0x55
    file.write_bytes(data)


def execute(statement: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"rubbish" * 1000),
        lambda file: os.truncate(file, 1000),
        flip,
        lambda file: file.write_bytes(b""),
        partial(execute, "DROP TABLE readings"),
        partial(execute, "UPDATE readings SET reading = '{\"path\": 5}'"),
        partial(execute, "UPDATE readings SET reading = NULL"),
        partial(execute, "UPDATE readings SET reading = CAST('{\"path\": 1' AS BLOB)"),
    ],
)
def test_damaged_cache_is_read_past_and_mended(
    folder: Path, file: Path, readings: list[str], damage: Callable[[Path], None]
) -> None:
    read_all(folder, file)

    damage(file)
    damaged = read_all(folder, file)
    for _ in range(2):
        readings.clear()
        mended = read_all(folder, file)

    assert damaged == mended == anew(folder)
    assert readings == ["shared.py"]


def test_cache_of_other_code_is_not_used(
    folder: Path, file: Path, readings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all(folder, file)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE readings SET reading = replace(reading, 'Answer', 'Lie')")
        lied = database.total_changes

    monkeypatch.setattr(cache_module, "_code_version", lambda: 7)
    after = read_all(folder, file)
    readings.clear()
    again = read_all(folder, file)

    assert lied
    assert after == again == anew(folder)
    assert readings == ["shared.py"]


def test_code_version_changes_with_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = shutil.copytree(Path(cache_module.__file__).parents[1], tmp_path / "toolkiln")
    monkeypatch.setattr(cache_module, "_PACKAGE", package)
    before = cache_module._code_version()

    with (package / "spec" / "reader.py").open("a") as source:
        source.write("#\n")

    assert cache_module._code_version() != before


def test_locked_cache_is_read_past(folder: Path, file: Path) -> None:
    read_all(folder, file)
    (folder / "a.py").write_text(tool("a", 2))
    with closing(sqlite3.connect(file)) as database:
        database.execute("BEGIN EXCLUSIVE")

        found = read_all(folder, file)

    assert found == anew(folder)


def test_cache_out_of_reach_is_read_past(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "db").mkdir()

    too_long = tmp_path / ("n" * 300)
    for file in (tmp_path / "file" / "x.db", tmp_path / "db", Path("/proc/x.db"), too_long, None):
        assert read_all(folder, file) == anew(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_cache_that_may_not_be_written_is_read_past(folder: Path, file: Path, mode: int) -> None:
    read_all(folder, file)
    (folder / "a.py").write_text(tool("a", 2))
    file.parent.chmod(mode)

    found = read_all(folder, file)

    file.parent.chmod(0o700)
    assert found == anew(folder)


def test_processes_share_a_cache(folder: Path, file: Path, start_python: Start) -> None:
    for number in range(40):
        (folder / f"many{number}.py").write_text(tool(f"many{number}"))
    code = """
        import sys
        from pathlib import Path
        from toolkiln.catalog.folder import Cache
        from toolkiln.catalog.files import tool_files
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(3):
            found = Cache(Path(sys.argv[2])).read_all(tool_files([Path(sys.argv[1])]))
            print(sorted(read.reading.digest for read in found.values()))
    """

    said = run_at_once(*(start_python(code, folder, file) for _ in range(2)))

    digests = str(sorted(read.reading.digest for read in anew(folder).values()))
    assert said == [f"{digests}\n" * 3] * 2
    assert read_all(folder, file) == anew(folder)


@pytest.mark.parametrize("changes", [2, 1000])
def test_file_that_changes_while_it_is_read_is_read_in_one_version_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    file = tmp_path / "a.py"
    file.write_text(tool("a", 0))
    values = iter(range(1, changes + 1))

    def changing(path: Path, packages: Set[str]) -> object:
        reading = read_file(path, packages)
        file.write_text(tool("a", next(values, changes)))
        return reading

    monkeypatch.setattr(cache_module, "read_file", changing)

    read = read_version(file)

    assert read.sources == ({"a.py": tool("a", 2).encode()} if changes == 2 else {})
    assert read.reading.tools == (read_file(file).tools if changes == 2 else ())


def test_files_that_are_gone_leave_the_cache_in_the_end(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_MAX_STALE", 3)
    for number in range(20):
        (folder / f"many{number}.py").write_text(tool(f"many{number}"))
    read_all(folder, file)
    for number in range(20):
        (folder / f"many{number}.py").unlink()

    (folder / "a.py").write_text(tool("a", 2))
    read_all(folder, file)

    with closing(sqlite3.connect(file)) as database:
        kept = {Path(name).name for (name,) in database.execute("SELECT file FROM readings")}
    assert kept == {"a.py", "helped.py", "sought.py"}
