"""Hostile requests: each one gets a clear answer, and the server goes on."""

import json
from typing import Any

import pytest
from httpx2 import Client

from tables import each_row
from toolkiln.model.call import Result, SentFile, Status
from toolkiln.surfaces.http.responses import to_json

from .serving import call, problem

CALL = "/v1/tools/double/call"
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def alive(operator: Client) -> Any:
    """The next call is answered as ever."""
    yield
    assert call(operator, "double", number=2).json()["value"] == 4


@each_row(
    "body",
    [
        b"{", b"nonsense", b"\xff\xfe", b'{"arguments": {"number": NaN}}', b"\x00",
        b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b'{"arguments": {"number": 1}} extra',
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_is_refused(operator: Client, body: bytes) -> None:
    assert problem(operator.post(CALL, content=body, headers=JSON)) == (400, "bad_json")


@each_row(
    "body",
    [
        [], 5, "text", None, {"argument": {}}, {"arguments": []}, {"arguments": "{}"},
        {"timeout": "5"}, {"timeout": 0}, {"timeout": -1}, {"timeout": 10**400},
        {"background": "yes"}, {"background": 1}, {"digest": "x" * 65}, {"provider": "nobody"},
        {"arguments": {}, "session": "ts_x"}, {"arguments": {}, "surface": "cli"},
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused_with_the_place(operator: Client, body: Any) -> None:
    answer = operator.post(CALL, content=json.dumps(body), headers=JSON)

    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["errors"][0]["place"].startswith("body")


@each_row("number", [10**30, -(10**400), 1e308, "12", "\u202e", {"deep": [[[[]]]]}, None, True])
def test_arguments_of_any_kind_end_in_a_result(operator: Client, number: Any) -> None:
    content = json.dumps({"arguments": {"number": number}})

    answer = operator.post(CALL, content=content, headers=JSON)

    assert answer.status_code == 200
    assert answer.json()["status"] in ("ok", "invalid", "failed")


@each_row(
    "query, place",
    [
        ("limit=0", "query.limit"), ("limit=201", "query.limit"), ("limit=1.0", "query.limit"),
        ("limit=%201", "query.limit"), ("limit=1_0", "query.limit"), ("limit=٣", "query.limit"),
        ("limit=1&limit=2", "query.limit"), ("all=yes", "query.all"), ("all=1", "query.all"),
        ("nope=1", "query.nope"), ("q=", "query.q"),
    ],
)  # fmt: skip
def test_a_parameter_that_does_not_fit_is_refused(operator: Client, query: str, place: str) -> None:
    answer = operator.get(f"/v1/tools?{query}")

    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["errors"][0]["place"] == place


@each_row(
    "path",
    [
        "/v1/tools/a%2Fb", "/v1/tools/%2e%2e%2f%2e%2e%2fetc", "/v1/tools/%00",
        "/v1/tools/%F0%9F%94%A5",
        "/v1/tools/" + "x" * 5_000, "/v1/calls/%2F", "/v1/approvals/%25", "/v1/outputs/%00",
        "/v1/tools/double/versions/%27%3B--", "/v1/", "/v1/tools/", "/v1//tools", "/V1/tools",
    ],
)  # fmt: skip
def test_odd_paths_are_not_found(operator: Client, path: str) -> None:
    answer = operator.get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@each_row("path", ["/v1/tools/%ff", "/v1/tools?toolkit=%ff"])
def test_an_address_that_is_no_text_is_refused(operator: Client, path: str) -> None:
    assert problem(operator.get(path)) == (400, "bad_request")


@each_row("method, path", [("POST", "/v1/tools"), ("TRACE", CALL), ("GET", CALL)])
def test_other_methods_are_refused_with_those_allowed(
    operator: Client, method: str, path: str
) -> None:
    answer = operator.request(method, path)

    assert problem(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"]


@each_row("kind", ["text/plain", "", "multipart/form-data", "application/x-www-form-urlencoded"])
def test_only_bodies_that_no_form_of_another_site_can_send_are_taken(
    operator: Client, kind: str
) -> None:
    for path, body in ((CALL, b"{}"), ("/v1/keys", b'{"name": "x", "user_id": "x"}')):
        answer = operator.post(path, content=body, headers={"content-type": kind})

        assert problem(answer) == (415, "unsupported_media_type")


def test_results_that_no_json_can_hold_are_answered_as_json(operator: Client) -> None:
    file = SentFile(name="f", data=b"\xff")
    value = {"\udfff": float("inf"), "x": [float("nan"), float("-inf")]}
    result = Result(
        call_id="1", tool="t", status=Status.OK, text="\ud800", value=value, files=(file,)
    )
    source = 'def half() -> str:\n    """Give half a character."""\n    return chr(0xD800)\n'

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    encoded = json.loads(to_json(result), parse_constant=refuse)
    answer = operator.post("/v1/run", json={"source": source})

    assert (encoded["text"], encoded["files"][0]["data"]) == ("\ud800", "/w==")
    assert list(encoded["value"].values()) == [None, [None, None]]
    assert answer.status_code == 200
