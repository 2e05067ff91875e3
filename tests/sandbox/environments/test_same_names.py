"""Files that are named like a package which they, or others beside them, require."""

from pathlib import Path

from toolkiln.config import Settings
from toolkiln.kiln import Kiln

from .index import offline, wheel

OWN = '''
# /// script
# dependencies = ["alpha"]
# ///
import alpha


def own_version() -> str:
    """Return the version of the package that this file is named after."""
    return alpha.VERSION
'''
SIBLING = OWN.replace("own_version", "sibling_version")
HELPED = '''
import alpha


def helped() -> str:
    """Return what the file beside this one is."""
    return type(alpha.own_version).__name__
'''


async def test_a_file_named_like_a_package_that_it_requires_imports_the_package(
    tmp_path: Path,
) -> None:
    wheel(tmp_path / "links", "alpha", "1.0")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "alpha.py").write_text(OWN)
    (tools / "sibling.py").write_text(SIBLING)
    environ = offline(tmp_path / "cache", tmp_path / "links")
    settings = Settings(state=tmp_path / "state", environ=environ)

    async with Kiln(tools, settings=settings, dev=True) as kiln:
        own = await kiln.call("own_version")
        sibling = await kiln.call("sibling_version")

    assert (own.value, sibling.value) == ("1.0", "1.0"), (own.error, sibling.error)


async def test_without_the_requirement_the_file_beside_it_is_a_helper(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "alpha.py").write_text("def own_version() -> str:\n    return ''\n")
    (tmp_path / "tools" / "helped.py").write_text(HELPED)
    settings = Settings(state=tmp_path / "state")

    async with Kiln(tmp_path / "tools", settings=settings, dev=True) as kiln:
        result = await kiln.call("helped")

    assert result.value == "function", result.error
