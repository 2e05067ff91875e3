"""A folder of wheels, and environments that install only from it."""

from pathlib import Path

import pytest

from toolkiln.sandbox.environments.environments import Environments

from .index import offline, wheel


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """Wheels: alpha 1.0 and 2.0, and beta, which needs the older one."""
    folder = tmp_path / "links"
    wheel(folder, "alpha", "1.0")
    wheel(folder, "alpha", "2.0")
    wheel(folder, "beta", "1.0", requires=["alpha<2"])
    return folder


@pytest.fixture
def environ(tmp_path: Path, links: Path) -> dict[str, str]:
    return offline(tmp_path / "cache", links)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "envs"


@pytest.fixture
def environments(root: Path, environ: dict[str, str]) -> Environments:
    return Environments(root, environ)
