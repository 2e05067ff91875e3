"""`toolkiln serve` as others meet it: what it answers, to whom, and how it ends."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tables import each_row

from .served import SETTINGS, Served, bearer, make_keys, make_shell, received, serving, until

BESIDE_THE_API = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(make_shell(tmp_path_factory.mktemp("served"))) as served:
        yield served


def test_it_prints_its_addresses_on_stderr(served: Served) -> None:
    assert served.err[0] == "4 tools of tools; Ctrl-C ends it"
    assert served.err[1] == "note: dev: 4 of them served as on disk, without an admission"
    assert served.err[2] == "auth: anonymous callers allowed (127.0.0.1, no API keys)"
    assert served.err[3].startswith(f"Page {served.url}/ui/login?token=")
    assert served.err[4:7] == [
        "     (this link signs you in, once; keep it private)",
        f"HTTP {served.url}/v1, described at {served.url}/docs",
        f"MCP  {served.url}/mcp",
    ]


def test_the_description_and_its_page_can_only_be_read(served: Served) -> None:
    description, page = served.ask("GET", "/openapi.json"), served.ask("GET", "/docs")
    head = served.ask("HEAD", "/openapi.json")

    assert set(BESIDE_THE_API) <= set(description.json()["paths"])
    assert (head.body, head.headers["content-length"]) == (b"", str(len(description.body)))
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for path in BESIDE_THE_API:
        refused = served.ask("POST", path)
        assert (refused.status, refused.code) == (405, "method_not_allowed")
        assert refused.headers["allow"] == "GET, HEAD"
        assert served.ask("GET", f"{path}/below").status == 404


# Host and Origin


@each_row(
    "header, value, path",
    [
        *(("Host", "evil.example", path)
          for path in ("/healthz", "/v1/tools", "/mcp", "/docs", "/metrics")),
        *(("Host", host, "/v1/tools")
          for host in ("evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]")),
        *(("Origin", "http://evil.example", path)
          for path in ("/healthz", "/v1/tools", "/mcp", "/docs")),
        *(("Origin", origin, "/v1/tools")
          for origin in ("null", "https://localhost.evil.example", "file://", "", "x")),
    ],
)  # fmt: skip
def test_a_foreign_host_or_origin_is_refused_everywhere(
    served: Served, header: str, value: str, path: str
) -> None:
    refused = served.ask("GET", path, headers={header: value})

    assert (refused.status, refused.code) == (403, f"{header.lower()}_refused")


@each_row(
    "header, value",
    [
        *(("Host", host) for host in (
            "localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]:8420", "127.9.9.9",
        )),
        *(("Origin", origin) for origin in (
            "http://localhost:5173", "http://127.0.0.1", "https://[::1]:1",
        )),
    ],
)  # fmt: skip
def test_names_and_pages_of_this_machine_are_accepted_but_may_not_read_across_origins(
    served: Served, header: str, value: str
) -> None:
    answer = served.ask("GET", "/healthz", headers={header: value})

    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_request_without_a_host_or_with_two_is_refused(served: Served) -> None:
    twice = b"Host: localhost\r\nHost: evil.example\r\nConnection: close\r\n"
    answers = []
    for request in (b"HTTP/1.0\r\n", b"HTTP/1.1\r\n" + twice):
        with served.connect() as connection:
            connection.sendall(b"GET /healthz " + request + b"\r\n")
            answers.append(received(connection))

    assert b"403 Forbidden" in answers[0]
    assert b"host_refused" in answers[0]
    assert b"400 Bad Request" in answers[1]


@each_row("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
def test_a_request_through_a_proxy_is_not_from_this_machine(served: Served, header: str) -> None:
    refused = served.ask_plainly("GET", "/v1/tools", headers={header: "198.51.100.1"})

    assert (refused.status, refused.code) == (401, "no_session")
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_websocket_is_refused(served: Served) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}

    refused = served.ask("GET", "/mcp", headers=headers)

    assert (refused.status, refused.code) == (400, "bad_request")


# Metrics


def calls_of(surface: str, tool: str, outcome: str = "ok") -> str:
    return f'toolkiln_tool_calls_total{{outcome="{outcome}",surface="{surface}",tool="{tool}"}}'


def test_calls_are_counted_by_tool_outcome_and_surface(served: Served) -> None:
    before = served.metric(calls_of("http", "greet"))

    over_http = served.call("greet", name="Ada")
    over_mcp = served.call_over_mcp("greet", {}, name="Ada")
    listed = served.ask("GET", "/v1/tools?limit=100").json()["items"]

    assert (over_http["status"], over_http["value"]) == ("ok", "Hello Ada")
    assert over_mcp["result"]["structuredContent"] == {"result": "Hello Ada"}
    assert served.metric(calls_of("http", "greet")) == before + 1
    assert served.metric(calls_of("mcp", "greet")) == 1
    assert served.metric("toolkiln_tools") == len(listed)


def test_made_up_names_are_no_labels(served: Served) -> None:
    series = calls_of("http", "(unknown)")
    before = served.metric(series)

    served.call("made_up_name")
    served.ask("POST", "/v1/run", {"source": "def made_up_name() -> int:\n    return 1\n"})

    assert served.metric(series) == before + 1
    assert "made_up_name" not in served.ask("GET", "/metrics").text


# Keys


def test_behind_a_proxy_every_caller_needs_a_key_and_configured_pages_may_read(
    tmp_path: Path,
) -> None:
    settings = 'require_key = true\nhosts = ["tools.example"]\norigins = ["https://app.example/"]\n'
    shell = make_shell(tmp_path, settings + SETTINGS)
    (key,) = make_keys(shell, "ann")
    page = {"Origin": "https://app.example"}
    method = {"Access-Control-Request-Method": "POST"}
    preflight = {**method, "Access-Control-Request-Headers": "authorization, content-type"}
    with serving(shell) as served:
        ask = served.ask_plainly
        open_ones = [ask("GET", path).status for path in ("/healthz", "/readyz", "/docs")]
        without = [ask("GET", path).status for path in ("/metrics", "/v1/tools", "/mcp")]
        wrong = ask("GET", "/metrics", headers=bearer("tk_made_up"))
        named = {"Host": "tools.example", **bearer(key)}
        measured = ask("GET", "/metrics", headers=named).status
        result = served.call("greet", named, name="Ada")
        before = ask("OPTIONS", "/v1/tools/greet/call", headers=preflight | page)
        answer = ask("GET", "/v1/tools", headers=page | bearer(key))
        other = {**preflight, "Origin": "https://b.example"}
        refused = ask("OPTIONS", "/v1/tools/greet/call", headers=other)

    assert "auth: credentials required (require_key is set)" in served.err
    assert (open_ones, without, measured) == ([200] * 3, [401] * 3, 200)
    assert (wrong.status, wrong.code) == (401, "no_session")
    assert result["value"] == "Hello Ada"
    assert before.status == 204
    assert before.headers["access-control-allow-origin"] == page["Origin"]
    assert before.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in before.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-origin"] == page["Origin"]
    assert (refused.status, refused.code) == (403, "origin_refused")


# Starting and stopping


def test_it_does_not_start_on_an_address_that_cannot_be_served(served: Served) -> None:
    taken = str(served.port)
    reasons = {
        ("--host", "0.0.0.0", "--port", "0"): "serving on 0.0.0.0 needs an API key",
        ("--host", "tools.example", "--port", "0"): "serving on tools.example needs an API key",
        ("--port", taken): f"cannot listen on 127.0.0.1 port {taken}: Address al",
        ("--port", "70000"): "",
        ("--host", "no such"): "",
    }

    done = {arguments: served.shell.invoke("serve", *arguments) for arguments in reasons}

    for arguments, reason in reasons.items():
        assert done[arguments].code == 2
        assert done[arguments].err.startswith(f"error: {reason}")
    exposed, _, port, *_ = done.values()
    assert "toolkiln keys create" in exposed.err
    assert "choose another port, or 0 for any free port" in port.err


def test_when_it_stops_calls_may_end_until_a_second_signal_cuts_the_rest(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(2) as pool,
        serving(make_shell(tmp_path)) as served,
        served.connect(),  # an idle connection does not delay the end
    ):
        path, body = "/v1/tools/linger/call", {"arguments": {"name": "cut", "seconds": 20}}
        ending = pool.submit(served.call, "linger", name="drained", seconds=1.5)
        lasting = pool.submit(served.ask, "POST", path, body)
        until(lambda: served.written("drained") and served.written("cut"))
        served.process.send_signal(signal.SIGTERM)
        until(lambda: served.ask("GET", "/readyz").status == 503)
        ready = served.ask("GET", "/readyz").json()
        refused = served.ask("POST", "/v1/tools/greet/call", {"arguments": {"name": "Ada"}})
        result = ending.result()
        served.process.send_signal(signal.SIGINT)
        code, cut = served.wait(), lasting.result()

    assert ready["checks"]["server"] == "draining"
    assert (refused.status, refused.code) == (503, "draining")
    assert refused.headers["retry-after"]
    assert result["value"] == "done"
    assert [line for line in served.err if "stopping: waiting up to 30 s for 2 in progress" in line]
    assert (cut.status, cut.code, code) == (503, "draining", 0)
    assert served.written("cut") == "begun\n"


def test_calls_that_do_not_end_in_time_are_cancelled(tmp_path: Path) -> None:
    shell = make_shell(tmp_path, f"drain_seconds = 0\n{SETTINGS}")
    with ThreadPoolExecutor(1) as pool, serving(shell) as served:
        path, body = "/v1/tools/linger/call", {"arguments": {"name": "cut", "seconds": 20}}
        running = pool.submit(served.ask, "POST", path, body)
        until(lambda: served.written("cut"))
        code = served.end(signal.SIGINT)
        answer = running.result()

    assert (answer.status, answer.code, code) == (503, "draining", 0)
    assert served.written("cut") == "begun\n"


def test_tools_that_are_admitted_later_are_served(tmp_path: Path) -> None:
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
