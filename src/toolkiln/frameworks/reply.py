"""Replies of tools in the types of other frameworks: a value, and files to send.

Stand-ins of result and media types extend these classes; `runtime.call` delivers them, and those
of an installed framework as well.
"""

from __future__ import annotations

import sys

from toolkiln.frameworks.modules import RESULTS

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
    value = as_stand_in(value)
    if isinstance(value, Reply):
        for file in value.reply_files:
            send(file.file_name, file.file_data)
        return delivered(value.reply_value, send)
    if isinstance(value, File):
        send(value.file_name, value.file_data)
        return value.file_name
    if type(value) is list and any(map(_is_result, value)):
        return [delivered(item, send) for item in value]
    return value


def _is_result(value: Any) -> bool:
    return isinstance(value, File | Reply) or as_stand_in(value) is not value


def as_stand_in(value: Any) -> Any:
    """Return a result of an installed framework as its stand-in."""
    kind = type(value)
    stand_in = RESULTS.get(kind.__module__.partition(".")[0])
    if stand_in is None:
        return value
    name = f"{__package__}.{stand_in}"
    __import__(name)
    cls = getattr(sys.modules[name], kind.__name__, None)
    if not isinstance(cls, type) or not issubclass(cls, File | Reply):
        return value
    return cls(**{name.lstrip("_"): item for name, item in vars(value).items()})
