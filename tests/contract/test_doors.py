"""One project gives the same outcomes and the same audit records through every door."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from toolkiln import Kiln

from . import doors
from .conftest import SECRET
from .doors import Door, Outcome, Project, Python

DOORS = {
    "cli": doors.command_line,
    "python": doors.python,
    "http": doors.http,
    "mcp-stdio": doors.mcp_stdio,
    "mcp-http": doors.mcp_http,
    "fleet": doors.fleet_front,
}
DOUBLE = '''def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return number * 2
'''
Open = Callable[[Project], AbstractContextManager[Door]]


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, project: Project) -> Iterator[Door]:
    with DOORS[request.param](project) as opened:
        yield opened


@contextmanager
def bob_decides(door: Door, project: Project, *, approve: bool) -> Iterator[None]:
    """Bob looks at what waits for a person, and decides about it."""
    done = threading.Event()
    is_front = isinstance(door, Python) and door.kiln.path is None

    def decide() -> None:
        with Kiln(project.folder / "tools") as own:
            kiln = door.kiln if is_front and isinstance(door, Python) else own
            bob = kiln.sessions.create("bob", privileges=["APPROVE"]).token
            while not done.wait(0.05):
                for approval in kiln.guarding.approvals.waiting():
                    answer = kiln.guarding.approve if approve else kiln.guarding.reject
                    answer(approval.id, session=bob)
                    return

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def audit(project: Project, *acts: str) -> list[tuple[str, ...]]:
    """The records of what was done, the oldest first, without what differs by nature."""
    records = json.loads(project.run("audit", "list", "--json").stdout)
    wanted = ("act", "outcome", "user", "tool")
    return [
        tuple(record[name] for name in wanted)
        for record in reversed(records)
        if record["act"] in (acts or ("call",))
        and record["outcome"] != "started"
        and record["tool"] != "await_task"  # of clients that cannot ask their person
    ]


def test_a_tool_answers(door: Door, project: Project) -> None:
    assert door.call("greet", name="Ada") == Outcome("Hello Ada")
    assert audit(project) == [("call", "ok", "ann", "greet")]


def test_a_denied_tool_is_neither_shown_nor_run(door: Door, project: Project) -> None:
    assert "forbidden" not in door.names()
    assert door.call("forbidden") == Outcome(code="unknown_tool")
    assert audit(project) == [("call", "denied", "ann", "forbidden")]


def test_wrong_arguments_are_refused(door: Door, project: Project) -> None:
    assert door.call("greet", nmae="Ada") == Outcome(code="invalid_arguments")
    assert audit(project) == [("call", "invalid", "ann", "greet")]


def test_a_rate_holds(door: Door, project: Project) -> None:
    assert door.call("limited") == Outcome("done")
    assert door.call("limited") == Outcome(code="rate_limited")
    assert [record[1] for record in audit(project)] == ["ok", "denied"]


def test_a_granted_secret_is_used_and_masked(door: Door, project: Project) -> None:
    outcome = door.call("keyed")

    assert outcome == Outcome("the key is [secret:TOKEN]")
    assert SECRET not in project.run("audit", "export").stdout
    assert audit(project) == [("call", "ok", "ann", "keyed")]


def test_a_secret_that_is_not_granted_refuses_the_call(door: Door, project: Project) -> None:
    assert door.call("ungranted") == Outcome(code="not_granted")
    assert audit(project) == [("call", "denied", "ann", "ungranted")]


@pytest.mark.parametrize(
    ("approve", "outcome", "records"),
    [
        (True, Outcome(5), [("approve", "ok", "bob", "pay"), ("call", "ok", "ann", "pay")]),
        (
            False,
            Outcome(code="rejected"),
            [("reject", "ok", "bob", "pay"), ("call", "denied", "ann", "pay")],
        ),
    ],
    ids=["approved", "rejected"],
)
def test_a_call_waits_for_a_person(
    door: Door,
    project: Project,
    approve: bool,
    outcome: Outcome,
    records: list[tuple[str, ...]],
) -> None:
    with bob_decides(door, project, approve=approve):
        assert door.call("pay", amount=5) == outcome

    assert audit(project, "call", "approve", "reject") == records


def test_what_ann_writes_is_a_proposal(door: Door, project: Project) -> None:
    written = door.call("write_python_tool", tool_code=DOUBLE, tool_name="double")

    assert written.value["proposed"]
    assert door.call("double", number=2) == Outcome(code="unknown_tool")
    assert not (project.folder / "tools" / "double.py").exists()
    assert audit(project, "propose", "admit")[1:] == [("propose", "ok", "ann", "double")]


def test_the_text_of_exceptions_is_not_shown(door: Door, project: Project) -> None:
    assert door.call("broken") == Outcome(code="exception")
    assert audit(project) == [("call", "exception", "ann", "broken")]
