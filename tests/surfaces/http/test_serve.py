"""`toolkiln serve` as others meet it: what it answers, to whom, and how it ends."""

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .served import SETTINGS, Served, make_shell, received, serving, until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(make_shell(tmp_path_factory.mktemp("served"))) as served:
        yield served


def test_it_says_where_it_is_on_stderr(served: Served) -> None:
    assert served.err[0] == "4 tools of tools; Ctrl-C ends it"
    assert served.err[1] == "note: dev: 4 of them served as on disk, without an admission"
    assert served.err[2] == "auth: anonymous callers allowed (127.0.0.1, no API keys)"
    assert served.err[3].startswith(f"Page {served.url}/ui/login?token=")
    assert served.err[4:7] == [
        "     (this link signs you in, once; keep it private)",
        f"HTTP {served.url}/v1, described at {served.url}/docs",
        f"MCP  {served.url}/mcp",
    ]


def test_it_is_alive_and_ready(served: Served) -> None:
    alive, ready = served.ask("GET", "/healthz"), served.ask("GET", "/readyz")

    assert (alive.status, alive.json()) == (200, {"status": "ok"})
    assert ready.status == 200
    assert ready.json() == {
        "ready": True,
        "checks": {"catalog": "ok", "store": "ok", "sandbox": "ok", "server": "ok"},
    }


def test_the_same_tools_are_called_over_mcp(served: Served) -> None:
    series = 'toolkiln_tool_calls_total{outcome="ok",surface="mcp",tool="greet"}'

    answer = served.call_over_mcp("greet", {}, name="Ada")

    assert answer["result"]["structuredContent"] == {"result": "Hello Ada"}
    assert served.metric(series) == 1


def test_head_has_the_headers_of_get_and_no_body(served: Served) -> None:
    got, head = served.ask("GET", "/openapi.json"), served.ask("HEAD", "/openapi.json")

    assert head.headers["content-length"] == got.headers["content-length"]
    assert head.body == b""


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_what_is_beside_the_api_can_only_be_read(served: Served, path: str) -> None:
    refused = served.ask("POST", path)

    assert (refused.status, refused.code) == (405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD"
    assert served.ask("GET", f"{path}/below").status == 404


def test_the_description_and_its_page_are_there(served: Served) -> None:
    description, page = served.ask("GET", "/openapi.json"), served.ask("GET", "/docs")

    assert {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"} <= set(
        description.json()["paths"]
    )
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


# Host and Origin


@pytest.mark.parametrize("path", ["/healthz", "/v1/tools", "/mcp", "/docs", "/metrics"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]"]
)
def test_a_foreign_host_is_refused_everywhere(served: Served, host: str, path: str) -> None:
    refused = served.ask("GET", path, headers={"Host": host})

    assert (refused.status, refused.code) == (403, "host_refused")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]:8420", "127.9.9.9"]
)
def test_this_machine_s_names_are_taken_with_any_port(served: Served, host: str) -> None:
    assert served.ask("GET", "/healthz", headers={"Host": host}).status == 200


def test_a_request_without_a_host_or_with_two_is_refused(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        without = received(connection)
    with served.connect() as connection:
        twice = b"Host: localhost\r\nHost: evil.example\r\n"
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + twice + b"Connection: close\r\n\r\n")
        double = received(connection)

    assert b"403 Forbidden" in without
    assert b"host_refused" in without
    assert b"400 Bad Request" in double


@pytest.mark.parametrize("path", ["/healthz", "/v1/tools", "/mcp", "/docs"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://", "", "x"]
)
def test_a_foreign_origin_is_refused_everywhere(served: Served, origin: str, path: str) -> None:
    refused = served.ask("GET", path, headers={"Origin": origin})

    assert (refused.status, refused.code) == (403, "origin_refused")


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:1"])
def test_pages_of_this_machine_may_ask_but_no_page_may_read_across_origins(
    served: Served, origin: str
) -> None:
    answer = served.ask("GET", "/healthz", headers={"Origin": origin})

    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
def test_what_a_proxy_forwards_is_not_from_this_machine(served: Served, header: str) -> None:
    refused = served.ask_plainly("GET", "/v1/tools", headers={header: "198.51.100.1"})

    assert (refused.status, refused.code) == (401, "no_session")
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_websocket_is_refused(served: Served) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}

    refused = served.ask("GET", "/mcp", headers=headers)

    assert (refused.status, refused.code) == (400, "bad_request")


