"""Stand-in for `fastapi` and `starlette` in tools, which use their responses as values.

A tool returns an HTML response to show a page to the person. Nothing is served here: routes,
requests and dependencies are `unavailable`.
"""

from __future__ import annotations

import json

from toolkiln.define import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Headers(dict[str, str]):
    """Headers by name, in any case."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__({str(name).lower(): str(value) for name, value in (headers or {}).items()})

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name.lower(), value)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a header."""
        return super().get(name.lower(), default)


class Response:
    """A response of a web server."""

    media_type: str | None = None

    def __init__(
        self,
        content: Any = None,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        **_: object,
    ) -> None:
        self.status_code = status_code
        self.media_type = media_type or self.media_type
        self.body = self.render(content)
        self.headers = Headers(headers)
        if self.media_type and "content-type" not in self.headers:
            self.headers["content-type"] = self.media_type

    def render(self, content: Any) -> bytes:
        """Return the body for some content."""
        return content if isinstance(content, bytes) else str(content or "").encode()


class HTMLResponse(Response):
    """A page."""

    media_type = "text/html"


class PlainTextResponse(Response):
    """A text."""

    media_type = "text/plain"


class JSONResponse(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the value as JSON."""
        return json.dumps(content, ensure_ascii=False).encode()


class HTTPException(ToolError):
    """An error with the status of a web server."""

    def __init__(
        self, status_code: int, detail: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(str(detail or f"status {status_code}"))
        self.status_code = status_code
        self.detail = detail
        self.headers = headers


class UploadFile:
    """A file that was uploaded."""

    def __init__(
        self,
        file: Any,
        *,
        size: int | None = None,
        filename: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.file = file
        self.size = size
        self.filename = filename
        self.headers = Headers(headers)

    @property
    def content_type(self) -> Any:
        """The media type."""
        return self.headers.get("content-type")

    async def read(self, size: int = -1) -> Any:
        """Return bytes of the file."""
        return self.file.read(size)


async def run_in_threadpool(function: Any, *arguments: Any, **named: Any) -> Any:
    """Run a function in a thread."""
    import asyncio

    return await asyncio.to_thread(function, *arguments, **named)
