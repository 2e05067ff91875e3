"""Errors that a comment overrules: only a person may admit them."""

import json
from typing import Any

import pytest

from toolkiln import Kiln
from toolkiln.errors import InputError
from toolkiln.model.admission import AdmissionDecision, ToolDraft
from toolkiln.model.catalog import FileState
from toolkiln.operations import proposals
from toolkiln.operations.sources import SourceCall
from toolkiln.security.sessions import LOCAL_OPERATOR
from written_tools import write_tool

from .conftest import Forge, call_writer

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
SOURCE = f'''
EXAMPLE = "{SECRET}"  # toolkiln: ignore[literal-secret]


def shape() -> int:
    """Tell how long a key is.

    Examples:
        >>> shape()
        40
    """
    return len(EXAMPLE)
'''
PLAIN = SOURCE.replace("  # toolkiln: ignore[literal-secret]", "")
HARMLESS = PLAIN.replace(SECRET, "x" * 40)


def overruled(forge: Forge) -> Any:
    manifest = json.loads((forge.tools / "_manifest.json").read_bytes())
    return [entry.get("overruled") for entry in manifest["files"].values()]


async def proposal(kiln: Kiln, file: str = "shape.py") -> Any:
    request = proposals.ProposalFiles(files=(file,))
    (shown,) = await kiln.run_operation(proposals.get_proposals, request)
    return shown


async def admit(kiln: Kiln, file: str = "shape.py") -> Any:
    shown = await proposal(kiln, file)
    request = proposals.AdmitProposal(file=file, digest=shown.digest, base=shown.base)
    return await kiln.run_operation(proposals.admit, request)


async def test_an_agent_cannot_write_a_tool_with_an_overruled_error(forge: Forge) -> None:
    kiln = forge.kiln(authoring="admit")

    reply = await call_writer(kiln, SOURCE, "shape")
    authored = await write_tool(kiln, ToolDraft(SOURCE, "shape"))

    assert (reply["success"], authored.success) == (False, False)
    assert [problem["rule"] for problem in reply["validation_errors"]] == ["literal-secret"]
    assert "overruled in line 2" in authored.error
    assert forge.files() == {}


async def test_a_proposal_with_an_overruled_error_lists_it_and_is_not_served(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose", probes=False)

    refused = await call_writer(kiln, PLAIN, "shape")
    files = forge.files()
    reply = await call_writer(kiln, SOURCE, "shape")
    shown = await proposal(kiln)

    assert (refused["success"], files) == (False, {})
    assert (reply["success"], reply["proposed"]) == (True, True), reply
    warned = [w["rule"] for w in reply["warnings"] if "overruled" in w["message"]]
    assert warned == ["literal-secret"]
    assert [f.rule for f in shown.findings if f.overruled] == ["literal-secret"]
    assert forge.served() == {}


async def test_a_person_admits_it_and_the_manifest_says_who_and_what(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose", probes=False)
    await call_writer(kiln, SOURCE, "shape")

    reply = await admit(kiln)
    after = forge.kiln()
    [status] = after.catalog.statuses()
    [version] = after.services.admissions.history("shape")

    who = kiln.security.caller(LOCAL_OPERATOR).who
    assert reply.success, reply.error
    assert overruled(forge) == [
        [{"rule": "literal-secret", "file": "shape.py", "line": 2, "by": who}]
    ]
    assert status.state is FileState.ADMITTED
    assert version.note == "overruled: literal-secret (line 2)"
    assert (await after.call("shape")).value == 40


async def test_each_version_shows_its_overruled_errors_again(forge: Forge) -> None:
    forge.put("shape.py", SOURCE)
    kiln = forge.kiln(probes=False)
    await admit(kiln)
    forge.put("shape.py", SOURCE.replace("Tell how", "Say how"))

    shown = await proposal(kiln)
    reply = await admit(kiln)

    assert [f.rule for f in shown.findings] == ["literal-secret"]
    assert reply.success


async def test_a_version_without_overruled_errors_records_none(forge: Forge) -> None:
    forge.put("shape.py", SOURCE)
    kiln = forge.kiln(probes=False)
    await admit(kiln)
    forge.put("shape.py", HARMLESS)
    await admit(kiln)

    assert overruled(forge) == [None]
    assert "overruled" not in (forge.tools / "_manifest.json").read_text()
    assert forge.kiln().catalog.manifest.files["shape.py"].overruled == ()

    kiln.services.admissions.rollback("shape", "1", AdmissionDecision("bob"))

    assert [one["by"] for [one] in overruled(forge)] == ["bob"]


async def test_an_example_that_fails_can_be_overruled_by_a_person_alone(forge: Forge) -> None:
    wrong = SOURCE.replace("        40\n", "        41\n")
    unmarked = wrong.replace('    """\n', '    """  # toolkiln: ignore[example-fails]\n')
    agent = await call_writer(forge.kiln(authoring="admit"), unmarked.replace(SECRET, "x"), "shape")
    forge.put("shape.py", unmarked)
    kiln = forge.kiln()

    reply = await admit(kiln)
    forge.put("other.py", wrong.replace("shape", "other"))
    other = await admit(kiln, "other.py")

    assert agent["success"] is False
    assert [problem["rule"] for problem in agent["validation_errors"]] == ["example-fails"]
    assert reply.success, reply.error
    assert [one["rule"] for one in overruled(forge)[0]] == ["example-fails", "literal-secret"]
    assert (other.success, other.validation_errors[0].rule) == (False, "example-fails")


async def test_a_rule_that_the_operator_refuses_cannot_be_overruled(forge: Forge) -> None:
    forge.put("shape.py", SOURCE)

    reply = await admit(forge.kiln(refuse=["literal-secret"]))

    assert (reply.success, reply.validation_errors[0].rule) == (False, "literal-secret")


async def test_a_source_that_no_person_admits_is_not_run_with_such_an_error(forge: Forge) -> None:
    forge.tools.mkdir()
    with pytest.raises(InputError, match="cannot be run"):
        await forge.kiln().services.prepare_source(SourceCall(SOURCE))
