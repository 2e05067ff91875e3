"""One server for all tests of a module, over a small real catalog."""

from collections.abc import Iterator

import httpx2
import pytest

from .serving import FILES, Serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Serves this machine's operator without a key."""
    serving = Serving(tmp_path_factory.mktemp("api"))
    serving.write(FILES)
    with serving.running():
        yield serving


@pytest.fixture
def operator(api: Serving) -> Iterator[httpx2.Client]:
    """The person who runs the server."""
    with api.client() as client:
        yield client


@pytest.fixture
def ann(api: Serving) -> Iterator[httpx2.Client]:
    """A caller without any privilege."""
    with api.client(api.session("ann")) as client:
        yield client
