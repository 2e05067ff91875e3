"""Runs over HTTP: who sees which calls, live and afterwards, and how they are stopped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolkiln.model.identity import Privilege

from .served import until
from .serving import FILES, SOON, Serving
from .test_api_calls import arguments, events
from .test_api_guarding import Paying

NESTING = '''
from toolkiln import Context, tool


@tool(timeout=120)
def wait_twice(seconds: float, ctx: Context) -> str:
    """Wait, and wait again.

    Args:
        seconds: How long, each time.
    """
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

    def __init__(self, client: httpx2.Client, tool: str, **given: Any) -> None:
        self._client, self._place, self._given = client, f"/v1/tools/{tool}/call", given
        self._thread = threading.Thread(target=self._call)
        self._thread.start()
        found: list[Any] = []

        def is_running() -> bool:
            query = {"tool": tool, "status": ["running", "pending"]}
            found[:] = client.get("/v1/runs", params=query).json()["items"]
            return bool(found)

        until(is_running)
        self.run = found[0]

    def _call(self) -> None:
        self._result = self._client.post(self._place, json=arguments(**self._given))

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result.json()


@contextmanager
def somebody(api: Serving, user: str, *privileges: Privilege, **identity: Any) -> Iterator[Any]:
    with api.client(api.session(user, *privileges, **identity)) as client:
        yield client


def runs(client: httpx2.Client, **query: Any) -> list[Any]:
    items: list[Any] = client.get("/v1/runs", params=query).json()["items"]
    return items


def paged(client: httpx2.Client, **query: Any) -> list[Any]:
    """A list, part by part."""
    found: list[Any] = []
    while True:
        part = client.get("/v1/runs", params=query).json()
        found += part["items"]
        if part["next_cursor"] is None:
            return found
        query["cursor"] = part["next_cursor"]


class TestList:
    def test_calls_are_listed_for_whom_they_were_made_and_for_administrators(
        self, api: Serving
    ) -> None:
        with (
            somebody(api, "ann") as ann,
            somebody(api, "bob") as bob,
            somebody(api, "cat", Privilege.ADMIN) as cat,
        ):
            ann.post("/v1/tools/double/call", json=arguments(number=1))
            bob.post("/v1/tools/double/call", json=arguments(number=13))
            (of_ann,), (of_bob,) = runs(ann), runs(bob)
            of_all = runs(cat, tool="dou*")
            one = runs(cat, user="bob", status="failed")
            foreign = bob.get(f"/v1/runs/{of_ann['id']}")
            stopped = bob.post(f"/v1/runs/{of_ann['id']}/cancel")

        assert (of_ann["tool"], of_ann["status"], of_ann["caller"]) == ("double", "ok", "ann")
        assert (of_bob["status"], of_bob["code"], of_bob["isolation"]) == (
            "failed", "tool_error", "none",
        )  # fmt: skip
        assert [run["caller"] for run in of_all] == ["bob", "ann"]
        assert one == [of_bob]
        assert (foreign.status_code, stopped.status_code) == (404, 404)
        assert of_ann["id"] not in foreign.json()["hint"]

    def test_an_agent_sees_its_own_calls_and_its_user_those_of_all_agents(
        self, api: Serving
    ) -> None:
        with (
            somebody(api, "dan") as dan,
            somebody(api, "dan", agent_id="one") as first,
            somebody(api, "dan", agent_id="two") as second,
        ):
            first.post("/v1/tools/double/call", json=arguments(number=1))
            seen = [[run["agent"] for run in runs(who)] for who in (dan, first, second)]

        assert seen == [["one"], ["one"], []]

    def test_a_refused_call_of_a_hidden_tool_tells_its_caller_nothing(self, api: Serving) -> None:
        with somebody(api, "eve", tools=["double"]) as eve, api.client() as operator:
            eve.post("/v1/tools/pay/call", json=arguments(amount=1))
            eve.post("/v1/tools/there_is_none/call", json={})
            own, known = runs(eve), runs(operator, user="eve")

        assert own == []
        assert [run["code"] for run in known] == ["unknown_tool", "not_allowed"]

    def test_the_last_hour_is_counted_by_the_minute(self, api: Serving) -> None:
        with somebody(api, "gus") as gus:
            for number in (1, 2, 13):
                gus.post("/v1/tools/double/call", json=arguments(number=number))
            own = gus.get("/v1/statistics").json()
        with api.client() as operator:
            operator.post("/v1/tools/double/call", json=arguments(number=3))
            of_all = operator.get("/v1/statistics").json()

        def total(found: Any, outcome: str) -> int:
            return sum(minute["outcomes"].get(outcome, 0) for minute in found["minutes"])

        assert len(own["minutes"]) == 61
        assert (total(own, "ok"), total(own, "failed")) == (2, 1)
        assert total(of_all, "ok") > 2
        assert any(
            minute["slow"] >= minute["median"] > 0 for minute in own["minutes"] if minute["median"]
        )


class TestOneRun:
    def test_a_run_shows_what_it_was_given_told_and_gave(self, api: Serving) -> None:
        with somebody(api, "hal") as hal, somebody(api, "ida", Privilege.ADMIN) as ida:
            hal.post("/v1/tools/wait_twice/call", json=arguments(seconds=0))
            whole = runs(hal, tool="wait_twice")[0]
            found = hal.get(f"/v1/runs/{whole['id']}").json()
            inner = hal.get(f"/v1/runs/{found['children'][0]['id']}").json()
            recorded = ida.get(f"/v1/runs/{whole['id']}").json()

        assert (found["arguments"], found["text"]) == ('{"seconds": 0}', "waited twice")
        assert [child["tool"] for child in found["children"]] == ["wait", "wait"]
        assert found["isolation"] in ("A", "B", "C")
        assert [told["kind"] for told in inner["events"]][:2] == ["progress", "log"]
        assert "out" in [told["text"].strip() for told in inner["events"]]
        assert (inner["parent"], inner["progress"]) == (whole["id"], "waiting (1 of 2)")
        assert found["record"] is None
        assert recorded["record"]["call_id"] == whole["id"]

    def test_only_whose_output_it_is_gets_the_handle_of_the_rest(self, api: Serving) -> None:
        with somebody(api, "jim") as jim, api.client() as operator:
            jim.post("/v1/tools/long_text/call", json=arguments(characters=200_000))
            name = runs(jim)[0]["id"]
            own, foreign = (who.get(f"/v1/runs/{name}").json() for who in (jim, operator))
            rest = jim.get(f"/v1/outputs/{own['truncation']['handle']}", params={"offset": 199_990})

        assert len(own["text"]) <= 50_000
        assert rest.json()["text"] == "x" * 10
        assert foreign["truncation"] == {**own["truncation"], "handle": None}

    def test_a_running_call_is_stopped_for_its_caller_too(self, api: Serving) -> None:
        with (
            somebody(api, "kim") as kim,
            somebody(api, "leo", Privilege.ADMIN) as leo,
        ):
            calling = Calling(kim, "wait_twice", seconds=100)
            until(lambda: [run["status"] for run in runs(kim, tool="wait")] == ["running", "ok"])
            stopped = leo.post(f"/v1/runs/{calling.run['id']}/cancel")
            result = calling.result()
            again = leo.post(f"/v1/runs/{calling.run['id']}/cancel")
            inner = runs(kim, tool="wait")[0]

        assert stopped.json()["status"] == "cancelled"
        assert (result["status"], result["error"]["message"]) == (
            "cancelled", "leo cancelled this call",
        )  # fmt: skip
        assert (again.status_code, again.json()["code"]) == (409, "too_late")
        assert (inner["status"], inner["parent"]) == ("cancelled", calling.run["id"])


def test_after_a_restart_the_audit_still_knows_what_ran(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    serving.write({"waiting.py": FILES["waiting.py"], "nesting.py": NESTING})
    with serving.running(), serving.client() as operator:
        operator.post("/v1/tools/wait_twice/call", json=arguments(seconds=0))
        (before,) = runs(operator, tool="wait_twice")

    with serving.running(), serving.client() as operator, somebody(serving, "mia") as mia:
        operator.post("/v1/tools/double/call", json=arguments(number=1))
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
    def test_runs_are_told_to_whom_they_were_made_for(self, api: Serving) -> None:
        with (
            somebody(api, "nat") as nat,
            somebody(api, "oli") as oli,
            nat.stream("GET", "/v1/events") as answer,
        ):
            told = events(answer)
            next(told)
            oli.post("/v1/tools/double/call", json=arguments(number=1))
            with somebody(api, "nat") as caller:
                calling = Calling(caller, "wait", seconds=100)
                first = next(told)
                caller.post(f"/v1/runs/{calling.run['id']}/cancel")
                last = next(one for one in told if one[1]["status"] != "running")
            calling.result()

        assert (first[0], first[1]["id"], first[1]["status"]) == (
            "run", calling.run["id"], "running",
        )  # fmt: skip
        assert (last[0], last[1]["status"]) == ("run", "cancelled")
        assert last[1]["duration"] > 0

    def test_what_waits_for_a_person_is_told_to_those_who_may_decide(self, api: Serving) -> None:
        with (
            somebody(api, "pam", Privilege.APPROVE) as pam,
            pam.stream("GET", "/v1/events") as answer,
        ):
            told = events(answer)
            next(told)
            paying = Paying(api, "quin", 3)
            more = next(told)
            with somebody(api, "quin") as quin:
                (pending,) = runs(quin, status="pending")
                shown = quin.get(f"/v1/runs/{pending['id']}").json()
            with somebody(api, "pam", Privilege.APPROVE) as decider:
                decider.post(f"/v1/approvals/{paying.request['id']}/reject", json={})
            less = next(told)
            paying.result()

        assert (more, less) == (("approvals", {"pending": 1}), ("approvals", {"pending": 0}))
        assert shown["approval"] == paying.request["id"]
