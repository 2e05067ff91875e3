"""What an operator asks of a server over HTTP: rules, sandbox, environments, settings, fleet."""

import asyncio
import os
from collections.abc import Iterator

import httpx2
import pytest

from sandbox.environments.index import wheel
from toolkiln.config import load

from .serving import FILES, SOON, Serving

SETTINGS = """
policy = "deny"
audit_key = "a-secret-for-the-audit"
telemetry = "http://ann:open-sesame@127.0.0.1:1/traces"

[privileges]
"ann" = ["APPROVE"]
"group:staff" = ["WRITE_TOOLS"]

[[rules]]
effect = "ask"
groups = ["staff"]
tools = ["pay"]
reason = "money is at stake"

[[rules]]
effect = "allow"
groups = ["staff"]

[[rules]]
effect = "deny"
groups = ["staff"]
"""

NEEDY = '''
from toolkiln import tool


@tool(requirements=["alpha"])
def need() -> str:
    """Need a package."""
    return "had"
'''


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a file of settings, and an option that goes before it."""
    folder = tmp_path_factory.mktemp("ruled")
    (folder / "toolkiln.toml").write_text(SETTINGS)
    wheel(folder / "links", "alpha", "1.0")
    environ = {
        **os.environ,
        "TOOLKILN_SESSION_SECONDS": "77",
        "UV_CACHE_DIR": str(folder / "cache"),
        "UV_FIND_LINKS": str(folder / "links"),
        "UV_NO_INDEX": "1",
    }
    read = load(folder, environ)
    given = {name: value for name, value in vars(read).items() if name != "state"}
    serving = Serving(folder, **{**given, "port": 1234})
    files = {"risky.py": FILES["risky.py"], "failing.py": FILES["failing.py"], "needy.py": NEEDY}
    serving.write(files)
    with serving.running():
        yield serving


@pytest.fixture
def admin(ruled: Serving) -> Iterator[httpx2.Client]:
    with ruled.client() as client:
        yield client


class TestRules:
    def test_are_listed_with_those_that_never_decide(self, admin: httpx2.Client) -> None:
        told = admin.get("/v1/rules").json()

        assert [rule["effect"] for rule in told["items"]] == ["ask", "allow", "deny"]
        assert [rule["shadowed_by"] for rule in told["items"]] == [None, None, 2]
        assert told["items"][0]["conditions"] == 'groups = ["staff"], tools = ["pay"]'
        assert told["items"][0]["reason"] == "money is at stake"
        assert told["policy"] == "deny"
        assert told["privileges"] == {"ann": ["APPROVE"], "group:staff": ["WRITE_TOOLS"]}

    def test_are_explained_for_somebody_who_might_call(self, admin: httpx2.Client) -> None:
        staff = {"user": "bea", "group": ["staff", "night"], "tool": "pay"}
        asked = admin.get("/v1/rules/explain", params=staff).json()
        denied = admin.get("/v1/rules/explain", params={"user": "eve", "tool": "fail"}).json()

        assert (asked["effect"], asked["rule"]) == ("ask", 1)
        assert 'tools = ["pay"]' in asked["text"]
        assert asked["approvals"] == ["the rules", "pay, before every call"]
        assert (denied["effect"], denied["rule"], denied["text"]) == ("deny", None, None)

    def test_are_not_explained_for_a_tool_that_is_not_there(self, admin: httpx2.Client) -> None:
        unknown = admin.get("/v1/rules/explain", params={"user": "eve", "tool": "nope"})
        nobody = admin.get("/v1/rules/explain", params={"user": "", "tool": "fail"})

        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_tool")
        assert nobody.status_code == 422


class TestSettings:
    def test_are_told_with_where_they_come_from_and_without_passwords(
        self, ruled: Serving, admin: httpx2.Client
    ) -> None:
        answer = admin.get("/v1/settings")

        told = {one["name"]: one for one in answer.json()["items"]}
        file = str(ruled.folder / "toolkiln.toml")
        assert (told["policy"]["value"], told["policy"]["origin"]) == ("deny", file)
        assert told["policy"]["live"]
        assert not told["port"]["live"]
        assert (told["port"]["value"], told["port"]["origin"]) == (1234, "program")
        assert told["session_seconds"]["origin"] == "TOOLKILN_SESSION_SECONDS"
        assert (told["host"]["value"], told["host"]["origin"]) == ("127.0.0.1", "default")
        assert (told["audit_key"]["value"], told["audit_key"]["hidden"]) == (None, True)
        assert (told["redis"]["value"], told["redis"]["hidden"]) == ("", False)
        assert told["telemetry"]["value"] == "http://…@127.0.0.1:1/traces"
        assert not {"environ", "given", "seen"} & told.keys()
        assert "sesame" not in answer.text
        assert "a-secret-for" not in answer.text


class TestUpkeep:
    def test_the_sandbox_is_tried_out(self, admin: httpx2.Client) -> None:
        told = admin.get("/v1/doctor").json()

        assert [trial["mode"] for trial in told["trials"]] == ["A", "B", "C"]
        assert told["mode"] in {trial["mode"] for trial in told["trials"] if trial["works"]}
        assert {"kernel", "bwrap"} <= told["facts"].keys()

    def test_environments_are_listed_and_pruned(self, ruled: Serving, admin: httpx2.Client) -> None:
        building = ruled.kiln.engine.build_environment("need", lambda *_: None)
        asyncio.run_coroutine_threadsafe(building, ruled.loop).result(SOON)

        (listed,) = admin.get("/v1/environments").json()["items"]
        kept = admin.post("/v1/environments/prune", json={"days": 30})
        removed = admin.post("/v1/environments/prune", json={"days": 0})
        wrong = admin.post("/v1/environments/prune", json={"days": -1})

        assert (listed["packages"], listed["requirements"]) == ({"alpha": "1.0"}, [["alpha"]])
        assert listed["built"] > 1e9
        assert kept.json() == {"items": []}
        assert [one["key"] for one in removed.json()["items"]] == [listed["key"]]
        assert admin.get("/v1/environments").json() == {"items": []}
        assert wrong.status_code == 422

    def test_without_redis_there_is_no_fleet(self, admin: httpx2.Client) -> None:
        assert admin.get("/v1/fleet").json() == {"state": None}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/rules",
        "/v1/rules/explain?user=ann&tool=double",
        "/v1/doctor",
        "/v1/environments",
        "/v1/fleet",
        "/v1/settings",
    ],
)
def test_what_an_operator_sees_takes_admin(ann: httpx2.Client, path: str) -> None:
    refused = ann.get(path)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert ann.post("/v1/environments/prune", json={"days": 1}).status_code == 403
