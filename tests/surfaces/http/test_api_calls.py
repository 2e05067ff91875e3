"""Calls over HTTP: how they end, events, batches, tasks, keys, and clients that go away."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .served import until
from .serving import WAITING, Serving

EVENTS = {"accept": "text/event-stream"}
NAMES = "pay", "pbb"
"""A tool, and one that there is not."""
OWN = {"call_id": "", "timing": {}}
"""What no two results have in common."""


def arguments(**given: Any) -> dict[str, Any]:
    return {"arguments": given}


def events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, as they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def outcomes(operator: httpx2.Client, **query: str) -> list[str]:
    """How calls ended, newest first, as the audit has it."""
    records = operator.get("/v1/audit", params={"act": "call", **query}).json()["items"]
    return [record["outcome"] for record in records]


class TestOneCall:
    def test_a_call_is_answered_with_its_result(self, operator: httpx2.Client) -> None:
        answer = operator.post("/v1/tools/double/call", json=arguments(number=21))

        assert answer.status_code == 200
        assert (answer.json()["status"], answer.json()["value"]) == ("ok", 42)

    def test_a_tool_that_fails_is_no_error_of_http(self, operator: httpx2.Client) -> None:
        said_no = operator.post("/v1/tools/double/call", json=arguments(number=13))
        raised = operator.post("/v1/tools/fail/call", json={})
        wrong = operator.post("/v1/tools/double/call", json=arguments(nmber=1))

        assert [a.status_code for a in (said_no, raised, wrong)] == [200, 200, 200]
        assert said_no.json()["error"]["message"] == "unlucky"
        assert raised.json()["error"]["type"] == "ValueError"
        assert raised.json()["error"]["message"] == "ValueError in line 8 of failing.py"
        assert raised.json()["error"]["traceback"] is None
        assert (wrong.json()["status"], wrong.json()["error"]["code"]) == (
            "invalid",
            "invalid_arguments",
        )

    def test_a_call_of_another_version_is_refused(self, operator: httpx2.Client) -> None:
        answer = operator.post(
            "/v1/tools/double/call", json={"arguments": {"number": 1}, "digest": "0" * 64}
        )

        assert (answer.status_code, answer.json()["status"]) == (200, "invalid")

    def test_unknown_and_forbidden_tools_are_the_same_to_a_caller(self, api: Serving) -> None:
        with api.client(api.session("eve", tools=["double"])) as eve:
            for headers in ({}, EVENTS):
                absent = eve.post("/v1/tools/abc/call", json={}, headers=headers)
                hidden = eve.post("/v1/tools/pay/call", json={}, headers=headers)

                assert (absent.status_code, absent.json()["code"]) == (404, "unknown_tool")
                assert hidden.text == absent.text.replace("abc", "pay")

    def test_neither_a_version_nor_a_hint_tells_a_forbidden_tool_from_an_unknown_one(
        self, api: Serving
    ) -> None:
        with api.client(api.session("eve", tools=["double"])) as eve:
            for sent in ({}, {"digest": "0" * 64}):
                near = eve.post("/v1/tools/doubl/call", json=sent)
                absent = eve.post("/v1/tools/payy/call", json=sent)
                hidden = eve.post("/v1/tools/pay/call", json=sent)

                assert "double" in near.json()["hint"]
                assert hidden.text == absent.text.replace("payy", "pay")
        with api.client(api.session("eve", tools=["pays", "doubl"])) as eve:
            hidden = eve.post("/v1/tools/double/call", json={})
            absent = eve.post("/v1/tools/doubly/call", json={})

            assert hidden.text == absent.text.replace("doubly", "double")

    def test_a_tool_that_calls_a_forbidden_one_finds_none(self, api: Serving) -> None:
        with api.client(api.session("eve", tools=["call_tool"])) as eve:
            hidden, absent = (
                eve.post("/v1/tools/call_tool/call", json=arguments(name=name)).json()
                for name in ("pay", "pbb")
            )

        assert "there is no tool named 'pbb'" in absent["text"]
        assert hidden["text"] == absent["text"].replace("pbb", "pay")

    def test_what_was_refused_is_recorded_all_the_same(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        with api.client(api.session("mallory", tools=["double"])) as mallory:
            mallory.post("/v1/tools/pay/call", json=arguments(amount=1))
            mallory.post("/v1/tools/pay/call", json=arguments(amount=1), headers=EVENTS)

        assert outcomes(operator, user="mallory") == ["denied", "denied"]

    def test_arguments_are_taken_as_a_provider_sent_them(self, operator: httpx2.Client) -> None:
        sent = {"arguments": {"message": None}, "provider": "openai-strict"}

        answer = operator.post("/v1/tools/fail/call", json=sent)

        assert answer.json()["error"]["code"] == "exception"  # null meant the default

    def test_a_call_that_comes_too_fast_is_told_when_to_come_again(self, tmp_path: Path) -> None:
        serving = Serving(tmp_path, rates={"double": {"caller": "1/hour"}})
        serving.write({"waiting.py": WAITING})
        with serving.running(), serving.client() as operator:
            operator.post("/v1/tools/double/call", json=arguments(number=1))
            answer = operator.post("/v1/tools/double/call", json=arguments(number=1))

        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        assert 3500 < int(answer.headers["retry-after"]) <= 3600


class TestEvents:
    def test_events_come_in_order_and_the_result_last(self, operator: httpx2.Client) -> None:
        with operator.stream(
            "POST", "/v1/tools/wait/call", json=arguments(seconds=0), headers=EVENTS
        ) as answer:
            told = list(events(answer))

        assert answer.headers["content-type"] == "text/event-stream"
        assert [name for name, _ in told] == ["progress", "log", "stdout", "result"]
        assert told[0][1]["text"] == "waiting"
        assert told[-1][1]["value"] == "waited"

    def test_an_event_comes_before_its_call_has_ended(self, operator: httpx2.Client) -> None:
        with operator.stream(
            "POST", "/v1/tools/wait/call", json=arguments(seconds=600), headers=EVENTS
        ) as answer:
            told = events(answer)
            name, _ = next(told)
            until(lambda: outcomes(operator, tool="wait")[0] == "started")

        assert name == "progress"

    def test_a_task_is_followed_to_its_end(self, operator: httpx2.Client) -> None:
        sent = {**arguments(seconds=600), "background": True}
        place = operator.post("/v1/tools/wait/call", json=sent).headers["location"]
        with operator.stream("GET", f"{place}/events") as answer:
            following = events(answer)
            operator.post(f"{place}/cancel")
            *_, (name, ended) = following

        assert (name, ended["state"]) == ("task", "done")
        assert ended["result"]["status"] == "cancelled"

    def test_changes_of_the_catalog_are_told_to_who_may_see_them(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        with (
            api.client(api.session("eve", tools=["f*"])) as eve,
            eve.stream("GET", "/v1/events") as answer,
        ):
            told = events(answer)
            ready = next(told)
            operator.patch("/v1/tools/pay", json={"enabled": False})
            operator.patch("/v1/tools/fail", json={"enabled": False})
            off = next(told)
            operator.patch("/v1/tools/pay", json={"enabled": True})
            operator.patch("/v1/tools/fail", json={"enabled": True})
            on = next(told)

        assert ready == ("ready", {"tools": 1})
        assert off == ("catalog", {"added": [], "changed": [], "removed": ["fail"]})
        assert on == ("catalog", {"added": ["fail"], "changed": [], "removed": []})

    def test_changes_are_told_for_as_long_as_was_asked(self, operator: httpx2.Client) -> None:
        with operator.stream("GET", "/v1/events", params={"seconds": 0.1}) as answer:
            told = [name for name, _ in events(answer)]
        never = operator.get("/v1/events", params={"seconds": "inf"})

        assert told == ["ready"]
        assert never.status_code == 422


class TestManyCalls:
    def test_results_come_in_the_order_of_the_calls(self, operator: httpx2.Client) -> None:
        calls = [
            {"tool": "double", "arguments": {"number": 1}},
            {"tool": "nope"},
            {"tool": "fail"},
            {"tool": "double", "arguments": {"number": 2}},
        ]

        answer = operator.post("/v1/calls", json={"calls": calls})

        results = answer.json()["results"]
        assert [result["status"] for result in results] == ["ok", "invalid", "failed", "ok"]
        assert [results[0]["value"], results[3]["value"]] == [2, 4]

    def test_a_forbidden_tool_is_an_unknown_one_in_a_batch_too(self, api: Serving) -> None:
        with api.client(api.session("eve", tools=["double"])) as eve:
            for more in ({}, {"digest": "0" * 64}):
                calls = [{"tool": name, "arguments": {"amount": 1}, **more} for name in NAMES]
                hidden, absent = eve.post("/v1/calls", json={"calls": calls}).json()["results"]

                assert {**json.loads(json.dumps(absent).replace("pbb", "pay")), **OWN} == {
                    **hidden,
                    **OWN,
                }

    def test_a_batch_has_bounds(self, operator: httpx2.Client) -> None:
        none = operator.post("/v1/calls", json={"calls": []})
        many = operator.post("/v1/calls", json={"calls": [{"tool": "double"}] * 101})

        assert (none.status_code, many.status_code) == (422, 422)


class TestTasks:
    def test_a_call_in_the_background_is_found_by_its_id(self, operator: httpx2.Client) -> None:
        sent = {**arguments(seconds=0), "background": True}
        key = {"idempotency-key": "behind"}
        made = operator.post("/v1/tools/wait/call", json=sent, headers=key)

        ended = operator.get("/v1/calls/behind", params={"wait": 60})
        listed = operator.get("/v1/calls").json()["items"]

        assert made.status_code in (200, 202)  # it may have ended already
        assert ended.json()["result"]["value"] == "waited"
        assert "behind" in {item["id"] for item in listed}

    def test_one_that_nobody_approved_in_time_is_found_and_can_be_made_again(
        self, operator: httpx2.Client
    ) -> None:
        sent = {**arguments(amount=3), "background": True, "timeout": 0.2}
        first = operator.post("/v1/tools/pay/call", json=sent)
        keyed = {"idempotency-key": "unapproved"}
        made = [operator.post("/v1/tools/pay/call", json=sent, headers=keyed).json()]
        ended = [operator.get("/v1/calls/unapproved", params={"wait": 60}).json()]
        made.append(operator.post("/v1/tools/pay/call", json=sent, headers=keyed).json())
        ended.append(operator.get("/v1/calls/unapproved", params={"wait": 60}).json())
        ended.append(operator.get(first.headers["location"], params={"wait": 60}).json())

        codes = [task["result"]["error"]["code"] for task in ended]
        assert codes == ["approval_expired"] * 3
        assert made[0]["started"] < made[1]["started"]

    def test_nobody_else_finds_it(self, operator: httpx2.Client, ann: httpx2.Client) -> None:
        key = {"idempotency-key": "private"}
        operator.post("/v1/tools/wait/call", json=arguments(seconds=0), headers=key)
        place = "/v1/calls/private"

        answers = [
            ann.get(place), ann.post(f"{place}/cancel"), ann.get(f"{place}/output"),
            ann.get(f"{place}/events"),
        ]  # fmt: skip

        assert {(a.status_code, a.json()["code"]) for a in answers} == {(404, "not_found")}
        assert ann.get("/v1/calls").json()["items"] == []

    def test_all_of_a_long_output_can_be_paged(self, operator: httpx2.Client) -> None:
        answer = operator.post(
            "/v1/tools/long_text/call",
            json=arguments(characters=60_000),
            headers={"idempotency-key": "long"},
        )
        handle = answer.json()["truncation"]["handle"]

        first = operator.get(f"/v1/outputs/{handle}", params={"limit": 40_000}).json()
        second = operator.get(
            f"/v1/outputs/{handle}", params={"offset": first["next_offset"], "limit": 40_000}
        ).json()
        by_call = operator.get("/v1/calls/long/output", params={"offset": 59_999}).json()

        assert first["text"] + second["text"] == "x" * 60_000
        assert (second["next_offset"], by_call["text"]) == (None, "x")
        assert operator.get("/v1/outputs/nope").status_code == 404


class TestKeys:
    def test_a_key_makes_a_call_run_once_also_after_a_restart(self, tmp_path: Path) -> None:
        serving = Serving(tmp_path)
        serving.write({"waiting.py": WAITING})
        key = {"idempotency-key": "only-once"}
        sent = arguments(seconds=0)
        with serving.running(), serving.client() as operator:
            first = operator.post("/v1/tools/wait/call", json=sent, headers=key)
            again = operator.post("/v1/tools/wait/call", json=sent, headers=key)
        with serving.running(), serving.client() as operator:
            later = operator.post("/v1/tools/wait/call", json=sent, headers=key)
            other = operator.post("/v1/tools/wait/call", json=arguments(seconds=1), headers=key)
            found = operator.get("/v1/calls/only-once")

        assert first.json() == again.json() == later.json() == found.json()["result"]
        assert first.json()["call_id"] == "only-once"
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")

    def test_calls_of_a_batch_run_once_too(self, operator: httpx2.Client) -> None:
        calls = {"calls": [{"tool": "double", "arguments": {"number": n}} for n in (1, 2)]}
        key = {"idempotency-key": "batch"}

        first = operator.post("/v1/calls", json=calls, headers=key)
        again = operator.post("/v1/calls", json=calls, headers=key)

        assert first.json() == again.json()
        assert [one["call_id"] for one in first.json()["results"]] == ["batch.0", "batch.1"]

    def test_other_writes_are_done_once_and_only_with_the_same_body(
        self, operator: httpx2.Client
    ) -> None:
        key = {"idempotency-key": "make"}
        body = {"name": "once", "user_id": "ci"}

        first = operator.post("/v1/keys", json=body, headers=key)
        again = operator.post("/v1/keys", json=body, headers=key)
        other = operator.post("/v1/keys", json={**body, "days": 1}, headers=key)

        assert (first.status_code, first.json()) == (201, again.json())
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")

    @pytest.mark.parametrize("key", ["", "a b", "x" * 181, "\u00fc".encode()])
    def test_what_can_be_no_key_is_refused(self, operator: httpx2.Client, key: str | bytes) -> None:
        answer = operator.post(
            "/v1/tools/double/call",
            json=arguments(number=1),
            headers=[(b"idempotency-key", key if isinstance(key, bytes) else key.encode())],
        )

        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


class TestLeaving:
    def leave(self, api: Serving, operator: httpx2.Client, *headers: str) -> str:
        """Calls a tool, goes away once it runs; the id of the call."""
        body = json.dumps(arguments(seconds=600))
        head = [
            "POST /v1/tools/wait/call HTTP/1.1", "host: localhost",
            f"authorization: {operator.headers['authorization']}",
            "content-type: application/json", f"content-length: {len(body)}", *headers,
        ]  # fmt: skip
        before = self.started(operator)
        with socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2]))) as client:
            client.sendall(("\r\n".join(head) + "\r\n\r\n" + body).encode())
            until(lambda: self.started(operator) != before)
        return self.started(operator)

    def started(self, operator: httpx2.Client) -> str:
        query = {"act": "call", "outcome": "started", "limit": "1"}
        items = operator.get("/v1/audit", params=query).json()["items"]
        return items[0]["call_id"] if items else ""

    @pytest.mark.parametrize("headers", [(), ("accept: text/event-stream",)])
    def test_who_goes_away_stops_the_call(
        self, api: Serving, operator: httpx2.Client, headers: tuple[str, ...]
    ) -> None:
        self.leave(api, operator, *headers)

        until(lambda: outcomes(operator, tool="wait")[0] == "cancelled")

    def test_a_call_with_a_key_goes_on(self, api: Serving, operator: httpx2.Client) -> None:
        call_id = self.leave(api, operator, "idempotency-key: lasting")

        running = operator.get(f"/v1/calls/{call_id}").json()["state"]
        stopped = operator.post(f"/v1/calls/{call_id}/cancel").json()

        assert (call_id, running) == ("lasting", "running")
        assert stopped["result"]["status"] == "cancelled"


def test_a_caller_has_so_many_calls_in_the_background_and_others_still_have_some(
    api: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.execution.tasks.MAX_CALLS_PER_USER", 3)
    body = {"arguments": {"seconds": 100}, "background": True}
    with api.client(api.session("flo")) as flo, api.client(api.session("gus")) as gus:
        taken = [flo.post("/v1/tools/wait/call", json=body) for _ in range(5)]
        other = gus.post("/v1/tools/wait/call", json=body)
        for client, answers in ((flo, taken[:3]), (gus, [other])):
            for answer in answers:
                client.post(f"/v1/calls/{answer.json()['id']}/cancel")
        again = flo.post("/v1/tools/wait/call", json=body | {"arguments": {"seconds": 0}})

    assert [answer.status_code for answer in taken] == [202] * 3 + [503] * 2
    assert taken[-1].json()["code"] == "busy"
    assert other.status_code == 202
    assert again.status_code in (200, 202)
