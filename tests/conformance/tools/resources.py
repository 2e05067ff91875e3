"""Resources that the scenarios read by their addresses."""

from typing import Any

from toolkiln import resource


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A sentence that stays the same."""
    return "This is the content of the static text resource."


@resource("test://template/{id}/data")
def template_data(id: str) -> dict[str, Any]:  # noqa: A002
    """A document for each id.

    Args:
        id: Which one.
    """
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Something to subscribe to."""
    return "This is what is watched."
