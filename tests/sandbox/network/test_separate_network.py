"""The listener comes from a separate network namespace, as in the sandbox."""

import asyncio
import shutil
import socket
import subprocess
import sys

import pytest

from sandbox.network.loopback import BOUND, greet, on_loopback, server
from toolkiln.model.network import parse_rules
from toolkiln.sandbox.network.connection import ConnectionOutcome, ConnectionRecord
from toolkiln.sandbox.network.proxy import serve

UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = """
import fcntl, os, socket, struct, sys, urllib.request
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # bring loopback up
with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
    with socket.socket(fileno=int(sys.argv[1])) as host:
        socket.send_fds(host, [b"x"], [listener.fileno()])
os.environ["http_proxy"] = f"http://127.0.0.1:{port}"
print(urllib.request.urlopen(f"http://web.example:{sys.argv[2]}/").status)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])))
except OSError as error:
    print(type(error).__name__)
"""


def can_unshare() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode
    )


async def test_a_granted_host_is_all_that_a_separate_network_reaches() -> None:
    if not can_unshare():
        pytest.skip("network namespaces are not permitted here")
    records: list[ConnectionRecord] = []

    ours, theirs = socket.socketpair()
    ours.settimeout(BOUND)
    async with server(greet) as port:
        with ours, theirs:
            process = await asyncio.create_subprocess_exec(
                *UNSHARE, sys.executable, "-I", "-S", "-c", INSIDE, str(theirs.fileno()), str(port),
                env={"PATH": "/usr/bin:/bin"}, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE,
            )  # fmt: skip
            _, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
        async with serve(
            socket.socket(fileno=descriptor),
            parse_rules([f"web.example:{port}"]),
            allow_private=["127.0.0.1"],
            resolve=on_loopback,
            on_connection=records.append,
        ):
            async with asyncio.timeout(BOUND):
                out, _ = await process.communicate()

    assert out.split() == [b"200", b"ConnectionRefusedError"]
    assert [record.outcome for record in records] == [ConnectionOutcome.ALLOWED]
