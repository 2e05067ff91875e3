"""A package can do nothing while it is resolved and installed, and cannot be exchanged."""

import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from toolkiln.errors import EnvironmentFailed
from toolkiln.execution.environments import Environments

from .index import source_distribution, wheel


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name not in ("guards", "locks")]


async def test_source_distribution_is_refused_and_its_setup_never_runs(
    environments: Environments, links: Path, root: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    source_distribution(links, "sourced", "1.0", f"open({str(trap)!r}, 'w')\n")
    wheel(links, "innocent", "1.0", requires=["sourced"])

    for requirement in ("sourced", "innocent"):
        with pytest.raises(EnvironmentFailed, match="source distributions are not built") as caught:
            await environments.build([requirement])
        assert "sourced" in caught.value.message

    assert not trap.exists()
    assert leftovers(root) == []


async def test_path_file_of_a_package_does_not_run_while_building(
    environments: Environments, links: Path, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    code = f"open({str(trap)!r}, 'w')\n"
    files = {
        "evil.pth": f"import os; {code}",
        "sitecustomize.py": code,
        "usercustomize.py": code,
        "encodings.py": code,
        "os.py": code,
        "evil.py": code,
    }
    wheel(links, "evil", "1.0", files)

    environment = await environments.build(["evil"])

    assert environment
    assert (environment.site / "evil.pth").exists()
    assert (environment.site / "__pycache__").is_dir()
    assert not trap.exists()


async def test_exchanged_wheel_is_refused(
    environments: Environments, links: Path, root: Path, environ: dict[str, str]
) -> None:
    await environments.build(["alpha"])
    await environments.prune(timedelta(0))
    wheel(links, "alpha", "2.0", {"alpha.py": "VERSION = 'evil'\n"})
    shutil.rmtree(environ["UV_CACHE_DIR"])

    with pytest.raises(EnvironmentFailed, match="Hash mismatch") as caught:
        await environments.build(["alpha"])

    assert "upgrade" in (caught.value.hint or "")
    assert leftovers(root) == []


@pytest.mark.parametrize(
    "files",
    [
        {"escape-1.0.dist-info/entry_points.txt": "[console_scripts]\n../../../../trap = a:b\n"},
        {"escape.py": "", "../../../../trap": ""},
        {"escape.py": "", "/{tmp}/trap": ""},
        {"escape-1.0.data/scripts/../../../../../trap": ""},
        {"escape-1.0.data/data/../../../../trap": ""},
    ],
    ids=["entry point", "relative", "absolute", "script", "data"],
)
async def test_package_writes_nowhere_else(
    environments: Environments, links: Path, tmp_path: Path, files: dict[str, str]
) -> None:
    named = {name.format(tmp=tmp_path): text for name, text in files.items()}
    wheel(links, "escape", "1.0", named)

    with suppress(EnvironmentFailed):
        await environments.build(["escape"])

    assert not [path for path in tmp_path.rglob("trap") if "envs" not in path.parts]


async def test_link_in_a_package_reaches_no_file_of_the_host(
    environments: Environments, links: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine", "utf-8")
    outside.chmod(0o600)
    wheel(links, "linked", "1.0", {"linked.py": ""}, links={"linked.txt": str(outside)})

    try:
        environment = await environments.build(["linked"])
    except EnvironmentFailed:
        environment = None

    assert outside.stat().st_mode & 0o777 == 0o600
    assert environment is None or not (environment.site / "linked.txt").is_symlink()


@pytest.mark.parametrize("url", ["https://example.com/alpha.whl", "file://{links}/alpha-1.0.whl"])
async def test_dependency_by_url_is_refused(
    environments: Environments, links: Path, url: str
) -> None:
    wheel(links, "pointer", "1.0", requires=[f"alpha @ {url.format(links=links)}"])

    with pytest.raises(EnvironmentFailed, match="URL"):
        await environments.build(["pointer"])


async def test_broken_archive_is_an_error_that_leaves_nothing(
    environments: Environments, links: Path, root: Path
) -> None:
    (links / "broken-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 this is no archive")

    with pytest.raises(EnvironmentFailed) as caught:
        await environments.build(["broken"])

    assert caught.value.hint
    assert leftovers(root) == []
