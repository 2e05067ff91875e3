"""Tools that reach granted hosts through the proxy, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from sandbox.network.loopback import closed, on_loopback, server
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOURCE = '''
    """Tools with a network."""
    {imports}
    import os, socket, urllib.request
    from toolkiln import Context, tool

    @tool(network=["api.test:{port}", "*.wild.test:{port}"])
    def fetch{suffix}(host: str, path: str = "/") -> list:
        """Fetch a page."""
        with urllib.request.urlopen(f"http://{{host}}:{port}{{path}}", timeout=10) as answer:
            return [answer.status, answer.read().decode(), os.getpid()]

    @tool(network=["api.test:{port}"])
    def connect{suffix}(host: str, port: int) -> str:
        """Connect without asking the proxy."""
        try:
            with socket.create_connection((host, port), timeout=5):
                return "connected"
        except OSError as error:
            return type(error).__name__

    @tool(network=["other.test"])
    def ungranted{suffix}() -> None:
        """Declare a host that is not granted."""

    @tool
    def offline{suffix}() -> str:
        """Try without asking."""
        try:
            socket.socket()
            return "has sockets"
        except OSError as error:
            return "none"

    @tool(sandbox=False, network=["api.test:{port}"])
    def unsandboxed{suffix}() -> str:
        """Fetch a page without a sandbox."""
        return "ran"
'''


async def tell_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer an HTTP request with its host and path."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    host = head.partition("Host: ")[2].partition(":")[0]
    body = f"{host} {head.split()[1]}"
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port() -> AsyncIterator[int]:
    async with server(tell_request) as port:
        yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def online(port: int, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kiln]:
    """A Kiln whose tools may reach some names, all of them on loopback."""
    from textwrap import dedent

    from toolkiln.config import Settings

    folder = tmp_path_factory.mktemp("online")
    (folder / "tools").mkdir()
    for suffix, imports in (("", ""), ("_warm", "import pydantic")):
        source = dedent(SOURCE).format(port=port, suffix=suffix, imports=imports)
        (folder / "tools" / f"net{suffix}.py").write_text(source)
    hosts = [f"api.test:{port}", f"*.wild.test:{port}"]
    grants: dict[str, dict[str, Any]] = {
        f"{name}{suffix}": {"network": hosts}
        for name in ("fetch", "connect", "unsandboxed")
        for suffix in ("", "_warm")
    }
    grants["unsandboxed"]["sandbox"] = False
    settings = Settings(state=folder / "state", grants=grants, private_networks=("127.0.0.0/8",))
    async with Kiln(
        folder / "tools", settings=settings, resolve_host=on_loopback, dev=True
    ) as kiln:
        yield kiln


@pytest.mark.parametrize("name", ["fetch", "fetch_warm"])
async def test_granted_host_is_reached(online: Kiln, name: str) -> None:
    result = await online.call(name, {"host": "api.test", "path": "/a"})

    assert result.error is None, result.notes
    assert result.value[:2] == [200, "api.test /a"]
    assert result.notes == ()


async def test_granted_host_is_reached_from_a_warm_template(online: Kiln) -> None:
    for number in range(100):
        result = await online.call("fetch_warm", {"host": "sub.wild.test", "path": f"/{number}"})
        assert result.error is None
        assert result.value[:2] == [200, f"sub.wild.test /{number}"]
        if number > 5 and result.value[2] != 1:
            break
    else:
        pytest.fail("no call came from a template")


@pytest.mark.parametrize("name", ["fetch", "fetch_warm"])
async def test_other_host_is_refused_with_a_note(online: Kiln, name: str) -> None:
    result = await online.call(name, {"host": "evil.test"})

    assert result.status is Status.FAILED
    assert any("evil.test" in note for note in result.notes)
    assert (await online.call(name, {"host": "api.test"})).notes == ()


async def test_loopback_of_the_host_is_out_of_reach(online: Kiln, port: int) -> None:
    for host in ("127.0.0.1", "localhost", "a.wild.test", "::1"):
        result = await online.call("connect", {"host": host, "port": port})
        assert result.value != "connected"


@pytest.mark.parametrize("name", ["connect", "connect_warm"])
async def test_granted_host_is_reached_without_asking_the_proxy(
    online: Kiln, port: int, name: str
) -> None:
    result = await online.call(name, {"host": "api.test", "port": port})

    assert result.value == "connected"


async def test_host_that_is_not_granted_denies_the_call(online: Kiln) -> None:
    result = await online.call("ungranted", {})

    assert result.status is Status.DENIED
    assert result.error
    assert "other.test" in result.error.message
    assert '[grants.ungranted] network = ["other.test"]' in (result.error.hint or "")


async def test_private_address_is_refused_unless_allowed(
    port: int, make_kiln: Callable[..., Kiln]
) -> None:
    source = SOURCE.format(port=port, suffix="", imports="")
    grants = {"fetch": {"network": [f"api.test:{port}", f"*.wild.test:{port}"]}}
    async with make_kiln({"net.py": source}, grants=grants, resolve_host=on_loopback) as kiln:
        result = await kiln.call("fetch", {"host": "api.test"})

    assert result.status is Status.FAILED
    assert any("api.test" in note for note in result.notes)


async def test_tool_without_a_declaration_has_no_sockets(online: Kiln) -> None:
    assert (await online.call("offline", {})).value == "none"


async def test_unsandboxed_tool_with_a_network_runs(online: Kiln) -> None:
    async with asyncio.timeout(10):
        result = await online.call("unsandboxed", {})

    assert (result.value, result.sandbox) == ("ran", "none")


async def test_addresses_of_the_machine_are_really_there(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await closed(writer)