# Metrics


def test_calls_are_counted_by_tool_outcome_and_surface(served: Served) -> None:
    series = 'toolkiln_tool_calls_total{outcome="ok",surface="http",tool="greet"}'
    before = served.metric(series)

    result = served.call("greet", name="Ada")

    assert (result["status"], result["value"]) == ("ok", "Hello Ada")
    assert served.metric(series) == before + 1


def test_a_name_that_somebody_made_up_is_no_label(served: Served) -> None:
    series = 'toolkiln_tool_calls_total{outcome="invalid",surface="http",tool="(unknown)"}'
    before = served.metric(series)

    served.call("made_up_name")

    text = served.ask("GET", "/metrics").text
    assert served.metric(series) >= before
    assert "made_up_name" not in text


def test_neither_is_the_name_in_a_source_that_was_run(served: Served) -> None:
    series = 'toolkiln_tool_calls_total{outcome="ok",surface="http",tool="(unknown)"}'
    before = served.metric(series)

    served.ask("POST", "/v1/run", {"source": "def somebodys_name() -> int:\n    return 1\n"})

    assert served.metric(series) == before + 1
    assert "somebodys_name" not in served.ask("GET", "/metrics").text


def test_the_sandbox_and_requests_are_measured_and_nobody_is_named(served: Served) -> None:
    served.call("greet", name="Ada")
    mode = served.call("greet", name="Ada")["sandbox"]

    text = served.ask("GET", "/metrics").text

    assert f'toolkiln_sandbox_calls{{mode="{mode}",state="waiting"}} 0.0' in text
    assert 'toolkiln_http_requests_total{method="POST",status="200"}' in text
    assert 'toolkiln_tool_call_duration_seconds_count{tool="greet"}' in text
    labels = {
        name for held in re.findall(r"\{(.*?)\}", text) for name in re.findall(r"(\w+)=", held)
    }
    assert labels <= {"le", "method", "mode", "outcome", "state", "status", "surface", "tool"}
    assert "Ada" not in text


def test_served_tools_are_counted(served: Served) -> None:
    listed = served.ask("GET", "/v1/tools?limit=100").json()["items"]

    assert served.metric("toolkiln_tools") == len(listed)


# Keys


@pytest.mark.parametrize("host", ["0.0.0.0", "tools.example"])
def test_it_refuses_to_start_where_others_reach_it_and_no_key_holds(
    served: Served, host: str
) -> None:
    done = served.shell.invoke("serve", "--host", host, "--port", "0")

    assert done.code == 2
    assert done.err.startswith(f"error: serving on {host} needs an API key")
    assert "toolkiln keys create" in done.err


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """A server as it may stand behind a proxy, and a key."""
    settings = f"""
require_key = true
hosts = ["tools.example"]
origins = ["https://app.example/"]
{SETTINGS}"""
    shell = make_shell(tmp_path_factory.mktemp("guarded"), settings)
    key = shell.invoke("keys", "create", "one", "--user", "ann").out.strip()
    with serving(shell) as served:
        yield served, key


def test_with_keys_everybody_needs_one_but_for_health_and_the_description(
    guarded: tuple[Served, str],
) -> None:
    served, key = guarded
    named = {"Host": "tools.example", "Authorization": f"Bearer {key}"}

    ask = served.ask_plainly
    open_ones = [ask("GET", path).status for path in ("/healthz", "/readyz", "/docs")]
    without = [ask("GET", path).status for path in ("/metrics", "/v1/tools", "/mcp")]
    wrong = served.ask("GET", "/metrics", headers={"Authorization": "Bearer tk_made_up"})
    measured = served.ask("GET", "/metrics", headers=named)
    result = served.call("greet", named, name="Ada")

    assert open_ones == [200, 200, 200]
    assert without == [401, 401, 401]
    assert (wrong.status, wrong.code) == (401, "no_session")
    assert measured.status == 200
    assert result["value"] == "Hello Ada"


