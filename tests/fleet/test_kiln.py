"""A Kiln whose sessions and rates are in Redis: as with the store, all processes share them."""

from pathlib import Path

import pytest

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import ToolkilnError
from toolkiln.model.call import Status
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .servers import Server, running


async def double(number: int) -> int:
    """Double a number.

    Args:
        number: Which one.
    """
    return number * 2


def made(server: Server, folder: Path, **settings: object) -> Kiln:
    given = Settings(state=folder, redis=server.url, **settings)  # type: ignore[arg-type]
    return Kiln(functions=[double], settings=given)


async def test_sessions_and_rates_are_shared_by_processes(server: Server, tmp_path: Path) -> None:
    rates = {"double": {"tool": "2/hour"}}
    async with (
        made(server, tmp_path / "a", rates=rates) as one,
        made(server, tmp_path / "b", rates=rates) as other,
    ):
        token = one.security.sessions.create("ann").token

        results = [
            await kiln.call("double", {"number": 2}, session=token) for kiln in (other, one, other)
        ]
        one.security.sessions.end(token)
        after = await one.call("double", {"number": 2}, session=token)

    assert [result.value for result in results] == [4, 4, None]
    assert results[-1].status is Status.DENIED
    assert results[-1].error is not None
    assert 0 < (results[-1].error.retry_after or 0) <= 1800
    assert (after.status, after.error and after.error.code) == (Status.DENIED, "no_session")


async def test_a_revoked_key_ends_its_sessions(server: Server, tmp_path: Path) -> None:
    async with made(server, tmp_path) as kiln:
        key = kiln.security.keys.create("ci", KeyScope("bot"), LOCAL_OPERATOR)
        token = kiln.security.keys.session(key.text).token
        before = await kiln.call("double", {"number": 2}, session=token)

        kiln.security.keys.revoke("ci", LOCAL_OPERATOR)
        after = await kiln.call("double", {"number": 2}, session=token)
        with pytest.raises(ToolkilnError, match="revoked"):
            kiln.security.keys.session(key.text)

    assert before.status is Status.OK
    assert after.status is Status.DENIED


async def test_a_server_that_is_gone_refuses_calls_of_sessions(
    folder: Path, tmp_path: Path
) -> None:
    with running(folder) as server:
        kiln = made(server, tmp_path)
        token = kiln.security.sessions.create("ann").token
        other = made(server, tmp_path / "b")
    async with kiln, other:
        result = await other.call("double", {"number": 2}, session=token)
        own = await other.call("double", {"number": 2})

    assert (result.status, result.error and result.error.code) == (
        Status.UNAVAILABLE,
        "store_failed",
    )
    assert own.status is Status.OK
