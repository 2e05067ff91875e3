"""Approvals, the audit, sessions and keys over HTTP, and who may do what."""

from typing import Any

import pytest
from httpx2 import Client

from tables import each_row
from toolkiln.errors import ToolkilnError
from toolkiln.model.identity import Privilege
from toolkiln.surfaces.http.responses import STATUSES

from .served import until
from .serving import Paying, Serving, call, problem


class TestApprovals:
    def test_a_call_runs_with_the_arguments_that_a_person_edited(
        self, api: Serving, operator: Client
    ) -> None:
        paying = Paying(api, "bea", 1000)

        shown = operator.get(paying.place).json()
        wrong = operator.post(f"{paying.place}/approve", json={"arguments": {"amount": "much"}})
        answer = operator.post(f"{paying.place}/approve", json={"arguments": {"amount": 10}})
        late = operator.post(f"{paying.place}/reject", json={})

        assert (shown["user"], shown["arguments"]) == ("bea", {"amount": 1000})
        assert wrong.status_code == 400
        assert answer.json()["state"] == "approved"
        assert paying.result()["value"] == 10
        assert problem(late) == (409, "too_late")

    def test_callers_see_only_their_own_requests_and_decide_none(
        self, api: Serving, operator: Client
    ) -> None:
        paying = Paying(api, "dan", 9)
        with api.client(paying.token) as dan, api.client(api.session("eve")) as eve:
            own, others = dan.get(paying.place), eve.get(paying.place)
            try_own = dan.post(f"{paying.place}/approve", json={})
            try_others = eve.post(f"{paying.place}/approve", json={})
            listed = eve.get("/v1/approvals", params={"state": "all"}).json()["items"]
        operator.post(f"{paying.place}/reject", json={})
        paying.result()

        assert own.status_code == 200
        assert (others.status_code, try_others.status_code, listed) == (404, 404, [])
        assert problem(try_own) == (403, "not_allowed")

    def test_each_caller_has_a_bounded_number_of_pending_calls(
        self, api: Serving, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("toolkiln.security.approvals.MAX_PENDING", 2)

        def ask(client: Client) -> Any:
            body = {"arguments": {"amount": 4}, "background": "auto"}
            return client.post("/v1/tools/pay/call", json=body).json()

        with api.client(api.session("flooder")) as flooder, api.client(api.session("fay")) as fay:
            taken = [ask(flooder) for _ in range(2)]
            refused, other = ask(flooder), ask(fay)
            for client, tasks in ((flooder, taken), (fay, [other])):
                for task in tasks:
                    client.post(f"/v1/calls/{task['id']}/cancel")
            again = ask(flooder)
            flooder.post(f"/v1/calls/{again['id']}/cancel")

        assert [task["state"] for task in (*taken, other, again)] == ["pending"] * 4
        assert refused["error"]["code"] == "too_many_approvals"


class TestAudit:
    def test_records_are_paged_and_filtered(self, operator: Client) -> None:
        for number in range(3):
            call(operator, "double", number=number)

        query = {"tool": "double", "act": "call", "limit": "2"}
        first = operator.get("/v1/audit", params=query).json()
        rest = operator.get("/v1/audit", params={**query, "cursor": first["next_cursor"]}).json()

        numbers = [item["seq"] for item in first["items"] + rest["items"]]
        assert len(numbers) == 3
        assert numbers == sorted(numbers, reverse=True)
        assert {item["surface"] for item in first["items"]} == {"http"}


class TestIdentities:
    def test_a_key_acts_for_its_user_until_it_is_revoked(
        self, api: Serving, operator: Client
    ) -> None:
        made = operator.post("/v1/keys", json={"name": "bot", "user_id": "bot", "tools": ["d*"]})
        keys = operator.get("/v1/keys").text
        with api.client(made.json()["key"]) as bot:
            own = bot.get("/v1/sessions/own").json()
            listed = bot.get("/v1/tools").json()["items"]
            revoked = operator.delete("/v1/keys/bot")
            until(lambda: bot.get("/v1/sessions/own").status_code == 401)
            refused = bot.get("/v1/sessions/own")
        again = operator.delete(f"/v1/keys/{made.json()['id']}")

        assert made.headers["cache-control"] == "no-store"
        assert made.json()["key"] not in keys
        assert (own["user"], own["key_id"]) == ("bot", made.json()["id"])
        assert [item["name"] for item in listed] == ["double"]
        assert revoked.json()["holds"] is False
        assert problem(refused) == (401, "no_session")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert problem(again) == (409, "too_late")

    def test_a_session_is_made_renewed_and_ended(self, api: Serving, operator: Client) -> None:
        made = operator.post("/v1/sessions", json={"user_id": "fay", "groups": ["staff"]}).json()
        with api.client(made["token"]) as fay:
            own = fay.get("/v1/sessions/own").json()
            renewed = operator.post("/v1/sessions/renew", json={"token": made["token"]})
            listed = operator.get("/v1/sessions").json()["items"]
            ended = fay.post("/v1/sessions/end")
            after = fay.get("/v1/tools")
        gone = operator.post("/v1/sessions/end", json={"token": made["token"]})

        assert (own["user"], own["groups"]) == ("fay", ["staff"])
        assert renewed.json() == ended.json() == {"trace_id": made["trace_id"]}
        assert made["trace_id"] in {item["trace_id"] for item in listed}
        assert made["token"] not in str(listed)
        assert (after.status_code, gone.status_code) == (401, 404)

    def test_an_administrator_ends_a_session_by_its_public_name(
        self, api: Serving, operator: Client, ann: Client
    ) -> None:
        with api.client(api.session("hal")) as hal:
            name = hal.get("/v1/sessions/own").json()["trace_id"]
            forbidden = ann.delete(f"/v1/sessions/{name}")
            before = hal.get("/v1/sessions/own")

            ended = operator.delete(f"/v1/sessions/{name}")
            after = hal.get("/v1/sessions/own")

        assert (forbidden.status_code, before.status_code, after.status_code) == (403, 200, 401)
        assert ended.json() == {"trace_id": name}
        assert operator.delete(f"/v1/sessions/{name}").json()["code"] == "not_found"

    def test_the_servers_own_session_cannot_be_ended(self, operator: Client) -> None:
        answer = operator.post("/v1/sessions/end")

        assert answer.status_code == 400
        assert operator.get("/v1/tools").status_code == 200

    def test_callers_give_away_no_privilege_that_they_lack(self, api: Serving) -> None:
        with api.client(api.session("half", Privilege.ADMIN)) as half:
            session = half.post("/v1/sessions", json={"user_id": "x", "privileges": ["APPROVE"]})
            scope = {"name": "k", "user_id": "x", "privileges": ["WRITE_TOOLS"]}
            key = half.post("/v1/keys", json=scope)

        assert (session.status_code, key.status_code) == (403, 403)

    @each_row("shown", ["Bearer nonsense", "Bearer", "Basic eDp5", "Bearer tk_no"])
    def test_an_unknown_credential_is_refused(self, operator: Client, shown: str) -> None:
        answer = operator.get("/v1/tools", headers={"authorization": shown})

        assert problem(answer) == (401, "no_session")


ADMINISTRATIVE = [
    ("PATCH", "/v1/tools/fail", {"enabled": False}),
    ("DELETE", "/v1/tools/fail", None),
    ("PATCH", "/v1/toolkits/Shelf", {"enabled": False}),
    ("POST", "/v1/tools/fail/rollback", {"version": 1}),
    ("GET", "/v1/tools/fail/versions/1", None),
    ("GET", "/v1/tools?enabled=false", None),
    ("POST", "/v1/run", {"source": "def f() -> int:\n    'Do.'\n    return 1"}),
    ("GET", "/v1/audit", None),
    ("GET", "/v1/audit/verify", None),
    ("GET", "/v1/sessions", None),
    ("POST", "/v1/sessions", {"user_id": "x"}),
    ("POST", "/v1/sessions/renew", {"token": "ts_x"}),
    ("GET", "/v1/keys", None),
    ("POST", "/v1/keys", {"name": "n", "user_id": "x"}),
    ("DELETE", "/v1/keys/n", None),
]


@each_row("method, path, body", ADMINISTRATIVE)
def test_a_caller_without_privileges_changes_nothing_and_is_recorded(
    ann: Client, operator: Client, method: str, path: str, body: Any
) -> None:
    query = {"user": "ann", "outcome": "denied", "limit": "200"}
    before = len(operator.get("/v1/audit", params=query).json()["items"])

    answer = ann.request(method, path, json=body)

    after = len(operator.get("/v1/audit", params=query).json()["items"])
    assert problem(answer) == (403, "not_allowed")
    assert after == before + 1


def test_every_error_of_toolkiln_has_a_status() -> None:
    tree = [ToolkilnError]
    for kind in tree:
        tree += kind.__subclasses__()

    assert {kind.code for kind in tree if kind.__module__.startswith("toolkiln.")} <= {*STATUSES}
