"""Callers that notice soon what has happened to them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.fleet import client, connection

Connect = Callable[[str], AbstractAsyncContextManager[Kiln]]
"""A Kiln in front of the fleet at a URL."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers look after their calls, and give up connections, sooner than usual.

    Two looks take longer than a connection needs to come back, as they always do.
    """
    monkeypatch.setattr(client, "_CHECK_SECONDS", 0.8)
    monkeypatch.setattr(client, "_BLOCK_MS", 500)
    monkeypatch.setattr(connection, "_READ_SECONDS", 1.0)


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Kiln]:
        settings = Settings(state=tmp_path / "caller")
        async with Kiln.connect(url, settings=settings) as kiln:
            yield kiln

    return connected
