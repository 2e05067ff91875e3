"""`/v1/catalog` as a page uses it: all tools that the caller may see, in one answer."""

import gzip
from typing import Any

import pytest
from httpx2 import Client

from tables import each_row
from toolkiln.model.identity import Privilege
from toolkiln.surfaces.http.adapter import accepts_gzip

from .serving import TRIPLE, Serving

DESK = '''
from toolkiln import method_metadata, tool_metadata


@tool_metadata(display_name="The Desk", visible=True)
class Desk:
    """Things on a desk."""

    @method_metadata()
    def light(self) -> str:
        """Make it bright."""
        return ""

    @method_metadata()
    def clear(self) -> str:
        """Take everything away."""
        return ""
'''


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose new tools wait for a person."""
    serving = Serving(tmp_path_factory.mktemp("catalog"), authoring="propose")
    serving.write({"desk.py": DESK, "three.py": TRIPLE})
    with serving.running():
        yield serving


def catalog(client: Client) -> dict[str, Any]:
    answer = client.get("/v1/catalog")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def cards(client: Client) -> dict[str, dict[str, Any]]:
    return {card["name"]: card for card in catalog(client)["tools"]}


def test_only_people_with_admin_see_what_is_disabled(operator: Client, ann: Client) -> None:
    operator.patch("/v1/toolkits/Desk", json={"methods": {"light": False}})
    some, unseen = cards(operator), cards(ann)
    operator.patch("/v1/toolkits/Desk", json={"enabled": False})
    disabled, hidden = catalog(operator), catalog(ann)
    operator.patch("/v1/toolkits/Desk", json={})

    assert (some["light"]["state"], some["clear"]["state"]) == ("disabled", "served")
    assert "light" not in unseen
    assert [kit["enabled"] for kit in disabled["toolkits"]] == [False]
    assert hidden["toolkits"] == []


def test_only_people_with_admin_see_what_waits_to_be_admitted(
    api: Serving, operator: Client
) -> None:
    thrice = TRIPLE.replace("triple", "thrice")
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
        written = [
            bob.put(f"/v1/tools/{name}", json={"source": source})
            for name, source in (("thrice", thrice), ("triple", TRIPLE.replace("* 3", "* 3.0")))
        ]
        unseen = cards(bob)
    seen = cards(operator)

    assert [answer.status_code for answer in written] == [202, 202]
    assert (seen["thrice"]["state"], seen["thrice"]["has_proposal"]) == ("proposed", True)
    assert (seen["triple"]["state"], seen["triple"]["has_proposal"]) == ("served", True)
    assert "thrice" not in unseen
    assert not unseen["triple"]["has_proposal"]


def test_tools_that_a_caller_may_not_run_are_left_out(api: Serving) -> None:
    with api.client(api.session("eve", tools=["double"])) as eve:
        found = catalog(eve)

    assert [card["name"] for card in found["tools"]] == ["double"]
    assert (found["toolkits"], found["hidden"]) == ([], 0)


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
