"""`If-Match` and `If-None-Match`: whether what is there is what the client looked at.

The tag of a tool is its digest in quotes: it names the bytes of the version.
"""

from toolkiln.surfaces.http.operations import Visit
from toolkiln.surfaces.http.problems import Refused


def tag(digest: str) -> str:
    """The ETag of a version."""
    return f'"{digest}"'


def expected(visit: Visit, current: str | None) -> str | None:
    """The version that an act is about, if the client says one; `current` is the one there.

    Raises:
        Refused: another one is there.
    """
    given = visit.headers.get("if-match")
    if given is None:
        return None
    if not given.strip():
        raise Refused("bad_request", "If-Match is empty")
    tags = [one.strip() for one in given.split(",")]
    if current is None or not {"*", tag(current)} & {*tags}:
        there = f"the tool is at version {current}" if current else "there is no such tool"
        raise Refused("outdated", there, hint="look at it as it is, then try again")
    return current


def creates_only(visit: Visit) -> bool:
    """Whether nothing that is there may be replaced.

    Raises:
        Refused: the header says something else than `*`.
    """
    given = visit.headers.get("if-none-match")
    if given is not None and given.strip() != "*":
        raise Refused("bad_request", "If-None-Match of a PUT is `*`, or is not sent")
    return given is not None
