"""Calls over HTTP: how they end, events, batches, tasks, keys, and clients that go away."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client

from tables import each_row
from toolkiln.define import Context, tool

from .served import until
from .serving import EVENTS, WAITING, Serving, call, events, problem

DOUBLE = "/v1/tools/double/call"
WAIT = "/v1/tools/wait/call"
KEY = {"idempotency-key": "d"}
DELIVER = '''
import time

from toolkiln import Context, tool


@tool(timeout=600)
def deliver(seconds: float, ctx: Context) -> str:
    """Send a message, a file and a tool, and wait."""
    ctx.send_message({"card": [1]})
    (ctx.workdir / "a.csv").write_text("1,2\\n")
    ctx.send_file("a.csv")
    ctx.inject_tools("double")
    ctx.send_message("last")
    time.sleep(seconds)
    return "delivered"
'''


@tool
async def burst(ctx: Context, size: int) -> str:
    """Send 3,000 messages before anybody can read one."""
    for _ in range(3_000):
        ctx.send_message("x" * size)
    return "sent"


class Bursting(Serving):
    """A server with that function."""

    functions = (burst,)


OWN = {"call_id": "", "timing": {}}
"""What no two results have in common."""


def in_background(**arguments: Any) -> dict[str, Any]:
    """The body of a call that goes on without its client."""
    return {"arguments": arguments, "background": True}


def outcomes(operator: Client, **query: str) -> list[str]:
    """How calls ended, newest first, as the audit has it."""
    records = operator.get("/v1/audit", params={"act": "call", **query}).json()["items"]
    return [record["outcome"] for record in records]


class TestOneCall:
    def test_every_end_of_a_tool_is_a_result_and_no_error_of_http(self, operator: Client) -> None:
        right = call(operator, "double", number=21)
        refused = call(operator, "double", number=13)
        raised = call(operator, "fail")
        wrong = call(operator, "double", nmber=1)
        outdated = operator.post(DOUBLE, json={"arguments": {"number": 1}, "digest": "0" * 64})

        answers = [right, refused, raised, wrong, outdated]
        assert {answer.status_code for answer in answers} == {200}
        assert (right.json()["status"], right.json()["value"]) == ("ok", 42)
        assert refused.json()["error"]["message"] == "unlucky"
        error = raised.json()["error"]
        assert (error["type"], error["traceback"]) == ("ValueError", None)
        assert error["message"] == "ValueError in line 4 of failing.py"
        assert wrong.json()["status"] == outdated.json()["status"] == "invalid"
        assert wrong.json()["error"]["code"] == "invalid_arguments"

    def test_a_forbidden_tool_is_answered_like_an_unknown_one(self, api: Serving) -> None:
        digest = {"digest": "0" * 64}
        with api.client(api.session("eve", tools=["double", "call_tool"])) as eve:
            for body, headers in (({}, {}), ({}, EVENTS), (digest, {})):
                hidden, absent = (
                    eve.post(f"/v1/tools/{name}/call", json=body, headers=headers)
                    for name in ("pay", "payy")
                )
                near = eve.post("/v1/tools/doubl/call", json=body)

                assert problem(absent) == (404, "unknown_tool")
                assert hidden.text == absent.text.replace("payy", "pay")
                assert "double" in near.json()["hint"]
            nested, no_tool = (call(eve, "call_tool", name=name).json() for name in ("pay", "pbb"))
            for more in ({}, digest):
                calls = [{"tool": name, "arguments": {"amount": 1}, **more}
                         for name in ("pay", "pbb")]  # fmt: skip
                kept, missing = eve.post("/v1/calls", json={"calls": calls}).json()["results"]
                replaced = json.loads(json.dumps(missing).replace("pbb", "pay"))

                assert replaced | OWN == kept | OWN

        assert "there is no tool named 'pbb'" in no_tool["text"]
        assert nested["text"] == no_tool["text"].replace("pbb", "pay")

    def test_a_hint_does_not_name_a_forbidden_tool(self, api: Serving) -> None:
        with api.client(api.session("eve", tools=["pays", "doubl"])) as eve:
            hidden, absent = call(eve, "double"), call(eve, "doubly")

        assert hidden.text == absent.text.replace("doubly", "double")

    def test_refused_calls_are_recorded(self, api: Serving, operator: Client) -> None:
        with api.client(api.session("mallory", tools=["double"])) as mallory:
            for headers in ({}, EVENTS):
                call(mallory, "pay", headers, amount=1)

        assert outcomes(operator, user="mallory") == ["denied", "denied"]

    def test_arguments_are_taken_as_a_provider_sent_them(self, operator: Client) -> None:
        sent = {"arguments": {"message": None}, "provider": "openai-strict"}

        answer = operator.post("/v1/tools/fail/call", json=sent)

        assert answer.json()["error"]["code"] == "exception"  # null meant the default

    def test_a_call_that_comes_too_early_learns_when_to_try_again(self, tmp_path: Path) -> None:
        serving = Serving(tmp_path, rates={"double": {"caller": "1/hour"}})
        serving.write({"waiting.py": WAITING})
        with serving.running(), serving.client() as operator:
            call(operator, "double", number=1)
            answer = call(operator, "double", number=1)

        assert problem(answer) == (429, "rate_limited")
        assert 3500 < int(answer.headers["retry-after"]) <= 3600


class TestEvents:
    def test_events_come_in_order_and_the_result_last(self, operator: Client) -> None:
        body = {"arguments": {"seconds": 0}}
        with operator.stream("POST", WAIT, json=body, headers=EVENTS) as answer:
            received = list(events(answer))

        assert answer.headers["content-type"] == "text/event-stream"
        assert [name for name, _ in received] == ["progress", "log", "stdout", "result"]
        assert received[0][1]["text"] == "waiting"
        assert received[-1][1]["value"] == "waited"

    def test_an_event_comes_before_its_call_has_ended(self, operator: Client) -> None:
        body = {"arguments": {"seconds": 600}}
        with operator.stream("POST", WAIT, json=body, headers=EVENTS) as answer:
            received = events(answer)
            name, _ = next(received)
            until(lambda: outcomes(operator, tool="wait")[0] == "started")

        assert name == "progress"

    def test_what_a_tool_sends_comes_while_it_runs_and_once_to_a_client_that_reconnects(
        self, tmp_path: Path
    ) -> None:
        serving = Serving(tmp_path)
        serving.write({"deliver.py": DELIVER})
        with serving.running(), serving.client() as operator:
            call: Any = {"json": {"arguments": {"seconds": 600}}, "headers": EVENTS | KEY}
            with operator.stream("POST", "/v1/tools/deliver/call", **call) as answer:
                first = next(events(answer))
            after = {"last-event-id": str(first[1]["number"])}
            with operator.stream("GET", "/v1/calls/d/events", headers=after) as answer:
                received = events(answer)
                rest = [next(received) for _ in range(3)]
                operator.post("/v1/calls/d/cancel")
                last, _ = next(received)
            again = operator.get("/v1/calls/d/events", headers={"last-event-id": "0"})
            body = {"arguments": {"seconds": 0}}
            result = operator.post("/v1/tools/deliver/call", json=body).json()

        sent = [first, *rest]
        assert [(name, event["text"], event["value"], event["index"]) for name, event in sent] == [
            ("message", "", {"card": [1]}, 0),
            ("file", "a.csv", {"type": "text/csv", "size": 4}, 0),
            ("injected", "double", None, 0),
            ("message", "", "last", 1),
        ]
        assert last == "task"
        assert list(events(again))[:-1] == sent
        ids = [line for line in again.text.splitlines() if line.startswith("id: ")]
        assert ids == [f"id: {number}" for number in range(1, 5)]
        assert result["messages"] == [{"card": [1]}, "last"]
        assert (result["files"][0]["name"], result["injected_tools"]) == ("a.csv", ["double"])
        assert result["timing"]["cpu"] > 0 < result["timing"]["memory"]

    def test_events_that_a_client_does_not_read_in_time_are_counted(self, tmp_path: Path) -> None:
        serving = Bursting(tmp_path)
        serving.write({"waiting.py": WAITING})
        with serving.running(), serving.client() as operator:
            for size, most in ((1, 1_000), (10_000, 410)):
                answer = call(operator, "burst", EVENTS | {"idempotency-key": f"{size}"}, size=size)
                *received, (lost, count), (_, result) = events(answer)
                place = f"/v1/calls/{size}/events"
                again = operator.get(place, headers={"last-event-id": "0"})
                *kept, (lost_again, dropped), _ = events(again)

                assert most - 100 < len(received) <= most
                assert (lost, count) == ("lost", {"count": 3_000 - len(received)})
                assert len(result["messages"]) == 3_000
                assert (lost_again, dropped) == ("lost", {"count": 3_000 - len(kept)})
                assert kept[-1][1]["number"] == 3_000

    def test_a_task_is_followed_to_its_end(self, operator: Client) -> None:
        place = operator.post(WAIT, json=in_background(seconds=600)).headers["location"]
        with operator.stream("GET", f"{place}/events") as answer:
            following = events(answer)
            operator.post(f"{place}/cancel")
            *_, (name, ended) = following

        assert (name, ended["state"]) == ("task", "done")
        assert ended["result"]["status"] == "cancelled"

    def test_callers_hear_of_changes_of_the_tools_that_they_may_see(
        self, api: Serving, operator: Client
    ) -> None:
        with (
            api.client(api.session("eve", tools=["f*"])) as eve,
            eve.stream("GET", "/v1/events") as answer,
        ):
            received = events(answer)
            first = next(received)
            changes = []
            for enabled in (False, True):
                for name in ("pay", "fail"):
                    operator.patch(f"/v1/tools/{name}", json={"enabled": enabled})
                changes.append(next(received))

        assert first == ("ready", {"tools": 1})
        assert changes == [
            ("catalog", {"added": [], "changed": [], "removed": ["fail"]}),
            ("catalog", {"added": ["fail"], "changed": [], "removed": []}),
        ]

    def test_a_stream_of_changes_has_the_length_that_was_requested(self, operator: Client) -> None:
        with operator.stream("GET", "/v1/events", params={"seconds": 0.1}) as answer:
            received = [name for name, _ in events(answer)]
        endless = operator.get("/v1/events", params={"seconds": "inf"})

        assert received == ["ready"]
        assert endless.status_code == 422


class TestManyCalls:
    def test_a_batch_has_bounds(self, operator: Client) -> None:
        none = operator.post("/v1/calls", json={"calls": []})
        many = operator.post("/v1/calls", json={"calls": [{"tool": "double"}] * 101})

        assert (none.status_code, many.status_code) == (422, 422)


class TestTasks:
    def test_other_callers_do_not_find_it(self, operator: Client, ann: Client) -> None:
        call(operator, "wait", {"idempotency-key": "private"}, seconds=0)
        place = "/v1/calls/private"

        answers = [
            ann.get(place), ann.post(f"{place}/cancel"), ann.get(f"{place}/output"),
            ann.get(f"{place}/events"),
        ]  # fmt: skip

        assert {problem(answer) for answer in answers} == {(404, "not_found")}
        assert ann.get("/v1/calls").json()["items"] == []

    def test_each_caller_has_a_bounded_number_of_them(
        self, api: Serving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("toolkiln.execution.tasks.MAX_CALLS_PER_USER", 3)
        body = in_background(seconds=100)
        with api.client(api.session("flo")) as flo, api.client(api.session("gus")) as gus:
            taken = [flo.post(WAIT, json=body) for _ in range(5)]
            other = gus.post(WAIT, json=body)
            for client, answers in ((flo, taken[:3]), (gus, [other])):
                for answer in answers:
                    client.post(f"/v1/calls/{answer.json()['id']}/cancel")
            again = flo.post(WAIT, json=in_background(seconds=0))

        assert [answer.status_code for answer in taken] == [202] * 3 + [503] * 2
        assert taken[-1].json()["code"] == "busy"
        assert other.status_code == 202
        assert again.status_code in (200, 202)


class TestKeys:
    def test_a_key_makes_a_call_run_once_also_after_a_restart(self, tmp_path: Path) -> None:
        serving = Serving(tmp_path)
        serving.write({"waiting.py": WAITING})
        key = {"idempotency-key": "only-once"}
        with serving.running(), serving.client() as operator:
            first, again = (call(operator, "wait", key, seconds=0) for _ in range(2))
        with serving.running(), serving.client() as operator:
            later = call(operator, "wait", key, seconds=0)
            other = call(operator, "wait", key, seconds=1)
            found = operator.get("/v1/calls/only-once")

        assert first.json() == again.json() == later.json() == found.json()["result"]
        assert first.json()["call_id"] == "only-once"
        assert problem(other) == (422, "key_reused")

    def test_calls_of_a_batch_run_once_too(self, operator: Client) -> None:
        calls = {"calls": [{"tool": "double", "arguments": {"number": n}} for n in (1, 2)]}
        key = {"idempotency-key": "batch"}

        first, again = (operator.post("/v1/calls", json=calls, headers=key) for _ in range(2))

        assert first.json() == again.json()
        assert [one["call_id"] for one in first.json()["results"]] == ["batch.0", "batch.1"]

    def test_other_writes_run_once_and_only_with_the_same_body(self, operator: Client) -> None:
        key = {"idempotency-key": "make"}
        body = {"name": "once", "user_id": "ci"}

        first, again = (operator.post("/v1/keys", json=body, headers=key) for _ in range(2))
        other = operator.post("/v1/keys", json={**body, "days": 1}, headers=key)

        assert (first.status_code, first.json()) == (201, again.json())
        assert problem(other) == (422, "key_reused")

    @each_row("key", [b"", b"a b", b"x" * 181, b"\xc3\xbc"])
    def test_a_key_that_is_not_one_is_refused(self, operator: Client, key: bytes) -> None:
        body = {"arguments": {"number": 1}}

        answer = operator.post(DOUBLE, json=body, headers=[(b"idempotency-key", key)])

        assert problem(answer) == (400, "bad_request")


class TestLeaving:
    def leave(self, api: Serving, operator: Client, *headers: str) -> str:
        """Calls a tool, goes away once it runs; the id of the call."""
        body = json.dumps({"arguments": {"seconds": 600}})
        head = [
            f"POST {WAIT} HTTP/1.1", "host: localhost",
            f"authorization: {operator.headers['authorization']}",
            "content-type: application/json", f"content-length: {len(body)}", *headers,
        ]  # fmt: skip
        before = self.started(operator)
        with socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2]))) as client:
            client.sendall(("\r\n".join(head) + "\r\n\r\n" + body).encode())
            until(lambda: self.started(operator) != before)
        return self.started(operator)

    def started(self, operator: Client) -> str:
        query = {"act": "call", "outcome": "started", "limit": "1"}
        items = operator.get("/v1/audit", params=query).json()["items"]
        return items[0]["call_id"] if items else ""

    @pytest.mark.parametrize("headers", [(), ("accept: text/event-stream",)])
    def test_a_client_that_goes_away_stops_its_call(
        self, api: Serving, operator: Client, headers: tuple[str, ...]
    ) -> None:
        self.leave(api, operator, *headers)

        until(lambda: outcomes(operator, tool="wait")[0] == "cancelled")

    def test_a_call_with_a_key_continues(self, api: Serving, operator: Client) -> None:
        call_id = self.leave(api, operator, "idempotency-key: lasting")

        running = operator.get(f"/v1/calls/{call_id}").json()["state"]
        stopped = operator.post(f"/v1/calls/{call_id}/cancel").json()

        assert (call_id, running) == ("lasting", "running")
        assert stopped["result"]["status"] == "cancelled"