def test_pages_of_a_configured_origin_may_ask_and_read(guarded: tuple[Served, str]) -> None:
    served, key = guarded
    page = {"Origin": "https://app.example"}
    asked = {
        **page,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    other = {**asked, "Origin": "https://b.example"}

    before = served.ask("OPTIONS", "/v1/tools/greet/call", headers=asked)
    answer = served.ask("GET", "/v1/tools", headers={**page, "Authorization": f"Bearer {key}"})
    refused = served.ask("OPTIONS", "/v1/tools/greet/call", headers=other)

    assert before.status == 204
    assert before.headers["access-control-allow-origin"] == page["Origin"]
    assert before.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in before.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-origin"] == page["Origin"]
    assert (refused.status, refused.code) == (403, "origin_refused")


# Starting and stopping


def test_a_port_that_is_taken_is_said(served: Served) -> None:
    done = served.shell.invoke("serve", "--port", str(served.port))

    assert done.code == 2
    assert done.err.startswith(f"error: cannot listen on 127.0.0.1 port {served.port}: Address al")
    assert "choose another port, or 0 for any free port" in done.err


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--host", "no such"]])
def test_an_address_that_makes_no_sense_is_said(served: Served, arguments: list[str]) -> None:
    done = served.shell.invoke("serve", *arguments)

    assert done.code == 2
    assert done.err.startswith("error: ")


def test_told_to_stop_it_lets_calls_end_and_takes_no_new_ones(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        serving(make_shell(tmp_path)) as served,
        served.connect(),  # an idle one keeps nobody from stopping
    ):
        running = pool.submit(served.call, "linger", name="drained", seconds=1.5)
        until(lambda: served.written("drained"))
        served.process.send_signal(signal.SIGTERM)
        until(lambda: served.ask("GET", "/readyz").status == 503)
        ready = served.ask("GET", "/readyz").json()
        refused = served.ask("POST", "/v1/tools/greet/call", {"arguments": {"name": "Ada"}})
        result = running.result()
        code = served.wait()

    assert ready["checks"]["server"] == "draining"
    assert (refused.status, refused.code) == (503, "draining")
    assert refused.headers["retry-after"]
    assert result["value"] == "done"
    assert code == 0
    assert served.err[-1].startswith("stopping: waiting up to 30 s for 1 in progress")


@pytest.mark.parametrize("is_asked_twice", [True, False])
def test_what_does_not_end_is_cancelled_after_a_while_or_at_the_second_signal(
    tmp_path: Path, is_asked_twice: bool
) -> None:
    seconds = 60 if is_asked_twice else 0
    shell = make_shell(tmp_path, f"drain_seconds = {seconds}\n{SETTINGS}")
    with ThreadPoolExecutor(1) as pool, serving(shell) as served:
        path, body = "/v1/tools/linger/call", {"arguments": {"name": "cut", "seconds": 20}}
        running = pool.submit(served.ask, "POST", path, body)
        until(lambda: served.written("cut"))
        served.process.send_signal(signal.SIGINT)
        if is_asked_twice:
            until(lambda: any("stopping" in line for line in served.err))
            served.process.send_signal(signal.SIGINT)
        code = served.wait()
        answer = running.result()

    assert code == 0
    assert (answer.status, answer.code) == (503, "draining")
    assert served.written("cut") == "begun\n"


def test_tools_that_are_admitted_meanwhile_are_served(tmp_path: Path) -> None:
    shell = make_shell(tmp_path, TOOLKILN_DEV="0")
    with serving(shell) as served:
        before = served.ask("GET", "/readyz")
        shell.invoke("admit", "--yes", "--no-probe")
        until(lambda: served.call("greet", name="Ada").get("value") == "Hello Ada")
        until(lambda: served.ask("GET", "/readyz").status == 200)

    assert before.status == 503
    assert before.json()["checks"]["catalog"] == "manifest_unusable"
    assert "note: no tools yet: " in served.err[0]
    assert json.dumps(served.err).count("Traceback") == 0
