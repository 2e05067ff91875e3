"""`/v1/catalog` as a page uses it: all tools that the caller may see, in one answer."""

import gzip
from typing import Any

import pytest
from httpx2 import Client

from tables import each_row
from toolkiln.surfaces.http.adapter import accepts_gzip

from .serving import Serving


def catalog(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/catalog").json()
    return found


def states(client: Client) -> dict[str, str]:
    return {card["name"]: card["state"] for card in catalog(client)["tools"]}


def test_only_people_with_admin_see_disabled_tools(operator: Client, ann: Client) -> None:
    operator.patch("/v1/toolkits/Shelf", json={"methods": {"put_up": False}})
    some, unseen = states(operator), states(ann)
    kit, own_kit = (client.get("/v1/toolkits/Shelf").json() for client in (operator, ann))
    operator.patch("/v1/toolkits/Shelf", json={"enabled": False})
    disabled, hidden = catalog(operator), catalog(ann)
    operator.patch("/v1/toolkits/Shelf", json={})

    assert (some["put_up"], some["take_down"]) == ("disabled", "served")
    assert "put_up" not in unseen
    methods = [(method["name"], method["enabled"]) for method in kit["methods"]]
    assert methods == [("put_up", False), ("take_down", True)]
    assert [method["name"] for method in own_kit["methods"]] == ["take_down"]
    assert [kit["enabled"] for kit in disabled["toolkits"]] == [False]
    assert hidden["toolkits"] == []


def test_tools_that_a_caller_may_not_run_are_left_out(api: Serving) -> None:
    with api.client(api.session("eve", tools=["double"])) as eve:
        found = catalog(eve)
        missing = eve.get("/v1/toolkits/Shelf")

    assert [card["name"] for card in found["tools"]] == ["double"]
    assert (found["toolkits"], found["hidden"]) == ([], 0)
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_a_folder_that_is_not_there_yet_is_an_empty_catalog(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    serving = Serving(tmp_path_factory.mktemp("empty"), dev=True)
    with serving.running(), serving.client() as operator:
        found = catalog(operator)

    assert found == {"toolkits": [], "tools": [], "hidden": 0}


def test_it_is_compressed_for_clients_that_accept_gzip(operator: Client) -> None:
    with operator.stream("GET", "/v1/catalog", headers={"accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    plain = operator.get("/v1/catalog", headers={"accept-encoding": "identity"})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert gzip.decompress(packed) == plain.content
    assert "content-encoding" not in plain.headers


@each_row(
    "accepted, takes",
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
    ],
)
def test_a_client_says_whether_it_accepts_gzip(accepted: str, takes: bool) -> None:
    assert accepts_gzip(accepted) is takes
