"""One server for all tests of a module, and a client that sends what a test says."""

from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from .served import BOUND, Served, serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=20)
    async with httpx.AsyncClient(timeout=BOUND, limits=limits) as made:
        yield made
