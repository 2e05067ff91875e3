"""The views of an operator over HTTP: rules, sandbox, environments, settings, fleet."""

from pathlib import Path
from typing import Any

from httpx2 import Client

from tables import each_row
from toolkiln.config import load

from .serving import FILES, Serving, problem

SETTINGS = """
policy = "deny"
audit_key = "a-secret-for-the-audit"
telemetry = "http://ann:open-sesame@127.0.0.1:1/traces"

[[rules]]
effect = "ask"
groups = ["staff"]
tools = ["pay"]

[[rules]]
effect = "allow"
groups = ["staff"]

[[rules]]
effect = "deny"
groups = ["staff"]
"""


def test_rules_and_settings_are_shown_with_their_origins_and_without_passwords(
    tmp_path: Path,
) -> None:
    (tmp_path / "toolkiln.toml").write_text(SETTINGS)
    read = vars(load(tmp_path, {"TOOLKILN_SESSION_SECONDS": "77"}))
    given = {name: value for name, value in read.items() if name not in ("state", "environ")}
    serving = Serving(tmp_path, **{**given, "port": 1234})
    serving.write({"risky.py": FILES["risky.py"], "failing.py": FILES["failing.py"]})
    with serving.running(), serving.client() as admin:
        answer = admin.get("/v1/settings")
        rules = admin.get("/v1/rules").json()["items"]
        asked, denied, unknown, nameless = (
            admin.get("/v1/rules/explain", params=query)
            for query in (
                {"user": "bea", "group": ["staff", "night"], "tool": "pay"},
                {"user": "eve", "tool": "fail"},
                {"user": "eve", "tool": "nope"},
                {"user": "", "tool": "fail"},
            )
        )

    listed = {one["name"]: one for one in answer.json()["items"]}
    origins = {
        name: (listed[name]["value"], listed[name]["origin"])
        for name in ("policy", "port", "session_seconds", "host")
    }
    assert origins == {
        "policy": ("deny", str(tmp_path / "toolkiln.toml")),
        "port": (1234, "program"),
        "session_seconds": (77.0, "TOOLKILN_SESSION_SECONDS"),
        "host": ("127.0.0.1", "default"),
    }
    assert (listed["audit_key"]["value"], listed["audit_key"]["hidden"]) == (None, True)
    assert listed["telemetry"]["value"] == "http://…@127.0.0.1:1/traces"
    assert not {"environ", "given", "seen"} & listed.keys()
    assert "sesame" not in answer.text
    assert "a-secret-for" not in answer.text
    assert [rule["shadowed_by"] for rule in rules] == [None, None, 2]
    assert (asked.json()["effect"], asked.json()["rule"]) == ("ask", 1)
    assert asked.json()["approvals"] == ["the rules", "pay, before every call"]
    assert [denied.json()[key] for key in ("effect", "rule", "text")] == ["deny", None, None]
    assert problem(unknown) == (404, "unknown_tool")
    assert nameless.status_code == 422


@each_row(
    "method, path, body",
    [
        ("GET", "/v1/rules", None),
        ("GET", "/v1/rules/explain?user=ann&tool=double", None),
        ("GET", "/v1/doctor", None),
        ("GET", "/v1/environments", None),
        ("GET", "/v1/fleet", None),
        ("GET", "/v1/settings", None),
        ("POST", "/v1/environments/prune", {"days": 1}),
        ("POST", "/v1/schema", {"source": "def f() -> int:\n    return 1"}),
        ("GET", "/v1/tools/measure/settings", None),
        ("PATCH", "/v1/tools/measure/settings", {"values": {"unit": "x"}}),
    ],
)
def test_the_views_of_an_operator_require_a_privilege(
    ann: Client, method: str, path: str, body: Any
) -> None:
    assert problem(ann.request(method, path, json=body)) == (403, "not_allowed")
