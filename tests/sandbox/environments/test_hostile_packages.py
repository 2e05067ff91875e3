"""A package can do nothing while it is resolved and installed, and cannot be exchanged."""

import asyncio
import shutil
import zipfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from toolkiln.config import Settings
from toolkiln.errors import EnvironmentFailed
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.sandbox.environments.environments import Environments
from toolkiln.sandbox.environments.uv import Quota

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
    modules = ("sitecustomize", "usercustomize", "encodings", "os", "evil")
    files = {"evil.pth": f"import os; {code}", **{f"{name}.py": code for name in modules}}
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


SMALL = Quota(bytes=4 << 20, files=500)


def bomb(folder: Path, name: str, megabytes: int = 40) -> None:
    """Write a wheel that is small and unpacks to much, each in another way."""
    file = wheel(folder, name, "1.0", {f"{name}.py": "", f"{name}.txt": "0123456789"})
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        if name == "files":
            for number in range(2000):
                archive.writestr(f"{name}/{number}.txt", "")
        elif name == "folders":
            for number in range(2000):
                archive.mkdir(f"{name}/{number}")
        elif name == "several":
            for number in range(megabytes):
                archive.writestr(f"{name}/{number}.bin", bytes(1 << 20))
        else:
            archive.writestr(f"{name}/one.bin", bytes(100 << 20))
    if name == "lying":
        data = file.read_bytes()
        file.write_bytes(
            data.replace((100 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
        )


@pytest.mark.parametrize("name", ["large", "several", "files", "folders", "lying"])
async def test_package_that_unpacks_to_more_than_the_quota_is_stopped(
    name: str, root: Path, environ: dict[str, str], links: Path
) -> None:
    bomb(links, name, megabytes=300)  # not done before it is noticed, on a busy machine either
    environments = Environments(root, environ, quota=SMALL)

    with pytest.raises(EnvironmentFailed) as caught:
        await environments.build([name])

    expected = {"files": "more than 500 files", "folders": "more than 500 files"}
    if name != "lying":  # uv may notice the lie first
        assert expected.get(name, "more than 4,194,304 bytes") in caught.value.message
        assert "environment_" in (caught.value.hint or "")
    cache = Path(environ["UV_CACHE_DIR"])
    assert sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) < 8 << 20
    assert list(cache.glob(".tmp*")) == []
    assert leftovers(root) == []
    assert await environments.build(["alpha"])


async def test_package_that_an_earlier_build_unpacked_is_held_to_the_quota(
    root: Path, environ: dict[str, str], links: Path
) -> None:
    bomb(links, "several")
    assert await Environments(root.with_name("other"), environ).build(["several"])

    with pytest.raises(EnvironmentFailed, match="more than 4,194,304 bytes"):
        await Environments(root, environ, quota=SMALL).build(["several"])

    assert leftovers(root) == []


async def test_what_other_builds_unpack_does_not_count(
    root: Path, environ: dict[str, str], links: Path
) -> None:
    for name in ("several", "files"):
        bomb(links, name)
    tight = Environments(root, environ, quota=Quota(bytes=1 << 20, files=100))
    large = Environments(root.with_name("other"), environ)

    *built, small = await asyncio.gather(
        large.build(["several"]), large.build(["files"]), tight.build(["alpha"])
    )

    assert all(built)
    assert small


async def test_operator_sets_the_quota(
    tmp_path: Path, links: Path, environ: dict[str, str]
) -> None:
    bomb(links, "several")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "hi.py").write_text(
        "from toolkiln import tool\n\n\n@tool(requirements=['several'])\n"
        'def hi() -> int:\n    """Say hi."""\n    return 1\n'
    )
    settings = Settings(state=tmp_path / "state", environment_bytes=1 << 20, environ=environ)

    async with Kiln(tools, settings=settings, dev=True) as kiln:
        result = await kiln.call("hi", {})

    assert result.status is Status.UNAVAILABLE
    assert result.error
    assert "more than 1,048,576 bytes" in result.error.message
