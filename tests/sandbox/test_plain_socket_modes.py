"""Plain sockets where a mode cannot offer all of them, for other users, and when grants change."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from sandbox.network.loopback import echo, on_loopback, server
from toolkiln.config import load
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.sandbox import sandbox
from toolkiln.sandbox.bubblewrap import find_bwrap, interpreter

from .conftest import BOUND, call_as_user, is_reachable, kiln_with_network, replace_interpreter
from .services import web

pytestmark = pytest.mark.asyncio(loop_scope="session")


CLIENT = '''
"""A client that uses no proxy."""
{imports}
import os
import socket
import urllib.request

from toolkiln import tool


@tool(network={network})
def say(host: str, port: int) -> list:
    """Send a text and read it back."""
    with socket.create_connection((host, port), 10) as there:
        there.sendall(b"hello")
        there.shutdown(socket.SHUT_WR)
        return [there.makefile("rb").read().decode(), os.getpid()]


@tool(network={network})
def fetch(url: str) -> str:
    """Fetch a page."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
'''


def write_client(folder: Path, *network: str, imports: str = "") -> Path:
    tools = folder / "tools"
    tools.mkdir()
    (tools / "client.py").write_text(CLIENT.format(network=list(network), imports=imports))
    return tools


@pytest.fixture
def bwrap_without_namespaces(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bwrap inside which no further namespace can be made, as some systems set it up."""
    real = find_bwrap()
    if real is None:
        pytest.skip("there is no bwrap")
    bwrap = open_folder / "bwrap"
    bwrap.write_text(f'#!/bin/sh\nexec {real} --disable-userns "$@"\n')
    bwrap.chmod(0o755)
    monkeypatch.setattr(sandbox, "find_bwrap", lambda: bwrap)


@pytest.mark.usefixtures("bwrap_without_namespaces")
async def test_doctor_reports_low_ports_that_plain_sockets_cannot_reach(tmp_path: Path) -> None:
    trial = await sandbox.try_mode("B", tmp_path, with_network=True)

    assert trial.works, trial.reason
    assert not trial.layers[-1].stands
    assert trial.layers[-1].detail == "through the proxy; by plain sockets only on ports from 1024"


@pytest.mark.usefixtures("bwrap_without_namespaces")
async def test_a_failed_call_names_hosts_that_only_the_proxy_reaches(tmp_path: Path) -> None:
    async with server(echo) as port, server(web) as web_port:
        hosts = ["a.internal", f"a.internal:{port}", f"a.internal:{web_port}", "localhost:80"]
        sources = {"client.py": CLIENT.format(network=hosts, imports="")}
        async with kiln_with_network(tmp_path, "B", sources, hosts) as kiln:
            high = await kiln.call("say", {"host": "a.internal", "port": port})
            low = await kiln.call("say", {"host": "a.internal", "port": 443})
            proxied = await kiln.call("fetch", {"url": f"http://a.internal:{web_port}/x"})
            local = await kiln.call("fetch", {"url": "http://localhost/"})

    assert high.value[0] == "hello"
    assert high.notes == ()
    assert low.status is Status.FAILED
    assert any("a.internal:443" in note and "doctor" in note for note in low.notes), low.notes
    assert proxied.value == "GET /x HTTP/1.1"
    # Its endpoint is missing: asked of the proxy instead, which finds no server at that port.
    assert "502" in str(local.error) or local.error is None


async def test_mode_c_refuses_a_tool_with_network_access_with_a_hint(
    tmp_path: Path,
) -> None:
    sources = {"client.py": CLIENT.format(network=["a.internal"], imports="")}
    async with kiln_with_network(tmp_path, "C", sources, ["a.internal"]) as kiln:
        if not is_reachable(interpreter()):
            await replace_interpreter(kiln, kiln.settings.state)
        result = await kiln.call("say", {"host": "a.internal", "port": 443})

    assert result.status is Status.UNAVAILABLE
    assert result.error is not None
    assert "network access" in result.error.message
    assert "doctor" in str(result.error.hint)


@pytest.mark.parametrize(
    ("mode", "imports"), [("A", ""), ("A", "import pydantic"), ("B", "import pydantic")]
)
async def test_a_changed_grant_counts_from_the_next_call_on(
    mode: str, imports: str, tmp_path: Path
) -> None:
    file = tmp_path / "toolkiln.toml"

    def grant(*hosts: str) -> None:
        lines = [
            f'sandbox = "{mode}"', "show_exceptions = true", 'private_networks = ["127.0.0.1"]',
            "[grants.say]", f"network = {json.dumps(hosts)}",
        ]  # fmt: skip
        beside = file.with_suffix(".new")
        beside.write_text("\n".join(lines))
        beside.rename(file)

    async with server(echo) as port:
        first, second = f"a.team.internal:{port}", f"b.team.internal:{port}"
        tools = write_client(tmp_path, f"*.team.internal:{port}", imports=imports)
        grant(first)
        given = load(tmp_path, {})
        async with Kiln(tools, settings=given, resolve_host=on_loopback, dev=True) as kiln:

            async def say(host: str) -> str:
                result = await kiln.call("say", {"host": host, "port": port})
                assert result.status in (Status.OK, Status.FAILED), result.error
                return result.value[0] if result.error is None else result.error.message

            for _ in range(5):  # until there is a template, if the tool gets one
                assert await say("a.team.internal") == "hello"
            assert "gaierror" in await say("b.team.internal")
            grant(second)
            async with asyncio.timeout(BOUND):
                while await say("b.team.internal") != "hello":
                    await asyncio.sleep(0.1)
            for _ in range(5):
                assert "gaierror" in await say("a.team.internal")
                assert await say("b.team.internal") == "hello"


@pytest.mark.skipif(os.geteuid() != 0, reason="every test here runs as an ordinary user")
@pytest.mark.parametrize("mode", ["A", "B"])
async def test_an_ordinary_users_service_reaches_granted_hosts(
    mode: str, open_folder: Path
) -> None:
    home = open_folder / f"plain-{mode}"
    home.mkdir()
    async with server(echo) as port:
        tools = write_client(home, "a.internal", f"a.internal:{port}")
        high, low = await call_as_user(
            home,
            tools,
            [("say", {"host": "a.internal", "port": to}) for to in (port, 443)],
            sandbox=mode,
            private_networks=["127.0.0.1"],
            grants={"*": {"network": ["a.internal", f"a.internal:{port}"]}},
        )

    assert (high["status"], high["value"][0]) == ("ok", "hello"), high
    assert low["status"] == "failed"
    # The endpoint accepted: what failed is that this machine serves nothing at that port.
    assert "ConnectionRefused" not in str(low["error"])
    assert "no connection to a.internal:443" in " ".join(low["notes"])
