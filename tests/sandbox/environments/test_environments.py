"""Environments are resolved, locked, built once, shared read-only, upgraded and pruned."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from toolkiln.errors import EnvironmentFailed, InputError
from toolkiln.sandbox.environments.environments import Environment, Environments

from .index import Index, wheel

NOW = timedelta(0)


def imported(environment: Environment | None, module: str) -> str:
    """The version that an interpreter finds which has nothing else."""
    assert environment
    code = f"import sys; sys.path.append(sys.argv[1]); import {module}; print({module}.VERSION)"
    command = [sys.executable, "-I", "-S", "-c", code, str(environment.site)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def test_required_packages_can_be_imported_and_are_listed(environments: Environments) -> None:
    environment = await environments.build(["beta"])
    (entry,) = await environments.entries()

    assert environment
    assert imported(environment, "beta") == "1.0"
    assert environment.packages == entry.packages == {"alpha": "1.0", "beta": "1.0"}
    assert (entry.key, entry.requirements) == (environment.key, (("beta",),))
    assert entry.size > 100
    assert entry.built <= entry.last_used


async def test_nothing_required_means_no_environment_and_no_folder(
    environments: Environments, root: Path
) -> None:
    async with environments.use(["pywin32; sys_platform == 'win32'"]) as environment:
        assert environment is None

    assert await environments.build([]) is None
    assert await environments.upgrade([]) is None
    assert await environments.entries() == []
    assert not root.parent.exists()


async def test_two_tools_with_two_versions_have_two_environments(
    environments: Environments,
) -> None:
    async with environments.use(["alpha==1.0"]) as one, environments.use(["alpha==2.0"]) as other:
        assert one
        assert other
        assert one.site != other.site
        assert (imported(one, "alpha"), imported(other, "alpha")) == ("1.0", "2.0")


async def test_sets_with_the_same_packages_share_an_environment(
    environments: Environments,
) -> None:
    one = await environments.build(["alpha>=2"])
    other = await environments.build(["Alpha == 2.0"])

    assert one == other
    (entry,) = await environments.entries()
    assert set(entry.requirements) == {("alpha>=2",), ("alpha==2.0",)}


async def test_result_is_compiled_read_only_and_for_all_to_read(
    root: Path, environ: dict[str, str], links: Path
) -> None:
    wheel(links, "gamma", "1.0", {"gamma/__init__.py": "", "gamma/sub/__init__.py": ""})
    script = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from toolkiln.sandbox.environments.environments import Environments\n"
        "made = Environments(Path(sys.argv[1]), json.loads(sys.argv[2]))\n"
        "print(asyncio.run(made.build(['gamma'])).key)\n"
    )

    key = subprocess.run(
        [sys.executable, "-c", script, str(root), json.dumps(environ)],
        check=True,
        capture_output=True,
        text=True,
        umask=0o077,
    ).stdout.strip()

    modes = {p: p.lstat().st_mode & 0o7777 for p in (root / key, *(root / key).rglob("*"))}
    assert any(path.suffix == ".pyc" for path in modes)
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o555}
    assert {mode for path, mode in modes.items() if path.is_file()} <= {0o444, 0o555}
    assert root.stat().st_mode & 0o777 == root.parent.stat().st_mode & 0o777 == 0o755
    assert not (root / key / "site" / ".lock").exists()


# What is refused


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        (["alpha==1.0", "alpha==2.0"], "alpha==1.0 and alpha==2.0"),
        (["alpha==2.0", "beta"], "beta depend on alpha<2"),
        (["alpha==9"], "no version of alpha==9"),
        (["no-such-package"], "no-such-package was not found"),
    ],
)
async def test_what_cannot_be_resolved_is_explained_in_uvs_words(
    environments: Environments, root: Path, requirements: list[str], words: str
) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        await environments.build(requirements)

    assert words in caught.value.message
    assert "error:" not in caught.value.message
    assert "cause:" not in caught.value.message
    assert caught.value.hint
    assert list((root / "locks").iterdir()) == []


async def test_bad_requirement_reaches_no_installer(environments: Environments, root: Path) -> None:
    with pytest.raises(InputError):
        await environments.build(["alpha", "--index-url=https://example.com/simple"])

    assert not root.exists()


async def test_lock_stays_in_force_when_a_newer_version_appears(
    environments: Environments, links: Path
) -> None:
    before = await environments.build(["alpha"])
    wheel(links, "alpha", "3.0")

    after = await environments.build(["alpha"])
    await environments.prune(NOW)
    left = await environments.entries()
    rebuilt = await environments.build(["alpha"])

    assert before == after == rebuilt
    assert left == []


# Upgrades


async def test_upgrade_takes_force_when_it_is_adopted(
    environments: Environments, links: Path, root: Path, environ: dict[str, str]
) -> None:
    environment = await environments.build(["alpha"])
    nothing = await environments.upgrade(["alpha"])
    wheel(links, "alpha", "3.0", requires=["delta"])
    wheel(links, "delta", "1.0")

    candidate = await environments.upgrade(["alpha"])

    assert environment
    assert nothing
    assert (nothing.changes, nothing.lock.key) == ({}, environment.key)
    assert candidate
    assert candidate.changes == {"alpha": ("2.0", "3.0"), "delta": (None, "1.0")}
    async with environments.trial(candidate) as trial:
        assert trial.packages["alpha"] == "3.0"
    # A process that ended here has left the old lock in force.
    restarted = Environments(root, environ)
    assert imported(await restarted.build(["alpha"]), "alpha") == "2.0"

    await restarted.adopt(candidate)

    assert imported(await environments.build(["alpha"]), "alpha") == "3.0"


async def test_upgrade_that_cannot_be_built_leaves_the_lock_in_force(
    environments: Environments, links: Path
) -> None:
    before = await environments.build(["alpha"])
    wheel(links, "alpha", "3.0", requires=["absent"])
    wheel(links, "alpha", "4.0", requires=["absent"])
    (links / "alpha-2.0-py3-none-any.whl").unlink()
    (links / "alpha-1.0-py3-none-any.whl").unlink()

    with pytest.raises(EnvironmentFailed):
        await environments.upgrade(["alpha"])

    assert await environments.build(["alpha"]) == before


async def test_damaged_lock_is_refused_until_an_upgrade_mends_it(
    environments: Environments, root: Path
) -> None:
    await environments.build(["alpha"])
    (lock,) = (root / "locks").iterdir()
    text = lock.read_text("utf-8")
    damaged = [
        "",
        text[:40],
        text.replace("alpha==2.0", "--index-url=https://example.com\\nalpha==2.0"),
        text.replace("alpha==2.0", "alpha @ file:///tmp/alpha.whl"),
        text.replace('["alpha"]', '["other"]'),
        json.dumps(json.loads(text) | {"text": "alpha==2.0\n"}),
    ]

    for damage in damaged:
        lock.write_text(damage, "utf-8")
        with pytest.raises(EnvironmentFailed, match="is damaged"):
            await environments.build(["alpha"])
        candidate = await environments.upgrade(["alpha"])
        assert candidate
        await environments.adopt(candidate)

        assert await environments.build(["alpha"])


async def test_later_uploads_are_left_out_when_asked(
    root: Path, links: Path, tmp_path: Path
) -> None:
    with Index(links) as index:
        index.uploaded["alpha-2.0-py3-none-any.whl"] = "2024-06-01T00:00:00Z"
        environ = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": index.url}

        newest = await Environments(root, environ).build(["alpha"])
        older = await Environments(root, environ, exclude_newer="2024-01-01").build(["alpha"])

    assert newest
    assert older
    assert (newest.packages, older.packages) == ({"alpha": "2.0"}, {"alpha": "1.0"})


# Listing and pruning


def age(root: Path, key: str, days: int) -> None:
    guard = root / "guards" / key
    then = guard.stat().st_mtime - days * 86_400
    os.utime(guard, (then, then))


async def test_only_what_was_long_unused_is_pruned(environments: Environments, root: Path) -> None:
    old = await environments.build(["alpha==1.0"])
    recent = await environments.build(["alpha==2.0"])
    assert old
    assert recent
    age(root, old.key, 31)
    age(root, recent.key, 29)

    removed = await environments.prune(timedelta(days=30))

    assert [entry.key for entry in removed] == [old.key]
    assert [entry.key for entry in await environments.entries()] == [recent.key]
    assert not (root / "guards" / old.key).exists()
    assert not old.site.exists()


async def test_environment_in_use_is_never_pruned(
    environments: Environments, root: Path, environ: dict[str, str]
) -> None:
    async with environments.use(["alpha"]) as environment:
        assert environment
        age(root, environment.key, 100)
        assert await Environments(root, environ).prune(timedelta(days=1)) == []
        assert imported(environment, "alpha") == "2.0"

    # The end of a use counts as use.
    assert await environments.prune(timedelta(days=1)) == []
    assert len(await environments.prune(NOW)) == 1


async def test_what_a_caller_raises_while_it_uses_an_environment_passes_unchanged(
    environments: Environments,
) -> None:
    with pytest.raises(FileNotFoundError, match="mine"):
        async with environments.use(["alpha"]):
            raise FileNotFoundError("mine")

    assert len(await environments.prune(NOW)) == 1


async def test_folder_that_lost_its_packages_is_built_again(
    environments: Environments, root: Path
) -> None:
    environment = await environments.build(["alpha"])
    assert environment
    (root / environment.key).chmod(0o755)
    environment.site.rename(environment.site.with_name("lost"))

    assert imported(await environments.build(["alpha"]), "alpha") == "2.0"


# Progress


async def test_progress_is_reported_stage_by_stage(root: Path, links: Path, tmp_path: Path) -> None:
    stages: list[tuple[str, int | None, int | None]] = []
    with Index(links) as index:
        environ = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": index.url}
        environments = Environments(root, environ)

        await environments.build(["alpha"], lambda *stage: stages.append(stage))
        reported = len(stages)
        await environments.build(["alpha"], lambda *stage: stages.append(stage))

    assert list(dict.fromkeys(stage for stage, _, _ in stages)) == [
        "resolving", "downloading", "installing", "compiling", "finishing",
    ]  # fmt: skip
    assert ("downloading", 0, 1) in stages
    assert len(stages) == reported  # nothing to do for an existing environment


async def test_progress_that_fails_ends_the_build_without_a_trace(
    environments: Environments, root: Path
) -> None:
    def report(stage: str, done: int | None, total: int | None) -> None:
        if stage == "compiling":
            raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="terminal"):
        await environments.build(["alpha"], report)

    assert sorted(path.name for path in root.iterdir()) == ["guards", "locks"]
    assert await environments.build(["alpha"])
