"""The rights that a tool asks for and does not get, in words."""

from collections.abc import Iterable, Iterator

from toolkiln.app import Kiln


def not_granted(kiln: Kiln, name: str) -> Iterator[str]:
    """What a tool of the catalog asks for in vain, by the settings or by its admission."""
    if name not in kiln.tools:
        return
    asked, grant = kiln.tool(name).rights, kiln.grant(name)
    if hosts := [host for host in asked.network if not _covers(grant.network, host)]:
        yield f"network {', '.join(hosts)}"
    if asked.workspace and grant.workspace not in (asked.workspace, "write"):
        yield f"workspace {asked.workspace}"
    if not asked.sandbox and grant.sandbox:
        yield "to run without the sandbox"


def _covers(granted: Iterable[str], host: str) -> bool:
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in granted
    )
