"""One project gives the same outcomes and the same audit records through every door."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from toolkiln import Kiln
from toolkiln.model.audit import AuditFilter, ChainedRecord

from . import doors
from .conftest import SECRET
from .doors import BOUND, Door, Outcome, Project, Python

DOORS = {
    "cli": doors.command_line,
    "python": doors.python,
    "http": doors.http,
    "mcp-stdio": doors.mcp_stdio,
    "mcp-http": doors.mcp_http,
    "fleet": doors.fleet_front,
}
DOUBLE = '''def double(number: int) -> int:
    """Double a number."""
    return number * 2
'''
Records = list[tuple[str, str, str, str]]
"""Act, outcome, user and tool of each."""


@pytest.fixture(scope="module", params=DOORS)
def opened(
    request: pytest.FixtureRequest, template: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Door, Project]]:
    """A door, and a copy of the project that no other door uses."""
    folder = tmp_path_factory.mktemp("door") / "project"
    shutil.copytree(template.folder, folder)
    project = Project(folder, template.ann, template.bob)
    with DOORS[request.param](project) as door:
        yield door, project


@pytest.fixture
def door(opened: tuple[Door, Project]) -> Door:
    return opened[0]


@pytest.fixture
def project(opened: tuple[Door, Project]) -> Project:
    return opened[1]


@pytest.fixture
def audit(project: Project) -> Iterator["Audit"]:
    with Kiln(project.folder / "tools") as kiln:
        yield Audit(kiln)


class Audit:
    """What one test adds to the audit log."""

    def __init__(self, kiln: Kiln) -> None:
        self._kiln = kiln
        self._seq = max((entry.seq for entry in self._entries()), default=0)

    def holds(self, records: Records, *acts: str) -> bool:
        """Whether these are the records of their tools' calls, or other acts, the oldest first.

        A server writes records in batches: wait for them.
        """
        deadline = time.monotonic() + BOUND
        tools = {tool for *_, tool in records}
        while (found := self._records(acts or ("call",), tools)) != records:
            if time.monotonic() > deadline or len(found) > len(records):
                pytest.fail(f"recorded: {found}")
            time.sleep(0.05)
        return True

    def text(self) -> str:
        return str([entry.record for entry in self._entries()])

    def _records(self, acts: tuple[str, ...], tools: set[str]) -> Records:
        """Without what differs by nature."""
        return [
            (record.act, record.outcome, record.user, record.tool)
            for record in (entry.record for entry in self._entries() if entry.seq > self._seq)
            if record.act in acts and record.tool in tools and record.outcome != "started"
        ]

    def _entries(self) -> list[ChainedRecord]:
        return list(self._kiln.security.audit.export(AuditFilter()))


@contextmanager
def bob_decides(door: Door, project: Project, *, approve: bool) -> Iterator[None]:
    """Bob looks at what waits for a person, and decides about it."""
    done = threading.Event()
    is_front = isinstance(door, Python) and door.kiln.services.path is None

    def decide() -> None:
        with Kiln(project.folder / "tools") as own:
            kiln = door.kiln if is_front and isinstance(door, Python) else own
            bob = kiln.security.sessions.create("bob", privileges=["APPROVE"]).token
            while not done.wait(0.05):
                for approval in kiln.security.approvals.waiting():
                    answer = kiln.security.approve if approve else kiln.security.reject
                    answer(approval.id, session=bob)
                    return

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


CALLS: list[tuple[str, dict[str, Any], Outcome, str]] = [
    ("greet", {"name": "Ada"}, Outcome("Hello Ada"), "ok"),
    ("greet", {"nmae": "Ada"}, Outcome(code="invalid_arguments"), "invalid"),
    ("forbidden", {}, Outcome(code="unknown_tool"), "denied"),
    ("limited", {}, Outcome("done"), "ok"),
    ("limited", {}, Outcome(code="rate_limited"), "denied"),
    ("keyed", {}, Outcome("the key is [secret:TOKEN]"), "ok"),
    ("noted", {}, Outcome("pottery", state={"room": "pottery", "key": "[secret:TOKEN]"}), "ok"),
    ("ungranted", {}, Outcome(code="not_granted"), "denied"),
    ("broken", {}, Outcome(code="exception"), "exception"),
]
"""Tool, arguments, outcome of the call, and the outcome in its record."""


def test_each_call_has_its_outcome_and_its_record(door: Door, audit: Audit) -> None:
    outcomes = [(tool, door.call(tool, **arguments)) for tool, arguments, *_ in CALLS]

    assert outcomes == [(tool, outcome) for tool, _, outcome, _ in CALLS]
    assert audit.holds([("call", recorded, "ann", tool) for tool, *_, recorded in CALLS])
    assert SECRET not in audit.text()
    assert "pottery" not in audit.text()
    assert "forbidden" not in door.names()


def test_a_call_waits_for_the_decision_of_a_person(
    door: Door, project: Project, audit: Audit
) -> None:
    acts = ("call", "approve", "reject")
    approved = [("approve", "ok", "bob", "pay"), ("call", "ok", "ann", "pay")]
    rejected = [("reject", "ok", "bob", "pay"), ("call", "denied", "ann", "pay")]

    with bob_decides(door, project, approve=True):
        assert door.call("pay", amount=5) == Outcome(5)
    assert audit.holds(approved, *acts)

    with bob_decides(door, project, approve=False):
        assert door.call("pay", amount=6) == Outcome(code="rejected")
    assert audit.holds(approved + rejected, *acts)


def test_a_tool_that_ann_writes_is_a_proposal(door: Door, project: Project, audit: Audit) -> None:
    written = door.call("write_python_tool", tool_code=DOUBLE, tool_name="double")

    assert written.value["proposed"]
    assert door.call("double", number=2) == Outcome(code="unknown_tool")
    assert not (project.folder / "tools" / "double.py").exists()
    assert audit.holds([("propose", "ok", "ann", "double")], "propose", "admit")
