# /// script
# requires-python = ">=3.11"
# dependencies = ["packaging>=24"]
#
# [tool.toolkiln]
# read_only = true
# parallel = true
# icon = "git-compare"
# ///
"""Requirements and options in a PEP 723 block; the functions themselves stay plain.

What `[tool.toolkiln]` says holds for every tool of the file.
"""

from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


def compare_versions(first: str, second: str) -> Literal["older", "same", "newer"]:
    """Tell whether the first of two version numbers is older or newer than the second.

    Versions are read as Python packages number them, pre-releases included.

    Args:
        first: A version such as `2.0rc1`.
        second: The version to compare it with.

    Returns:
        What the first version is, compared with the second.

    Examples:
        >>> compare_versions("1.10", "1.9")
        'newer'
        >>> compare_versions("2.0rc1", "2.0")
        'older'
    """
    one, other = _version(first), _version(second)
    return "same" if one == other else "older" if one < other else "newer"


def matching_versions(versions: list[str], constraint: str) -> list[str]:
    """Pick the versions that satisfy a constraint, newest first.

    Args:
        versions: The versions to choose from.
        constraint: What they have to satisfy, such as `>=1.2,<2`.

    Returns:
        Those that do. Pre-releases only where nothing else does.

    Examples:
        >>> matching_versions(["1.1", "1.2", "1.10", "2.0"], "~=1.2")
        ['1.10', '1.2']
    """
    try:
        allowed = SpecifierSet(constraint)
    except InvalidSpecifier:
        raise ValueError(f"{constraint!r} is not a version constraint") from None
    by_version = {_version(text): text for text in versions}
    return [by_version[v] for v in sorted(allowed.filter(by_version), reverse=True)]


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is not a version number") from None
