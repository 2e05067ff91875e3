"""Which tools a caller may change: visible ones, if all tools of their file are visible.

A file is replaced, removed or rolled back with all of its tools. If the caller may not see one
of them, the response is the same as for a name that does not exist or is taken, and reveals
nothing about the hidden tool. `security.rules` decides what callers may see.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolkiln.errors import InputError, NotFound, UnknownTool
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import ToolSpec
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from toolkiln.operations.services import Services


def visible_to(services: "Services", session: SessionToken) -> Callable[[ToolSpec], bool]:
    """Return whether a caller may see a tool of a served file; disabled ones require ADMIN."""
    may_see = services.security.may_see(session)
    is_admin = Privilege.ADMIN in services.security.caller(session).privileges
    return lambda spec: may_see(spec) and (is_admin or spec.name in services.catalog.current.tools)


def refuse_hidden(services: "Services", tool: str, session: SessionToken) -> None:
    """Refuse to change a tool or toolkit whose file has a tool that the caller may not see.

    The operator of this process may change every file.

    Raises:
        UnknownTool: the file has a hidden tool.
    """
    if _is_operator(services, session):
        return
    specs = _served_with(services, tool) or _last_version(services, tool)
    may_see = visible_to(services, session)
    if not all(map(may_see, specs)):
        raise UnknownTool(tool, services.visible(session))


def refuse_hidden_file(services: "Services", file: str, session: SessionToken) -> None:
    """Refuse to decide about a file whose served version has a tool the caller may not see.

    Raises:
        NotFound: the file has a hidden tool.
    """
    if _is_operator(services, session):
        return
    served = services.catalog.served_version(file)
    may_see = visible_to(services, session)
    if served is not None and not all(map(may_see, served.reading.tools)):
        raise no_proposal(file)


def no_proposal(file: str) -> NotFound:
    """Return the error about a file that does not wait for a decision."""
    return NotFound(f"no file {file[:200]!r} waits", hint="see `toolkiln status`")


def _is_operator(services: "Services", session: SessionToken) -> bool:
    return session is LOCAL_OPERATOR or services.security.is_local_person(session)


def _served_with(services: "Services", name: str) -> list[ToolSpec]:
    """Return all tools of the files that serve a tool, or a toolkit, of this name."""
    files = {served.file: served for served in services.catalog.snapshot.served.values()}
    return [
        spec
        for served in files.values()
        if any(name in (s.name, s.toolkit and s.toolkit.name) for s in served.reading.tools)
        for spec in served.reading.tools
    ]


def _last_version(services: "Services", tool: str) -> tuple[ToolSpec, ...]:
    """Return the tools of a removed tool's last version."""
    from toolkiln.catalog.folder import read_sources

    try:
        versions = services.admissions.history(tool)
        sources = services.admissions.sources(versions[0])
    except (InputError, IndexError):  # the change itself reports it
        return ()
    return read_sources(sources, services.catalog.root / versions[0].file).tools
