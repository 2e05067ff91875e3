"""A Kiln over the tool files of a test module, each written as its framework's authors do."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from execution.conftest import write
from toolkiln.config import Settings
from toolkiln.kiln import Kiln


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kiln(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kiln]:
    """One Kiln for a module: its TOOLS by file name, served as they are on disk."""
    folder = tmp_path_factory.mktemp("kiln")
    write(folder / "tools", request.module.TOOLS)
    settings = Settings(state=folder / "state", environ=dict(os.environ))
    async with Kiln(folder / "tools", settings=settings, dev=True) as kiln:
        yield kiln
