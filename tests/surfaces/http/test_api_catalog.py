"""`/v1/catalog` as a page uses it: everything at one look, for whoever may see it."""

import gzip
from typing import Any

import httpx2
import pytest

from toolkiln.model.identity import Privilege
from toolkiln.surfaces.http.adapter import accepts_gzip

from .serving import TRIPLE, Serving

LOOKS = '''
from toolkiln import method_metadata, tool, tool_metadata


@tool(name="weigh", icon="scale", color="bg-sky-100", weight=5, is_core=True, read_only=True,
      network=["api.example.org"], requires_secrets=["KEY"], workspace="read")
def weigh_things(things: list[str]) -> float:
    """Weigh things together.

    Each is put on the scale.
    """
    return 1.0


@tool(visible=False)
def whisper(anything: dict) -> str:
    """Say it quietly."""
    return ""


@tool_metadata(display_name="The Desk", icon="lamp-desk", color="#123456", weight=1, visible=True)
class Desk:
    """Things on a desk."""

    @method_metadata(icon="sun")
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
    serving.write({"appearance.py": LOOKS, "three.py": TRIPLE})
    with serving.running():
        yield serving


def catalog(client: httpx2.Client) -> dict[str, Any]:
    answer = client.get("/v1/catalog")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def cards(client: httpx2.Client) -> dict[str, dict[str, Any]]:
    return {card["name"]: card for card in catalog(client)["tools"]}


def test_everything_comes_by_weight_then_name(operator: httpx2.Client) -> None:
    found = catalog(operator)

    names = [card["name"] for card in found["tools"]]
    assert names == ["clear", "light", "weigh", "double", "triple", "whisper"]
    assert found["hidden"] == 1
    assert found["toolkits"] == [
        {
            "name": "Desk",
            "title": "The Desk",
            "description": "Things on a desk.",
            "icon": "lamp-desk",
            "color": "#123456",
            "weight": 1,
            "is_core": False,
            "enabled": True,
        }
    ]


def test_a_card_has_what_is_seen_of_a_tool(operator: httpx2.Client) -> None:
    found = cards(operator)

    assert found["weigh"] == {
        "name": "weigh",
        "title": "Weigh Things",
        "toolkit": None,
        "summary": "Weigh things together.",
        "role": "tool",
        "icon": "scale",
        "color": "#0ea5e9",
        "weight": 5,
        "is_core": True,
        "is_shown": True,
        "read_only": True,
        "health": "STRICT_COMPLIANT",
        "rights": {
            "network": ["api.example.org"],
            "secrets": ["KEY"],
            "workspace": "read",
            "sandbox": True,
            "needs_approval": False,
        },
        "state": "served",
        "has_proposal": False,
        "dev": False,
    }
    assert (found["whisper"]["is_shown"], found["whisper"]["health"]) == (False, "NON_STRICT_ONLY")
    looks = {name: (found[name]["icon"], found[name]["color"]) for name in ("light", "clear")}
    assert looks == {"light": ("sun", "#123456"), "clear": ("lamp-desk", "#123456")}


def test_what_is_switched_off_is_there_for_people_with_admin_only(
    operator: httpx2.Client, ann: httpx2.Client
) -> None:
    operator.patch("/v1/toolkits/Desk", json={"methods": {"light": False}})
    some, unseen = cards(operator), cards(ann)
    operator.patch("/v1/toolkits/Desk", json={"enabled": False})
    none, nothing = catalog(operator), catalog(ann)
    operator.patch("/v1/toolkits/Desk", json={})

    assert (some["light"]["state"], some["clear"]["state"]) == ("disabled", "served")
    assert "light" not in unseen
    assert [kit["enabled"] for kit in none["toolkits"]] == [False]
    assert nothing["toolkits"] == []


def test_what_waits_to_be_admitted_is_there_for_people_with_admin_only(
    api: Serving, operator: httpx2.Client
) -> None:
    another = TRIPLE.replace("triple", "thrice")
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
        written = [
            bob.put("/v1/tools/thrice", json={"source": another}),
            bob.put("/v1/tools/triple", json={"source": TRIPLE.replace("* 3", "* 3.0")}),
        ]
        unseen = cards(bob)
    seen = cards(operator)

    assert [answer.status_code for answer in written] == [202, 202]
    told = {
        name: (seen[name]["state"], seen[name]["has_proposal"]) for name in ("thrice", "triple")
    }
    assert told == {"thrice": ("proposed", True), "triple": ("served", True)}
    assert "thrice" not in unseen
    assert not unseen["triple"]["has_proposal"]


def test_what_a_caller_may_not_run_is_not_there(api: Serving) -> None:
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


def test_it_is_compressed_for_clients_that_take_that(operator: httpx2.Client) -> None:
    with operator.stream("GET", "/v1/catalog", headers={"accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    plain = operator.get("/v1/catalog", headers={"accept-encoding": "identity"})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert gzip.decompress(packed) == plain.content
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("accepted", "takes"),
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
def test_a_client_says_whether_it_takes_compressed_answers(accepted: str, takes: bool) -> None:
    assert accepts_gzip(accepted) is takes
