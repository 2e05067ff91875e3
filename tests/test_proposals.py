"""What callers write is a proposal unless they hold WRITE_TOOLS."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from preloaded import command
from toolkiln import Kiln
from toolkiln.catalog import manifest as manifests
from toolkiln.catalog.manifest import ManifestFile
from toolkiln.errors import NotAllowed
from toolkiln.model.call import Result
from toolkiln.model.catalog import Admission
from toolkiln.operations.sources import SourceCall

DOUBLE = '''def {name}(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return number * {factor}
'''


def source(name: str, factor: int = 2) -> str:
    return DOUBLE.format(name=name, factor=factor)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which the test works in."""
    (tmp_path / "tools").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def toolkiln(*arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def write(kiln: Kiln, name: str, session: str, code: str = "", **more: Any) -> dict[str, Any]:
    """Write a tool as an agent does; the reply."""
    arguments = {"tool_code": code or source(name), "tool_name": name, **more}
    result = kiln.call_sync("write_python_tool", arguments, session=session)
    assert isinstance(result, Result)
    return result.value if isinstance(result.value, dict) else {"error": result.error}


def agent(kiln: Kiln, name: str = "bot", *privileges: str) -> str:
    return kiln.security.sessions.create(name, privileges=privileges).token


def test_a_caller_without_privileges_proposes(project: Path) -> None:
    with Kiln("tools") as kiln:
        reply = write(kiln, "double", bot := agent(kiln))
        refused = kiln.call_sync("double", {"number": 4}, session=bot)

    assert (reply["success"], reply["proposed"], reply["functions_registered"]) == (True, True, [])
    assert refused.error.code in ("not_admitted", "unknown_tool")
    assert not (project / "tools" / "double.py").exists()
    assert "double.py  by bot  double" in toolkiln("status", status=1)


@pytest.mark.parametrize("privilege", ["WRITE_TOOLS", "UNSANDBOXED_EXEC"])
def test_a_caller_who_may_write_tools_has_them_served_at_once(
    project: Path, privilege: str
) -> None:
    with Kiln("tools") as kiln:
        reply = write(kiln, "double", bot := agent(kiln, "bot", privilege))
        called = kiln.call_sync("double", {"number": 4}, session=bot)

    assert (reply["proposed"], called.value) == (False, 8)


def test_with_propose_every_write_is_a_proposal(project: Path) -> None:
    (project / "toolkiln.toml").write_text('authoring = "propose"')

    with Kiln("tools") as kiln:
        two = {"tool_code": source("two"), "tool_name": "two"}
        replies = [
            write(kiln, "one", agent(kiln, "bot", "WRITE_TOOLS")),
            kiln.call_sync("write_python_tool", two).value,
        ]

    assert [reply["proposed"] for reply in replies] == [True, True]


def test_a_person_admits_a_proposal_that_is_not_on_disk(project: Path) -> None:
    with Kiln("tools") as kiln:
        write(kiln, "double", agent(kiln))

    refused = toolkiln("call", "double", "number=4", status=2)
    shown = toolkiln("admit", "--no-probe", "tools/double.py")

    assert "tools/double.py is proposed" in refused
    assert "+def double(number: int) -> int:" in shown
    assert "admitted: tools/double.py v1: double" in shown
    assert (project / "tools" / "double.py").read_text() == source("double")
    assert toolkiln("call", "double", "number=4") == "8\n"
    assert toolkiln("status").startswith("admitted")


def test_a_rejected_proposal_is_gone_and_cannot_come_back(project: Path) -> None:
    with Kiln("tools") as kiln:
        bot = agent(kiln)
        write(kiln, "double", bot)
        toolkiln("reject", "tools/double.py")
        again = write(kiln, "double", bot)
        other = write(kiln, "double", bot, source("double", 3))

    assert "rejected" in str(again)
    assert other["proposed"]


def test_one_caller_does_not_replace_the_proposal_of_another(project: Path) -> None:
    with Kiln("tools") as kiln:
        write(kiln, "double", agent(kiln, "ann"))
        other = write(kiln, "double", agent(kiln, "bob"), source("double", 3))
        own = write(kiln, "double", agent(kiln, "ann"), source("double", 4))

    assert "another caller" in str(other)
    assert own["proposed"]


def test_proposals_of_one_caller_are_bounded(project: Path) -> None:
    (project / "toolkiln.toml").write_text("proposals_per_caller = 2")

    with Kiln("tools") as kiln:
        replies = [write(kiln, name, agent(kiln, "ann")) for name in ("one", "two", "three")]
        other = write(kiln, "four", agent(kiln, "bob"))
        again = write(kiln, "two", agent(kiln, "ann"), source("two", 5))

    assert [bool(reply.get("proposed")) for reply in replies] == [True, True, False]
    assert "proposals_per_caller" in str(replies[2])
    assert other["proposed"]
    assert again["proposed"]


def test_packages_of_a_proposal_are_not_installed(project: Path) -> None:
    code = '# /// script\n# dependencies = ["no-such-package-anywhere"]\n# ///\n' + source("double")

    with Kiln("tools") as kiln:
        reply = write(kiln, "double", agent(kiln), code)

    assert reply["proposed"]
    assert "probe" not in [stage["stage"] for stage in reply["stages"]]


def test_a_caller_whom_the_rules_deny_the_tool_proposes_nothing(project: Path) -> None:
    (project / "toolkiln.toml").write_text('policy = "deny"')

    with Kiln("tools") as kiln:
        reply = write(kiln, "double", agent(kiln))

    assert "proposed" not in reply
    assert not (project / "tools" / "_manifest.json").exists()


def test_running_a_source_takes_write_tools(project: Path) -> None:
    with Kiln("tools") as kiln:
        wanted = SourceCall(source=source("double"), arguments={"number": 1}, session=agent(kiln))
        with pytest.raises(NotAllowed, match="WRITE_TOOLS"):
            kiln.services.wait(kiln.services.prepare_source(wanted))


def test_what_dev_or_an_agent_admitted_earlier_is_reported_until_confirmed(project: Path) -> None:
    for name in ("one", "two", "three"):
        (project / "tools" / f"{name}.py").write_text(source(name))
    toolkiln("admit", "--yes", "--no-probe")
    _as_before(project / "tools", {"one.py": "dev", "two.py": "mcp:root", "three.py": "ann"})

    listed = toolkiln("status", status=1)
    served = toolkiln("call", "one", "number=1")
    toolkiln("admit", "--yes", "--no-probe", "tools/one.py")
    toolkiln("reject", "tools/two.py")
    after = toolkiln("status", "--json")

    assert "2 files are served in a version that `toolkiln dev` or an agent admitted" in listed
    assert served == "2\n"
    assert [entry["state"] for entry in json.loads(after)] == ["admitted", "admitted", "rejected"]


def _as_before(tools: Path, by: dict[str, str]) -> None:
    """A manifest as earlier versions wrote it."""
    found = ManifestFile(tools, "").read()
    files: dict[str, Admission] = {
        file: entry.model_copy(update={"admitted_by": by[file], "reviewed": None})
        for file, entry in found.files.items()
    }
    old = found.model_copy(update={"files": files})
    (tools / manifests.MANIFEST).write_bytes(manifests.encode(old))
