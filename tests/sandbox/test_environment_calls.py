"""Tools with packages of their own: built from local wheels, kept apart, upgraded with care."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.environments.index import offline, wheel
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status

TOOLS = {
    "old.py": '''
        # /// script
        # dependencies = ["alpha==1.0"]
        # ///
        """Uses an older alpha."""
        import alpha

        def tell_old() -> str:
            """Tell the version."""
            return alpha.VERSION
    ''',
    "new.py": '''
        # /// script
        # dependencies = ["alpha>1"]
        # ///
        """Uses a newer alpha."""
        import alpha

        def tell_new() -> str:
            """Tell the version."""
            return alpha.VERSION

        def find_packages() -> list[str]:
            """Look what else is there."""
            import importlib.util
            names = ("alpha", "gamma", "jsonschema_rs", "typer", "toolkiln.operations", "pydantic")
            return [name for name in names if _has(name)]

        def _has(name: str) -> bool:
            import importlib.util
            try:
                return importlib.util.find_spec(name) is not None
            except ImportError:
                return False

        def try_to_change() -> str:
            """Try to write into the environment."""
            try:
                open(alpha.__file__, "w")
            except OSError as error:
                return error.strerror
            return "changed"
    ''',
    "torn.py": '''
        # /// script
        # dependencies = ["alpha==1.0", "beta"]
        # ///
        """Needs what does not fit."""

        def tell_torn() -> None:
            """Never run."""
    ''',
    "none.py": '''
        """Needs nothing."""

        def tell_none() -> str:
            """Tell whether alpha is here."""
            try:
                import alpha
            except ImportError:
                return "none"
            return alpha.VERSION
    ''',
}
CAREFUL = {
    "careful.py": '''
        # /// script
        # dependencies = ["alpha"]
        # ///
        """Has an example that holds for one version only."""
        import alpha

        def tell() -> str:
            """Tell the version.

            Examples:
                >>> tell()
                '%s'
            """
            return alpha.VERSION
    ''',
}


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A folder of wheels, all that there is to install from."""
    folder = tmp_path / "links"
    wheel(folder, "alpha", "1.0")
    wheel(folder, "alpha", "2.0")
    wheel(folder, "beta", "1.0", requires=["alpha>=2"])
    wheel(folder, "gamma", "1.0")
    return folder


@pytest.fixture
def built(
    links: Path, tmp_path: Path, make_kiln: Callable[..., Kiln]
) -> Callable[[dict[str, str]], Kiln]:
    """Makes Kilns that install from the wheels."""
    environ = {**os.environ, **offline(tmp_path / "cache", links)}
    return lambda sources: make_kiln(sources, environ=environ)


Built = Callable[[dict[str, str]], Kiln]


def unreported(*_: Any) -> None:
    pass


async def test_tools_have_their_own_versions_and_nothing_of_the_hosts(built: Built) -> None:
    events: list[Event] = []
    async with built(TOOLS) as kiln:
        old = await kiln.call("tell_old", {}, observe=events.append)
        new = await kiln.call("tell_new", {})
        torn = await kiln.call("tell_torn", {})
        none = await kiln.call("tell_none", {})
        found = await kiln.call("find_packages", {})
        changed = await kiln.call("try_to_change", {})
        again = await kiln.call("tell_old", {})

    assert (old.error, new.error) == (None, None)
    assert (old.value, new.value, none.value, again.value) == ("1.0", "2.0", "none", "1.0")
    assert found.value == ["alpha", "pydantic"]
    assert changed.value in ("Read-only file system", "Permission denied")
    assert any(event.text.startswith("environment: ") for event in events)
    assert (torn.status, torn.sandbox) == (Status.UNAVAILABLE, "")
    assert torn.error
    assert torn.error.code == "environment_failed"
    assert "alpha" in torn.error.message


async def test_requirements_of_the_folder_are_added_to_every_tool(
    built: Built, tmp_path: Path
) -> None:
    kiln = built(TOOLS)
    (tmp_path / "tools" / "requirements.txt").write_text("# for all\ngamma\nalpha>=2\n")
    async with kiln:
        none = await kiln.call("tell_none", {})
        found = await kiln.call("find_packages", {})
        torn = await kiln.call("tell_old", {})

    assert none.value == "2.0"
    assert found.value == ["alpha", "gamma", "pydantic"]
    assert torn.status is Status.UNAVAILABLE  # 1.0 and >=2 at once


async def test_requirements_that_cannot_be_used_are_refused(built: Built, tmp_path: Path) -> None:
    kiln = built(TOOLS)
    (tmp_path / "tools" / "requirements.txt").write_text("--index-url http://evil.test\n")
    async with kiln:
        result = await kiln.call("tell_none", {})

    assert result.status is Status.UNAVAILABLE
    assert result.error
    assert "requirements.txt" in result.error.message


@pytest.mark.parametrize("expected", ["2.0", "1.0"])
async def test_upgrade_is_adopted_only_if_the_examples_pass(
    built: Built, links: Path, tmp_path: Path, expected: str
) -> None:
    (links / "alpha-2.0-py3-none-any.whl").rename(tmp_path / "later.whl")
    source = {name: text % expected for name, text in CAREFUL.items()}
    async with built(source) as kiln:
        before = await kiln.call("tell", {})
        (tmp_path / "later.whl").rename(links / "alpha-2.0-py3-none-any.whl")
        between = await kiln.call("tell", {})
        candidate, complaint = await kiln.engine.upgrade_environment("tell", unreported)
        after = await kiln.call("tell", {})

    assert candidate
    assert (complaint is None) == (expected == "2.0")
    assert complaint is None or "'2.0'" in complaint
    assert (before.value, between.value, after.value) == ("1.0", "1.0", expected)


async def test_environment_is_built_ahead_and_kept_without_an_index(
    built: Built, links: Path
) -> None:
    async with built(TOOLS) as kiln:
        environment = await kiln.engine.build_environment("tell_new", unreported)
        nothing = await kiln.engine.build_environment("tell_none", unreported)
    for file in links.iterdir():
        file.unlink()
    async with built(TOOLS) as kiln:
        result = await kiln.call("tell_new", {})

    assert environment
    assert environment.packages == {"alpha": "2.0"}
    assert nothing is None
    assert result.value == "2.0"
