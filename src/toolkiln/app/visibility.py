"""Which tools a caller may change: those they may see, and only together with their whole file.

A file is replaced, removed or rolled back with all of its tools. Where the caller may not see
one of them, the answer is the same as for a name that does not exist or is taken, so that it
says nothing about the hidden tool. What callers may see is for `execution.rules`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolkiln.app.own import OWN, SessionToken
from toolkiln.errors import InputError, NotFound, UnknownTool
from toolkiln.model import Privilege, ToolSpec

if TYPE_CHECKING:
    from toolkiln.app.guarding import Guarding
    from toolkiln.app.kiln import Kiln
    from toolkiln.catalog import Catalog


def visible_to(
    guarding: "Guarding", catalog: "Callable[[], Catalog]", session: SessionToken
) -> Callable[[ToolSpec], bool]:
    """Return whether a caller may see a tool of a served file; disabled ones take ADMIN."""
    may_see = guarding.may_see(session)
    is_admin = Privilege.ADMIN in guarding.caller(session).privileges
    return lambda spec: may_see(spec) and (is_admin or spec.name in catalog().current.tools)


def refuse_hidden(kiln: "Kiln", tool: str, session: SessionToken) -> None:
    """Refuse to change a tool or toolkit whose file has a tool that the caller may not see.

    The operator of this process may change every file.

    Raises:
        UnknownTool: there is such a tool; the answer is that for an unknown one.
    """
    if _is_operator(kiln, session):
        return
    specs = _served_with(kiln, tool) or _last_version(kiln, tool)
    may_see = visible_to(kiln.guarding, lambda: kiln.catalog, session)
    if not all(map(may_see, specs)):
        raise UnknownTool(tool, kiln.visible(session))


def refuse_hidden_file(kiln: "Kiln", file: str, session: SessionToken) -> None:
    """Refuse to decide about a file whose served version has a tool the caller may not see.

    Raises:
        NotFound: there is such a tool; the answer is that for an unknown file.
    """
    if _is_operator(kiln, session):
        return
    served = kiln.catalog.served_version(file)
    may_see = visible_to(kiln.guarding, lambda: kiln.catalog, session)
    if served is not None and not all(map(may_see, served.reading.tools)):
        raise no_proposal(file)


def no_proposal(file: str) -> NotFound:
    """Return the error about a file that does not wait for a decision."""
    return NotFound(f"no file {file[:200]!r} waits", hint="see `toolkiln status`")


def _is_operator(kiln: "Kiln", session: SessionToken) -> bool:
    return session is OWN or kiln.guarding.is_local_person(session)


def _served_with(kiln: "Kiln", name: str) -> list[ToolSpec]:
    """Return all tools of the files that serve a tool, or a toolkit, of this name."""
    files = {served.file: served for served in kiln.catalog.snapshot.served.values()}
    return [
        spec
        for served in files.values()
        if any(name in (s.name, s.toolkit and s.toolkit.name) for s in served.reading.tools)
        for spec in served.reading.tools
    ]


def _last_version(kiln: "Kiln", tool: str) -> tuple[ToolSpec, ...]:
    """Return the tools of a removed tool's last version."""
    from toolkiln.catalog import read_sources

    try:
        versions = kiln.admissions.history(tool)
        sources = kiln.admissions.sources(versions[0])
    except (InputError, IndexError):  # whatever changes the tool says so
        return ()
    return read_sources(sources, kiln.catalog.root / versions[0].file).tools
