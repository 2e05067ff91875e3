"""Runs over HTTP: who sees which calls, live and afterwards, and how they are stopped."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client

from toolkiln.model.identity import Privilege

from .served import until
from .serving import FILES, SOON, Paying, Serving, call, events, problem

NESTING = '''
from toolkiln import Context, tool


@tool(timeout=120)
def wait_twice(seconds: float, ctx: Context) -> str:
    """Wait, and wait again."""
    ctx.call("wait", seconds=0)
    ctx.call("wait", seconds=seconds)
    return "waited twice"
'''


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of its own, whose audit holds nothing else."""
    serving = Serving(tmp_path_factory.mktemp("runs"))
    serving.write({**FILES, "nesting.py": NESTING})
    with serving.running():
        yield serving


class Calling:
    """A call that is under way in a thread."""

    def __init__(self, client: Client, tool: str, **given: Any) -> None:
        self._client, self._tool, self._given = client, tool, given
        self._thread = threading.Thread(target=self._call)
        self._thread.start()
        query = {"tool": tool, "status": ["running", "pending"]}
        until(lambda: runs(client, **query))
        self.run = runs(client, **query)[0]

    def _call(self) -> None:
        self._result = call(self._client, self._tool, **self._given)

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result.json()


def client_of(
    api: Serving, user: str, *privileges: Privilege, **identity: Any
) -> AbstractContextManager[Client]:
    return api.client(api.session(user, *privileges, **identity))


def runs(client: Client, **query: Any) -> list[Any]:
    items: list[Any] = client.get("/v1/runs", params=query).json()["items"]
    return items


def paged(client: Client, **query: Any) -> list[Any]:
    """A list, part by part."""
    found: list[Any] = []
    while True:
        part = client.get("/v1/runs", params=query).json()
        found += part["items"]
        if part["next_cursor"] is None:
            return found
        query["cursor"] = part["next_cursor"]


class TestList:
    def test_calls_are_listed_for_their_callers_and_for_administrators(self, api: Serving) -> None:
        with (
            client_of(api, "ann") as ann,
            client_of(api, "bob") as bob,
            client_of(api, "cat", Privilege.ADMIN) as cat,
        ):
            call(ann, "double", number=1)
            call(bob, "double", number=13)
            (of_ann,), (of_bob,) = runs(ann), runs(bob)
            of_all = runs(cat, tool="dou*")
            one = runs(cat, user="bob", status="failed")
            foreign = bob.get(f"/v1/runs/{of_ann['id']}")
            stopped = bob.post(f"/v1/runs/{of_ann['id']}/cancel")

        assert [of_ann[key] for key in ("tool", "status", "caller")] == ["double", "ok", "ann"]
        assert [of_bob[key] for key in ("status", "code", "isolation")] == [
            "failed", "tool_error", "none",
        ]  # fmt: skip
        assert [run["caller"] for run in of_all] == ["bob", "ann"]
        assert one == [of_bob]
        assert (foreign.status_code, stopped.status_code) == (404, 404)
        assert of_ann["id"] not in foreign.json()["hint"]

    def test_an_agent_sees_its_own_calls_and_its_user_those_of_all_agents(
        self, api: Serving
    ) -> None:
        with (
            client_of(api, "dan") as dan,
            client_of(api, "dan", agent_id="one") as first,
            client_of(api, "dan", agent_id="two") as second,
        ):
            call(first, "double", number=1)
            seen = [[run["agent"] for run in runs(who)] for who in (dan, first, second)]

        assert seen == [["one"], ["one"], []]

    def test_a_refused_call_of_a_hidden_tool_is_not_shown_to_its_caller(self, api: Serving) -> None:
        with client_of(api, "eve", tools=["double"]) as eve, api.client() as operator:
            call(eve, "pay", amount=1)
            call(eve, "there_is_none")
            own, known = runs(eve), runs(operator, user="eve")

        assert own == []
        assert [run["code"] for run in known] == ["unknown_tool", "not_allowed"]

    def test_the_last_hour_is_counted_by_the_minute(self, api: Serving) -> None:
        with client_of(api, "gus") as gus, api.client() as operator:
            for number in (1, 2, 13):
                call(gus, "double", number=number)
            own = gus.get("/v1/statistics").json()["minutes"]
            call(operator, "double", number=3)
            of_all = operator.get("/v1/statistics").json()["minutes"]

        def total(minutes: Any, outcome: str) -> int:
            return sum(minute["outcomes"].get(outcome, 0) for minute in minutes)

        assert len(own) == 61
        assert (total(own, "ok"), total(own, "failed")) == (2, 1)
        assert total(of_all, "ok") > 2
        assert any(minute["slow"] >= minute["median"] > 0 for minute in own if minute["median"])


