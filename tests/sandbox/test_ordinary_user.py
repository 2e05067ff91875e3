"""The same attacks against a service that an ordinary user runs; root starts it."""

import json
import os
from pathlib import Path

import pytest

from .conftest import ATTACKS, SECRET, all_gone, run_as_user

ONE_UID = ["unshare", "--user", "--map-root-user"]
"""Makes an ordinary user the root of a user namespace in which there is no other user."""
CHILD = """
import asyncio, json, sys
from pathlib import Path
from toolkiln.kiln import Kiln
from toolkiln.config import Settings

async def main(tools, state, mode, secret, marker):
    attacks = [
        ("good", {"number": 1}),
        ("read_file", {"path": secret}),
        ("read_file", {"path": "/etc/passwd"}),
        ("write_file", {"path": secret}),
        ("change_mode", {"path": secret}),
        ("list_folder", {"path": state}),
        ("other_processes", {}),
        ("fresh_python", {"secret": secret}),
        ("kill_all", {"number": 9}),
        ("fork_for_ever", {}),
        ("balloon", {}),
        ("leave_daemon", {"marker": marker}),
        ("forget_parent", {"marker": marker}),
        ("good", {"number": 1}),
    ]
    settings = Settings(state=Path(state), sandbox=mode, allow_reduced=True, show_exceptions=True)
    async with Kiln(tools, settings=settings, dev=True) as kiln:
        told = []
        for tool, arguments in attacks:
            result = await kiln.call(tool, arguments)
            told.append([tool, str(result.status), result.error and result.error.code,
                         result.value, result.error and result.error.message])
    print(json.dumps(told))

asyncio.run(main(*sys.argv[1:]))
"""
REFUSED = ("ENOENT", "EACCES", "EPERM")


@pytest.mark.skipif(os.geteuid() != 0, reason="every test here runs as an ordinary user")
@pytest.mark.parametrize("mode", ["A", "B", "C"])
@pytest.mark.parametrize("start", [[], ONE_UID], ids=["plain", "root of a namespace with one uid"])
async def test_key_attacks_fail_against_an_ordinary_users_service(
    start: list[str], mode: str, open_folder: Path, marker: str
) -> None:
    home = open_folder / f"user-{mode}-{len(start)}"
    home.mkdir()
    secret = home / "secret"
    secret.write_text(SECRET)
    arguments = [str(ATTACKS), str(home / "state"), mode, str(secret), marker]

    told = json.loads(await run_as_user(home, CHILD, *arguments, start=start, needs=ATTACKS))

    if told[0][1] == "unavailable":
        assert "failed layers" not in told[0][4]
        assert "Invalid argument" not in told[0][4]  # no other uid is needed
        pytest.skip(f"mode {mode}: {told[0][4]}")
    said = {tool: (status, code, value) for tool, status, code, value, _ in told}
    assert said["good"] == ("ok", None, 2), told
    for tool in ("read_file", "write_file", "list_folder"):
        assert said[tool][2] in REFUSED, told
    assert said["other_processes"][2] == [], told
    assert said["fresh_python"][2].split() == ["no", "no", "no"]
    assert said["fork_for_ever"][1] == "processes_limit"
    assert said["balloon"][1] == "memory_limit"
    assert secret.read_text() == SECRET
    await all_gone(marker)
    assert said["change_mode"][2] in REFUSED, told
