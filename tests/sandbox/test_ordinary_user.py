"""The same attacks against a service that an ordinary user runs; root starts it."""

import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import ATTACKS, SECRET, all_gone, call_as_user

ONE_UID = ["unshare", "--user", "--map-root-user"]
"""Makes an ordinary user the root of a user namespace in which there is no other user."""
REFUSED = {"ENOENT", "EACCES", "EPERM"}


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
    calls: list[tuple[str, dict[str, Any]]] = [
        ("good", {"number": 1}),
        ("read_file", {"path": str(secret)}),
        ("read_file", {"path": "/etc/passwd"}),
        ("write_file", {"path": str(secret)}),
        ("change_mode", {"path": str(secret)}),
        ("list_folder", {"path": str(home / "state")}),
        ("other_processes", {}),
        ("fresh_python", {"secret": str(secret)}),
        ("kill_all", {"number": 9}),
        ("fork_for_ever", {}),
        ("balloon", {}),
        ("leave_daemon", {"marker": marker}),
        ("forget_parent", {"marker": marker}),
        ("good", {"number": 1}),
    ]

    results = await call_as_user(
        home, ATTACKS, calls, start=start, sandbox=mode, allow_reduced=True
    )

    if results[0]["status"] == "unavailable":
        why = results[0]["error"]["message"]
        assert "failed layers" not in why
        assert "Invalid argument" not in why  # no other uid is needed
        pytest.skip(f"mode {mode}: {why}")
    said = {tool: result for (tool, _), result in zip(calls, results, strict=True)}
    hidden = ("read_file", "write_file", "change_mode", "list_folder")
    refused = [r["value"] for (tool, _), r in zip(calls, results, strict=True) if tool in hidden]
    assert (said["good"]["status"], said["good"]["value"]) == ("ok", 2), results
    assert set(refused) <= REFUSED, results
    assert said["other_processes"]["value"] == [], results
    assert said["fresh_python"]["value"].split() == ["no", "no", "no"]
    assert said["fork_for_ever"]["error"]["code"] == "processes_limit"
    assert said["balloon"]["error"]["code"] == "memory_limit"
    assert secret.read_text() == SECRET
    await all_gone(marker)
