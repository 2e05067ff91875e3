"""The rights that a tool asks for, in words, and whether it gets them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln


class Right(NamedTuple):
    """Something that a tool asks for."""

    words: str
    is_granted: bool


def not_granted(kiln: "Kiln", name: str) -> Iterator[str]:
    """What a tool of the catalog asks for in vain, by the settings or by its admission."""
    return (right.words for right in rights(kiln, name) if not right.is_granted)


def rights(kiln: "Kiln", name: str) -> Iterator[Right]:
    """What a tool of the catalog asks for."""
    if name not in kiln.specs:
        return
    asked, grant = kiln.tool(name).rights, kiln.grant(name)
    yield from _parted("network", asked.network, lambda host: _covers(grant.network, host))
    if asked.workspace:
        is_granted = grant.workspace in (asked.workspace, "write")
        yield Right(f"workspace {asked.workspace}", is_granted)
    if not asked.sandbox:
        yield Right("to run without the sandbox", not grant.sandbox)
    yield from _parted("secrets", asked.secrets, lambda secret: secret in grant.secrets)


def _parted(kind: str, names: Iterable[str], is_granted: Callable[[str], bool]) -> Iterator[Right]:
    """Names that are asked for: those that are granted, then the others."""
    for granted in (True, False):
        if some := [name for name in names if is_granted(name) is granted]:
            yield Right(f"{kind} {', '.join(some)}", granted)


def _covers(granted: Iterable[str], host: str) -> bool:
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in granted
    )
