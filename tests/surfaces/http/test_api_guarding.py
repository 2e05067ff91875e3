"""Approvals, the audit, sessions and keys over HTTP, and who may do what."""

import threading
from typing import Any

import httpx2
import pytest

from toolkiln.errors import ToolkilnError
from toolkiln.model.identity import Privilege
from toolkiln.surfaces.http.responses import STATUSES

from .served import until
from .serving import SOON, TRIPLE, Serving


class Paying:
    """A call of `pay` by somebody, which waits for a person."""

    def __init__(self, api: Serving, user: str, amount: int) -> None:
        self._api, self._user, self._amount = api, user, amount
        self.token = api.session(user)
        self._thread = threading.Thread(target=self._pay)
        self._thread.start()
        with api.client(self.token) as client:
            until(lambda: bool(client.get("/v1/approvals").json()["items"]))
            (self.request,) = client.get("/v1/approvals").json()["items"]

    def _pay(self) -> None:
        with self._api.client(self.token) as client:
            sent = {"arguments": {"amount": self._amount}}
            self._result = client.post("/v1/tools/pay/call", json=sent).json()

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result


class TestApprovals:
    def test_a_call_runs_with_the_arguments_that_a_person_put_in(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        paying = Paying(api, "bea", 1000)
        place = f"/v1/approvals/{paying.request['id']}"

        shown = operator.get(place).json()
        answer = operator.post(f"{place}/approve", json={"arguments": {"amount": 10}})
        late = operator.post(f"{place}/reject", json={})

        assert (shown["user"], shown["arguments"]) == ("bea", {"amount": 1000})
        assert answer.json()["state"] == "approved"
        assert paying.result()["value"] == 10
        assert (late.status_code, late.json()["code"]) == (409, "too_late")

    def test_a_rejected_call_tells_the_reason(self, api: Serving, operator: httpx2.Client) -> None:
        paying = Paying(api, "bob", 5)

        operator.post(f"/v1/approvals/{paying.request['id']}/reject", json={"reason": "too dear"})

        assert paying.result()["status"] == "denied"
        assert "too dear" in paying.result()["error"]["message"]

    def test_what_is_remembered_is_not_asked_again_until_it_is_forgotten(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        paying = Paying(api, "cid", 7)
        place = f"/v1/approvals/{paying.request['id']}"
        operator.post(f"{place}/approve", json={"remember": "arguments"})
        paying.result()
        with api.client(paying.token) as cid:
            again = cid.post("/v1/tools/pay/call", json={"arguments": {"amount": 7}})

        forgotten = operator.post(f"{place}/forget")

        assert again.json()["value"] == 7
        assert forgotten.json()["forgotten"]

    def test_people_see_their_own_requests_and_answer_none_of_them(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        paying = Paying(api, "dan", 9)
        place = f"/v1/approvals/{paying.request['id']}"
        with api.client(paying.token) as dan, api.client(api.session("eve")) as eve:
            own, others = dan.get(place), eve.get(place)
            try_own = dan.post(f"{place}/approve", json={})
            try_others = eve.post(f"{place}/approve", json={})
            listed = eve.get("/v1/approvals", params={"state": "all"}).json()["items"]
        wrong = operator.post(f"{place}/approve", json={"arguments": {"amount": "much"}})
        operator.post(f"{place}/reject", json={})
        paying.result()

        assert own.status_code == 200
        assert (others.status_code, try_others.status_code, listed) == (404, 404, [])
        assert (try_own.status_code, try_own.json()["code"]) == (403, "not_allowed")
        assert wrong.status_code == 400

    def test_a_caller_has_so_many_calls_that_wait_for_a_person_and_others_still_have_some(
        self, api: Serving, operator: httpx2.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("toolkiln.security.approvals.MAX_PENDING", 2)
        body = {"arguments": {"amount": 4}, "background": "auto"}
        with api.client(api.session("flooder")) as flooder, api.client(api.session("fay")) as fay:
            taken = [flooder.post("/v1/tools/pay/call", json=body).json() for _ in range(2)]
            refused = flooder.post("/v1/tools/pay/call", json=body).json()
            other = fay.post("/v1/tools/pay/call", json=body).json()
            for client, tasks in ((flooder, taken), (fay, [other])):
                for task in tasks:
                    client.post(f"/v1/calls/{task['id']}/cancel")
            again = flooder.post("/v1/tools/pay/call", json=body).json()
            flooder.post(f"/v1/calls/{again['id']}/cancel")

        assert [task["state"] for task in (*taken, other, again)] == ["pending"] * 4
        assert refused["error"]["code"] == "too_many_approvals"

    def test_an_approval_is_recorded_for_the_person_who_gave_it(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        paying = Paying(api, "payer", 3)
        made = {"name": "approver", "user_id": "fay", "privileges": ["APPROVE"]}
        with api.client(operator.post("/v1/keys", json=made).json()["key"]) as fay:
            answer = fay.post(f"/v1/approvals/{paying.request['id']}/approve", json={})

        paying.result()
        assert answer.json()["decided_by"] == "fay"
        query = {"act": "approve", "user": "fay", "outcome": "ok"}
        (record,) = operator.get("/v1/audit", params=query).json()["items"]
        assert record["call_id"] == paying.request["call_id"]


class TestAudit:
    def test_records_are_paged_and_filtered(self, operator: httpx2.Client) -> None:
        for number in range(3):
            operator.post("/v1/tools/double/call", json={"arguments": {"number": number}})

        query = {"tool": "double", "act": "call", "limit": "2"}
        first = operator.get("/v1/audit", params=query).json()
        rest = operator.get("/v1/audit", params={**query, "cursor": first["next_cursor"]}).json()

        numbers = [item["seq"] for item in first["items"] + rest["items"]]
        assert len(numbers) == 3
        assert numbers == sorted(numbers, reverse=True)
        assert {item["surface"] for item in first["items"]} == {"http"}

    def test_the_chain_is_verified_against_a_head_that_was_noted(
        self, operator: httpx2.Client
    ) -> None:
        found = operator.get("/v1/audit/verify").json()

        head = f"{found['last']}:{found['head']}"
        right = operator.get("/v1/audit/verify", params={"head": head})
        wrong = operator.get("/v1/audit/verify", params={"head": f"{found['last']}:{'0' * 64}"})
        no_head = operator.get("/v1/audit/verify", params={"head": "nonsense"})

        assert (found["ok"], right.json()["ok"], wrong.json()["ok"]) == (True, True, False)
        assert no_head.status_code == 422

    def test_administrative_acts_are_recorded_with_who_did_them(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        with api.client(api.session("root2", *Privilege)) as admin:
            admin.patch("/v1/tools/fail", json={"enabled": True})
            admin.post("/v1/run", json={"source": TRIPLE, "arguments": {"number": 1}})

        acts = operator.get("/v1/audit", params={"user": "root2", "limit": "200"}).json()["items"]
        told = {(item["act"], item["outcome"], item["surface"]) for item in acts}

        assert {(act, "ok", "http") for act in ("switch", "run_source", "call")} <= told


class TestIdentities:
    def test_a_key_acts_for_its_user_until_it_is_revoked(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        made = operator.post("/v1/keys", json={"name": "bot", "user_id": "bot", "tools": ["d*"]})
        with api.client(made.json()["key"]) as bot:
            own = bot.get("/v1/sessions/own").json()
            listed = bot.get("/v1/tools").json()["items"]
            revoked = operator.delete("/v1/keys/bot")
            until(lambda: bot.get("/v1/sessions/own").status_code == 401)
            refused = bot.get("/v1/sessions/own")
        again = operator.delete(f"/v1/keys/{made.json()['id']}")

        assert (own["user"], own["key_id"]) == ("bot", made.json()["id"])
        assert [item["name"] for item in listed] == ["double"]
        assert revoked.json()["holds"] is False
        assert (refused.json()["code"], refused.headers["www-authenticate"]) == (
            "no_session",
            "Bearer",
        )
        assert (again.status_code, again.json()["code"]) == (409, "too_late")

    def test_a_key_is_shown_once(self, operator: httpx2.Client) -> None:
        made = operator.post("/v1/keys", json={"name": "shown", "user_id": "x"})

        assert made.headers["cache-control"] == "no-store"
        assert made.json()["key"] not in operator.get("/v1/keys").text

    def test_a_session_is_made_renewed_and_ended(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
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

    def test_the_servers_own_session_cannot_be_ended(self, operator: httpx2.Client) -> None:
        answer = operator.post("/v1/sessions/end")

        assert answer.status_code == 400
        assert operator.get("/v1/tools").status_code == 200

    def test_nobody_gives_away_what_they_have_not(self, api: Serving) -> None:
        with api.client(api.session("half", Privilege.ADMIN)) as half:
            session = half.post("/v1/sessions", json={"user_id": "x", "privileges": ["APPROVE"]})
            key = half.post(
                "/v1/keys", json={"name": "k", "user_id": "x", "privileges": ["WRITE_TOOLS"]}
            )

        assert (session.status_code, key.status_code) == (403, 403)

    @pytest.mark.parametrize("shown", ["Bearer nonsense", "Bearer", "Basic eDp5", "Bearer tk_no"])
    def test_who_shows_what_nobody_holds_is_nobody(
        self, operator: httpx2.Client, shown: str
    ) -> None:
        answer = operator.get("/v1/tools", headers={"authorization": shown})

        assert (answer.status_code, answer.json()["code"]) == (401, "no_session")


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


@pytest.mark.parametrize(("method", "path", "body"), ADMINISTRATIVE)
def test_who_has_no_privilege_changes_nothing_and_is_recorded(
    ann: httpx2.Client, operator: httpx2.Client, method: str, path: str, body: Any
) -> None:
    query = {"user": "ann", "outcome": "denied", "limit": "200"}
    before = len(operator.get("/v1/audit", params=query).json()["items"])

    answer = ann.request(method, path, json=body)

    after = len(operator.get("/v1/audit", params=query).json()["items"])
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert after == before + 1


def test_every_error_of_toolkilns_has_a_status() -> None:
    tree = [ToolkilnError]
    for kind in tree:
        tree += kind.__subclasses__()

    assert {kind.code for kind in tree if kind.__module__.startswith("toolkiln.")} <= {*STATUSES}


class TestEndingByName:
    def test_a_session_ends_at_once_and_takes_admin(
        self, api: Serving, operator: httpx2.Client, ann: httpx2.Client
    ) -> None:
        with api.client(api.session("hal")) as hal:
            name = hal.get("/v1/sessions/own").json()["trace_id"]
            forbidden = ann.delete(f"/v1/sessions/{name}")
            before = hal.get("/v1/sessions/own")

            ended = operator.delete(f"/v1/sessions/{name}")

            assert (forbidden.status_code, before.status_code) == (403, 200)
            assert ended.json() == {"trace_id": name}
            assert hal.get("/v1/sessions/own").status_code == 401
        assert operator.delete(f"/v1/sessions/{name}").json()["code"] == "not_found"
