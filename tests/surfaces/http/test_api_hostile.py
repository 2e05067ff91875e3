"""Requests that were not meant well: every one gets a clear answer, and the server goes on."""

import json
from typing import Any

import httpx2
import pytest

from toolkiln.model.call import Result, SentFile, Status
from toolkiln.surfaces.http.responses import to_json

from .serving import Serving

CALL = "/v1/tools/double/call"
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def alive(operator: httpx2.Client) -> Any:
    """Whatever was sent, the next call is answered as ever."""
    yield
    answer = operator.post(CALL, json={"arguments": {"number": 2}})
    assert answer.json()["value"] == 4


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"nonsense", b"\xff\xfe", b'{"arguments": {"number": NaN}}', b"\x00",
        b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b'{"arguments": {"number": 1}} extra',
    ],
)  # fmt: skip
def test_what_is_no_json_is_told_so(operator: httpx2.Client, body: bytes) -> None:
    answer = operator.post(CALL, content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_json")


@pytest.mark.parametrize(
    "body",
    [
        [], 5, "text", None, {"argument": {}}, {"arguments": []}, {"arguments": "{}"},
        {"timeout": "5"}, {"timeout": 0}, {"timeout": -1}, {"timeout": 10**400},
        {"background": "yes"}, {"background": 1}, {"digest": "x" * 65}, {"provider": "nobody"},
        {"arguments": {}, "session": "ts_x"}, {"arguments": {}, "surface": "cli"},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_by_place(operator: httpx2.Client, body: Any) -> None:
    answer = operator.post(CALL, content=json.dumps(body), headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["place"].startswith("body")


@pytest.mark.parametrize(
    "number", [10**30, -(10**400), 1e308, "12", "\u202e", {"deep": [[[[]]]]}, None, True]
)
def test_arguments_of_any_kind_end_in_a_result(operator: httpx2.Client, number: Any) -> None:
    content = json.dumps({"arguments": {"number": number}})

    answer = operator.post(CALL, content=content, headers=JSON)

    assert answer.status_code == 200
    assert answer.json()["status"] in ("ok", "invalid", "failed")


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("limit=0", "query.limit"), ("limit=201", "query.limit"), ("limit=1.0", "query.limit"),
        ("limit=%201", "query.limit"), ("limit=1_0", "query.limit"), ("limit=٣", "query.limit"),
        ("limit=1&limit=2", "query.limit"), ("all=yes", "query.all"), ("all=1", "query.all"),
        ("nope=1", "query.nope"), ("q=", "query.q"),
    ],
)  # fmt: skip
def test_parameters_mean_what_they_say(operator: httpx2.Client, query: str, place: str) -> None:
    answer = operator.get(f"/v1/tools?{query}")

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["place"] == place


def test_a_query_that_is_no_text_is_refused(operator: httpx2.Client) -> None:
    answer = operator.get("/v1/tools?toolkit=%ff")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tools/a%2Fb", "/v1/tools/%2e%2e%2f%2e%2e%2fetc", "/v1/tools/%00",
        "/v1/tools/%F0%9F%94%A5",
        "/v1/tools/" + "x" * 5_000, "/v1/calls/%2F", "/v1/approvals/%25", "/v1/outputs/%00",
        "/v1/tools/double/versions/%27%3B--", "/v1/", "/v1/tools/", "/v1//tools", "/V1/tools",
    ],
)  # fmt: skip
def test_odd_paths_lead_nowhere(operator: httpx2.Client, path: str) -> None:
    answer = operator.get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_path_that_is_no_text_is_refused(operator: httpx2.Client) -> None:
    answer = operator.get("/v1/tools/%ff")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/tools"), ("TRACE", CALL), ("GET", CALL)]
)
def test_other_methods_are_told_which_there_are(
    operator: httpx2.Client, method: str, path: str
) -> None:
    answer = operator.request(method, path)

    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"]


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_body_of_another_kind_is_refused(operator: httpx2.Client, kind: str) -> None:
    answer = operator.post(CALL, content=b"{}", headers={"content-type": kind})

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_a_page_of_another_site_can_post_nothing(operator: httpx2.Client) -> None:
    """Only bodies that a browser asks about first are taken for bodies."""
    forms = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded")

    body = b'{"name": "x", "user_id": "x"}'
    answers = [
        operator.post("/v1/keys", content=body, headers={"content-type": form}) for form in forms
    ]

    assert {answer.status_code for answer in answers} == {415}


def test_halves_of_characters_and_bytes_are_answered_as_json() -> None:
    result = Result(
        call_id="1",
        tool="t",
        status=Status.OK,
        text="\ud800",
        value={"\udfff": float("inf")},
        files=(SentFile(name="f", data=b"\xff"),),
    )

    told = json.loads(to_json(result))

    assert (told["text"], told["files"][0]["data"]) == ("\ud800", "/w==")


def test_infinities_are_answered_as_json() -> None:
    result = Result(call_id="1", tool="t", status=Status.OK, value=[float("nan"), float("-inf")])

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    assert json.loads(to_json(result), parse_constant=refuse)["value"] == [None, None]


def test_a_tool_that_gives_half_a_character_is_answered(
    api: Serving, operator: httpx2.Client
) -> None:
    source = 'def half() -> str:\n    """Give half a character."""\n    return chr(0xD800)\n'

    answer = operator.post("/v1/run", json={"source": source})

    assert answer.status_code == 200
