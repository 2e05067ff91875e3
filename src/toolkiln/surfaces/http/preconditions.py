"""`If-Match` and `If-None-Match`: whether what is there is what the client looked at.

The tag of a tool is its digest in quotes: it names the bytes of the version.
"""

from toolkiln.app import errands
from toolkiln.surfaces.http.operations import Visit
from toolkiln.surfaces.http.problems import Refused


def tag(digest: str) -> str:
    """The ETag of a version."""
    return f'"{digest}"'


def expected(visit: Visit) -> errands.Match:
    """The versions that an act may be about, as `errands` has them.

    Raises:
        Refused: the header is empty.
    """
    given = visit.headers.get("if-match")
    if given is None:
        return None
    if not given.strip():
        raise Refused("bad_request", "If-Match is empty")
    tags = [one.strip() for one in given.split(",")]
    # What is no tag of ours matches nothing.
    return tuple(one if one == "*" else one[1:-1] for one in tags if _is_tag(one))


def _is_tag(text: str) -> bool:
    return text == "*" or (len(text) > 1 and text[0] == text[-1] == '"' and text != '"*"')


def creates_only(visit: Visit) -> bool:
    """Whether nothing that is there may be replaced.

    Raises:
        Refused: the header says something else than `*`.
    """
    given = visit.headers.get("if-none-match")
    if given is not None and given.strip() != "*":
        raise Refused("bad_request", "If-None-Match of a PUT is `*`, or is not sent")
    return given is not None
