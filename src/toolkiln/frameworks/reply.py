"""Replies of tools in the types of other frameworks: a value, and files to send.

Stand-ins of result and media types extend these classes; `runtime.call` delivers them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class File:
    """A file that a tool returns: an image, a recording, a document."""

    def __init__(self, name: str, data: bytes) -> None:
        self.file_name = name
        self.file_data = data


class Reply:
    """A result that has files besides its value."""

    reply_value: Any = None
    reply_files: Sequence[File] = ()


def delivered(value: Any, send: Callable[[str, bytes], None]) -> Any:
    """Send the files of a returned value, and return what else it has."""
    if isinstance(value, Reply):
        for file in value.reply_files:
            send(file.file_name, file.file_data)
        return delivered(value.reply_value, send)
    if isinstance(value, File):
        send(value.file_name, value.file_data)
        return value.file_name
    if type(value) is list and any(isinstance(item, File | Reply) for item in value):
        return [delivered(item, send) for item in value]
    return value