class TestOneRun:
    def test_a_run_shows_its_arguments_events_and_output(self, api: Serving) -> None:
        with client_of(api, "hal") as hal, client_of(api, "ida", Privilege.ADMIN) as ida:
            call(hal, "wait_twice", seconds=0)
            whole = runs(hal, tool="wait_twice")[0]
            found = hal.get(f"/v1/runs/{whole['id']}").json()
            inner = hal.get(f"/v1/runs/{found['children'][0]['id']}").json()
            recorded = ida.get(f"/v1/runs/{whole['id']}").json()

        assert (found["arguments"], found["text"]) == ('{"seconds": 0}', "waited twice")
        assert [child["tool"] for child in found["children"]] == ["wait", "wait"]
        assert found["isolation"] in ("A", "B", "C")
        assert [event["kind"] for event in inner["events"]][:2] == ["progress", "log"]
        assert "out" in [event["text"].strip() for event in inner["events"]]
        assert (inner["parent"], inner["progress"]) == (whole["id"], "waiting (1 of 2)")
        assert found["record"] is None
        assert recorded["record"]["call_id"] == whole["id"]

    def test_only_the_caller_gets_the_handle_of_the_rest_of_an_output(self, api: Serving) -> None:
        with client_of(api, "jim") as jim, api.client() as operator:
            call(jim, "long_text", characters=200_000)
            name = runs(jim)[0]["id"]
            own, foreign = (who.get(f"/v1/runs/{name}").json() for who in (jim, operator))
            rest = jim.get(f"/v1/outputs/{own['truncation']['handle']}", params={"offset": 199_990})

        assert len(own["text"]) <= 50_000
        assert rest.json()["text"] == "x" * 10
        assert foreign["truncation"] == {**own["truncation"], "handle": None}

    def test_a_running_call_is_stopped_with_its_nested_calls(self, api: Serving) -> None:
        with client_of(api, "kim") as kim, client_of(api, "leo", Privilege.ADMIN) as leo:
            calling = Calling(kim, "wait_twice", seconds=100)
            place = f"/v1/runs/{calling.run['id']}/cancel"
            until(lambda: [run["status"] for run in runs(kim, tool="wait")] == ["running", "ok"])
            stopped = leo.post(place)
            result = calling.result()
            again = leo.post(place)
            inner = runs(kim, tool="wait")[0]

        assert stopped.json()["status"] == result["status"] == "cancelled"
        assert result["error"]["message"] == "leo cancelled this call"
        assert problem(again) == (409, "too_late")
        assert (inner["status"], inner["parent"]) == ("cancelled", calling.run["id"])


def test_after_a_restart_runs_are_read_from_the_audit(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    serving.write({"waiting.py": FILES["waiting.py"], "nesting.py": NESTING})
    with serving.running(), serving.client() as operator:
        call(operator, "wait_twice", seconds=0)
        (before,) = runs(operator, tool="wait_twice")

    with serving.running(), serving.client() as operator, client_of(serving, "mia") as mia:
        call(operator, "double", number=1)
        found = operator.get(f"/v1/runs/{before['id']}").json()
        foreign = mia.get(f"/v1/runs/{before['id']}")
        late = operator.post(f"/v1/runs/{before['id']}/cancel")
        listed = paged(operator, limit=3)
        running = operator.get("/v1/runs", params={"status": "running", "limit": 1}).json()
        wrong = operator.get("/v1/runs", params={"cursor": "nonsense"})

    assert running == {"items": [], "next_cursor": None}
    assert [run["tool"] for run in listed] == ["double", "wait_twice", "wait", "wait"]
    assert listed[1] == {**before, "isolation": None, "progress": ""}
    assert (found["text"], len(found["children"])) == (None, 2)
    assert found["record"]["outcome"] == "ok"
    assert (foreign.status_code, late.status_code, wrong.status_code) == (404, 409, 422)


class TestLive:
    def test_callers_hear_of_their_own_runs(self, api: Serving) -> None:
        with (
            client_of(api, "nat") as nat,
            client_of(api, "nat") as caller,
            client_of(api, "oli") as oli,
            nat.stream("GET", "/v1/events") as answer,
        ):
            received = events(answer)
            next(received)
            call(oli, "double", number=1)
            calling = Calling(caller, "wait", seconds=100)
            first = next(received)
            caller.post(f"/v1/runs/{calling.run['id']}/cancel")
            last = next(one for one in received if one[1]["status"] != "running")
            calling.result()

        assert (first[0], first[1]["id"]) == ("run", calling.run["id"])
        assert (last[0], first[1]["status"], last[1]["status"]) == ("run", "running", "cancelled")
        assert last[1]["duration"] > 0

    def test_approvers_hear_how_many_calls_wait_for_them(self, api: Serving) -> None:
        with (
            client_of(api, "pam", Privilege.APPROVE) as pam,
            client_of(api, "pam", Privilege.APPROVE) as decider,
            client_of(api, "quin") as quin,
            pam.stream("GET", "/v1/events") as answer,
        ):
            received = events(answer)
            next(received)
            paying = Paying(api, "quin", 3)
            more = next(received)
            (pending,) = runs(quin, status="pending")
            shown = quin.get(f"/v1/runs/{pending['id']}").json()
            decider.post(f"{paying.place}/reject", json={})
            less = next(received)
            paying.result()

        assert (more, less) == (("approvals", {"pending": 1}), ("approvals", {"pending": 0}))
        assert shown["approval"] == paying.request["id"]
