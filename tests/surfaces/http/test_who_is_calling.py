"""Who a request acts for on this machine: the local person, an anonymous caller, a key's user."""

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authentication, Authenticator
from toolkiln.security.sessions import account_name

from ..conftest import BOUND
from .served import SETTINGS, TOOLS, Answer, Served, bearer, make_shell, serving, until

MORE = '''

@tool(requires_secrets=["PASSWORD"])
def send_mail(to: str, ctx: Context) -> str:
    """Send a mail to one address."""
    return "sent"


@tool(sandbox=False)
def restart(name: str) -> str:
    """Restart a service of this machine."""
    return name


@tool(workspace="read")
def count_files(folder: str) -> int:
    """Count the files of a folder in the workspace."""
    return len(list(Path("/workspace", folder).iterdir()))


@tool(needs_approval=True)
def pay(amount: int) -> int:
    """Pay an amount."""
    return amount


class Account(BaseModel):
    key: SecretStr = SecretStr("")


@tool(settings=Account)
def order(thing: str, ctx: Context) -> str:
    """Order a thing from a shop."""
    return thing
'''
RULES = """
[[rules]]
effect = "allow"
users = ["anonymous"]
tools = ["linger"]

[[rules]]
effect = "ask"
tools = ["repeat"]
approve_own = false

[grants.greet]
secrets = ["PASSWORD"]
"""
RESTRICTED = {"send_mail", "restart", "count_files", "order"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with admitted tools that request permissions of every kind."""
    shell = make_shell(tmp_path_factory.mktemp("loopback"), RULES + SETTINGS)
    source = f"from pydantic import BaseModel, SecretStr\n{TOOLS}{MORE}"
    (shell.folder / "tools" / "tools.py").write_text(source)
    admitted = shell.invoke("admit", "--yes")
    assert admitted.code == 0, admitted.err
    shell.invoke("secrets", "set", "PASSWORD", stdin="hunter2")
    with serving(shell) as served:
        yield served


def get(served: Served, path: str, **headers: str) -> Answer:
    """The answer to an anonymous caller."""
    return served.ask_plainly("GET", path, headers=headers)


def post(served: Served, path: str, body: Any = None, **headers: str) -> Answer:
    return served.ask_plainly("POST", path, {} if body is None else body, headers)


def names(answer: Answer) -> set[str]:
    return {tool["name"] for tool in answer.json()["items"]}


# The start-up link


def test_the_start_up_link_signs_the_local_person_in_and_the_page_out(served: Served) -> None:
    token = served.start_up

    answer = get(served, f"/ui/login?token={token}", **{"Sec-Fetch-Site": "cross-site"})
    page = {"Cookie": answer.headers["set-cookie"].partition(";")[0], "X-Toolkiln-Page": "1"}
    before = get(served, "/v1/sessions/own", **page)
    left = post(served, "/ui/logout", **page)
    after = get(served, "/v1/sessions/own", **page)
    records = served.ask("GET", "/v1/audit?limit=200").text

    own = before.json()
    assert answer.status == 303
    assert answer.headers["location"] == "/ui/"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    assert (own["kind"], own["user"]) == ("local", account_name())
    assert {"ADMIN", "APPROVE", "WRITE_TOOLS", "UNSANDBOXED_EXEC"} <= set(own["privileges"])
    assert [before.status, left.status, after.status] == [200, 204, 401]
    assert '"act":"login"' in records.replace(" ", "")
    assert "start-up token" in records
    assert token not in records


def test_a_link_works_once_and_the_terminal_shows_the_next_one(served: Served) -> None:
    before = served.start_up

    first = get(served, f"/ui/login?token={before}")
    until(lambda: served.start_up != before, "another link")
    again = get(served, f"/ui/login?token={before}")
    fresh = get(served, f"/ui/login?token={served.start_up}")

    assert [first.status, again.status, fresh.status] == [303, 303, 303]
    assert again.headers["location"] == "/ui/login?link=refused"
    assert "set-cookie" not in again.headers
    assert "set-cookie" in fresh.headers


def test_neither_a_prefetch_nor_a_head_nor_a_proxy_uses_the_link_up(served: Served) -> None:
    path = f"/ui/login?token={served.start_up}"

    prefetched = get(served, path, **{"Sec-Purpose": "prefetch;prerender"})
    head = served.ask_plainly("HEAD", path)
    forwarded = get(served, path, **{"X-Forwarded-For": "10.0.0.1"})
    opened = get(served, path)

    assert prefetched.status == 403
    assert forwarded.headers["location"] == "/ui/login?link=refused"
    assert not any("set-cookie" in one.headers for one in (prefetched, head, forwarded))
    assert "set-cookie" in opened.headers


@each_row("token", ["", "x", "%00", "%C3%A4", "%ff", "tk_wrong", "x" * 5_000])
def test_a_wrong_token_does_not_sign_in(served: Served, token: str) -> None:
    answer = get(served, f"/ui/login?token={token}")

    assert answer.status == (303 if token else 200)
    assert "set-cookie" not in answer.headers


# Anonymous callers


def test_anonymous_callers_see_and_call_tools_that_request_nothing(served: Served) -> None:
    own = get(served, "/v1/sessions/own").json()
    seen = names(get(served, "/v1/tools?limit=200"))
    result = post(served, "/v1/tools/greet/call", {"arguments": {"name": "Ada"}}).json()

    assert (own["kind"], own["user"], own["privileges"]) == ("anonymous", "anonymous", [])
    assert {"greet", "pay"} <= seen
    assert not seen & RESTRICTED
    assert names(served.ask("GET", "/v1/tools?limit=200")) >= RESTRICTED
    assert result["value"] == "Hello Ada"


@each_row("tool", sorted(RESTRICTED))
def test_tools_with_secrets_a_workspace_or_no_sandbox_do_not_exist_for_anonymous_callers(
    served: Served, tool: str
) -> None:
    shown = get(served, f"/v1/tools/{tool}")
    called = post(served, f"/v1/tools/{tool}/call", {"arguments": {}})
    over_mcp = served.call_over_mcp(tool, {}, anonymous=True)

    assert (shown.status, shown.code) == (404, "unknown_tool")
    assert (called.status, called.code) == (404, "unknown_tool")
    assert "nknown tool" in str(over_mcp) or "no tool" in str(over_mcp)


def test_a_rule_that_names_anonymous_allows_such_a_tool_and_the_policy_is_explained(
    served: Served,
) -> None:
    arguments = {"name": "note", "seconds": 0}

    result = post(served, "/v1/tools/linger/call", {"arguments": arguments}).json()
    refused = served.shell.invoke("policy", "explain", "anonymous", "send_mail")
    named = served.shell.invoke("policy", "explain", "anonymous", "linger")

    assert result["value"] == "done"
    assert "asks for secrets" in refused.out
    assert 'users = ["anonymous"]' in refused.out
    assert "allow" in named.out


def test_anonymous_callers_pass_no_secret_as_an_argument(served: Served) -> None:
    arguments = {"arguments": {"name": "secret:PASSWORD"}}

    anonymous = post(served, "/v1/tools/greet/call", arguments).json()
    local = served.ask("POST", "/v1/tools/greet/call", arguments).json()

    assert (anonymous["status"], anonymous["error"]["code"]) == ("denied", "not_allowed")
    assert local["status"] == "ok"


@each_row(
    "method, path, body",
    [
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"name": "mine", "user_id": "me"}),
        ("GET", "/v1/sessions", None),
        ("POST", "/v1/sessions", {"user_id": "me"}),
        ("GET", "/v1/audit", None),
        ("GET", "/v1/settings", None),
        ("GET", "/v1/rules", None),
        ("GET", "/v1/proposals", None),
        ("POST", "/v1/run", {"source": "def f() -> int:\n    return 1\n"}),
    ],
)
def test_anonymous_callers_do_not_administer(
    served: Served, method: str, path: str, body: Any
) -> None:
    answer = served.ask_plainly(method, path, body)

    assert (answer.status, answer.code) == (403, "not_allowed")
    assert answer.json()["hint"].startswith("sign in")


def test_anonymous_callers_see_no_calls_of_each_other(served: Served) -> None:
    task = post(served, "/v1/tools/greet/call", {"arguments": {"name": "A"}, "background": True})
    task_id = task.json()["id" if task.status == 202 else "call_id"]  # it may have ended

    runs, calls, approvals = (
        get(served, path).json()["items"]
        for path in ("/v1/runs", "/v1/calls", "/v1/approvals?state=all")
    )
    minutes = get(served, "/v1/statistics").json()["minutes"]
    by_id = get(served, f"/v1/calls/{task_id}?wait=30").json()

    assert (runs, calls, approvals) == ([], [], [])
    assert not any(minute["outcomes"] for minute in minutes)
    assert by_id["result"]["value"] == "Hello A"


def test_anonymous_callers_share_neither_idempotency_keys_nor_settings(served: Served) -> None:
    arguments, values = {"arguments": {"name": "Ada"}}, {"values": {"key": "x"}}

    key = post(served, "/v1/tools/greet/call", arguments, **{"Idempotency-Key": "1"})
    setting = served.ask_plainly("PATCH", "/v1/tools/greet/settings?own=true", values)

    assert (key.status, key.code) == (403, "not_allowed")
    assert "sign in" in key.json()["hint"]
    assert setting.status in (403, 404)


def test_the_name_anonymous_is_reserved(served: Served, tmp_path: Path) -> None:
    shell = make_shell(tmp_path, f'[privileges]\nanonymous = ["ADMIN"]\n{SETTINGS}')

    key = served.shell.invoke("keys", "create", "k", "--user", "anonymous")
    session = served.shell.invoke("sessions", "create", "anonymous")
    listed = shell.invoke("list")

    assert (key.code, session.code, listed.code) == (2, 2, 2)
    assert "reserved" in key.err
    assert "reserved" in session.err
    assert "anonymous callers have no privileges" in listed.err


# Which mode applies


@each_row(
    "setting, has_key, mode",
    [
        ("auto", False, "anonymous callers allowed (127.0.0.1, no API keys)"),
        ("auto", True, "credentials required (the project has API keys)"),
        (True, False, "credentials required (require_key is set)"),
        (False, True, "anonymous callers allowed (127.0.0.1, require_key = false)"),
    ],
)
def test_the_setting_and_the_keys_decide_whether_a_credential_is_required(
    setting: Any, has_key: bool, mode: str
) -> None:
    authentication = Authentication(Settings(require_key=setting), lambda: has_key)

    assert str(authentication.mode()) == mode
    assert authentication.mode().allows_anonymous is mode.startswith("anonymous")


def test_with_auto_a_valid_key_ends_anonymous_calls_and_its_revocation_allows_them(
    tmp_path: Path,
) -> None:
    shell = make_shell(tmp_path)
    shell.invoke("keys", "create", "expired", "--user", "ann", "--days", "0.00001")
    with serving(shell) as served:
        until(lambda: get(served, "/v1/tools").status == 200, "the expiry takes effect")
        shell.invoke("keys", "create", "one", "--user", "ann")
        until(lambda: get(served, "/v1/tools").status == 401, "the key takes effect")
        refused = get(served, "/v1/tools").json()
        local = served.ask("GET", "/v1/tools").status
        over_mcp = post(served, "/mcp").status
        shell.invoke("keys", "revoke", "one")
        until(lambda: get(served, "/v1/tools").status == 200, "the revocation takes effect")

    assert (local, over_mcp) == (200, 401)
    assert "the project has API keys" in refused["detail"]


# Approving their own calls


def asking(served: Served, tool: str, arguments: dict[str, Any]) -> tuple[HTTPConnection, str]:
    """A call of the local person that waits, and the id of its approval."""
    connection = HTTPConnection(served.host, served.port, timeout=BOUND)
    headers = {**bearer(served.token), "Accept": "text/event-stream"}
    headers["Content-Type"] = "application/json"
    body = json.dumps({"arguments": arguments})
    connection.request("POST", f"/v1/tools/{tool}/call", body, headers)
    response = connection.getresponse()
    text = b""
    while not (found := re.search(rb'"text": ?"([0-9a-f]{12})"', text)):
        text += response.read1()
    return connection, found[1].decode()


def test_the_local_person_approves_their_own_call_and_the_audit_says_so(served: Served) -> None:
    connection, approval = asking(served, "pay", {"amount": 3})

    approved = served.ask("POST", f"/v1/approvals/{approval}/approve", {"reason": "tried"})
    connection.close()
    shown = served.shell.invoke("audit", "list", "--act", "approve").out

    assert approved.status == 200
    assert approved.json()["self_approved"] is True
    assert "self-approved" in shown


def test_a_rule_that_says_approve_own_false_binds_the_local_person_too(served: Served) -> None:
    connection, approval = asking(served, "repeat", {"text": "a", "times": 1})

    refused = served.ask("POST", f"/v1/approvals/{approval}/approve", {})
    at_terminal = served.shell.invoke("approvals", "approve", approval)
    connection.close()

    assert (refused.status, refused.code) == (403, "not_allowed")
    assert at_terminal.code != 0
    assert "approve_own = false" in at_terminal.err


def test_a_key_of_the_same_name_does_not_approve_the_local_person_s_call(served: Served) -> None:
    scope = {"name": "same", "user_id": account_name(), "privileges": ["APPROVE"]}
    key = served.ask("POST", "/v1/keys", scope).json()["key"]
    connection, approval = asking(served, "pay", {"amount": 4})

    refused = served.ask("POST", f"/v1/approvals/{approval}/approve", {}, bearer(key))
    connection.close()
    served.ask("DELETE", "/v1/keys/same")

    assert (refused.status, refused.code) == (403, "not_allowed")


# Agents over stdio


def test_an_agent_over_stdio_is_the_account_s_and_has_no_privileges(tmp_path: Path) -> None:
    with Kiln(tmp_path, settings=Settings(state=tmp_path / "state")) as kiln:
        entrance = Authenticator(kiln.security, kiln.settings)
        caller = kiln.security.caller(entrance.agent())

    assert caller.who == f"mcp:{account_name()}"
    assert caller.privileges == frozenset()
    assert not caller.is_anonymous
