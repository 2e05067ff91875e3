"""Files of other frameworks, unmodified: imported, checked, admitted, listed and called."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from compat import foreign_files
from surfaces.conftest import Shell
from toolkiln.config import Settings
from toolkiln.kiln import Kiln

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Use(NamedTuple):
    """A call of a foreign tool, and what it gives."""

    tool: str
    arguments: dict[str, Any]
    value: Any


USES = {
    "atloop": [Use("count_lines", {"text": "a\nb"}, {"stdout": "2"})],
    "agno": [Use("cups_to_millilitres", {"cups": 2}, "480 ml")],
    "CrewAI": [
        Use("title_writer", {"heading": "a kiln"}, "A Kiln"),
        Use("heading_length", {"heading": "a kiln"}, 6),
    ],
    "FastMCP": [Use("add_minutes", {"time": "23:50", "minutes": 20}, "00:10")],
    "LangChain": [
        Use("reverse_text", {"text": "kiln"}, "nlik"),
        Use("count_vowels", {"text": "Oven"}, 2),
    ],
    "Letta": [Use("note_topic", {"topic": "clay"}, "glaze, clay")],
    "Open WebUI": [Use("write_entry", {"mood": "calm"}, "Noted: calm (42)")],
    "Stargazer": [Use("roll_dice", {"pips": [2, 5]}, "7 for 42")],
    "smolagents": [
        Use("find_ending", {"word": "kiln"}, "iln"),
        Use("shout", {"word": "kiln"}, "KILN"),
    ],
    "Suna": [
        Use("add_book", {"title": "Clay", "pages": 90}, '{"title": "Clay", "pages": 90}'),
        Use("count_words", {"text": "one two"}, "2 words"),
    ],
}
STATE = {"memory": {"blocks": [{"label": "topics", "value": "glaze"}]}}
"""What the agent of Letta's tool remembers."""
DIFFERENCES = {
    "Letta/note_topic.py": [
        "agent_state is that of the session; its changes come back in the result, to be kept"
    ]
}
"""What the report of an import says about the files."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A project, and a folder of each framework's files beside it."""
    folder = tmp_path_factory.mktemp("project")
    for framework in USES:
        files = getattr(foreign_files, framework.upper().replace(" ", "_"))
        (folder / "old" / framework).mkdir(parents=True)
        for name, source in files.items():
            (folder / "old" / framework / name).write_text(dedent(source), "utf-8")
    return Shell(folder, {"TOOLKILN_DEV": "0"})


@pytest.fixture(scope="module")
def imported(shell: Shell) -> list[dict[str, Any]]:
    done = shell.invoke("import", "old", "--json")
    assert done.code == 0, done
    files: list[dict[str, Any]] = done.json()["files"]
    return files


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kiln(shell: Shell, imported: list[dict[str, Any]]) -> AsyncIterator[Kiln]:
    """A Kiln over the files once they are admitted."""
    admitted = shell.run("admit", "--yes")
    assert admitted.code == 0, admitted
    settings = Settings(state=shell.folder / "state", environ=dict(os.environ))
    async with Kiln(shell.folder / "tools", settings=settings) as kiln:
        yield kiln


async def test_each_file_is_imported_as_it_is_for_its_framework(
    shell: Shell, imported: list[dict[str, Any]]
) -> None:
    frameworks = {row["framework"] for row in imported}

    assert frameworks == set(USES)
    for row in imported:
        copy = shell.folder / "tools" / row["file"]
        assert copy.read_bytes() == Path(shell.folder / row["source"]).read_bytes()
        assert [item["message"] for item in row["differences"]] == DIFFERENCES.get(row["file"], [])


async def test_the_files_pass_the_check(shell: Shell, imported: list[dict[str, Any]]) -> None:
    done = shell.invoke("check", "tools")

    assert done.code == 0, done.out


async def test_the_tools_are_listed(shell: Shell, kiln: Kiln) -> None:
    listed = {item["name"] for item in shell.invoke("list", "--all", "--json").json()}

    assert listed == {use.tool for uses in USES.values() for use in uses}


async def test_the_tools_are_called_unmodified(kiln: Kiln) -> None:
    session = kiln.security.sessions.create("42", agent_state=STATE).token
    failures = []
    for framework, uses in USES.items():
        for use in uses:
            result = await kiln.call(use.tool, use.arguments, session=session)
            value = result.value
            if isinstance(use.value, dict) and isinstance(value, dict):
                value = {name: value.get(name) for name in use.value}
            if value != use.value:
                failures.append((framework, use, result.value, result.error))

    assert failures == []
