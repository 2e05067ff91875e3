"""What is not under `/v1`: health, readiness, metrics, the description and its page."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

from starlette.types import Receive, Scope, Send

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import ToolkilnError
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.openapi import JSON, describe
from toolkiln.surfaces.http.operations import Operation
from toolkiln.surfaces.http.page import page
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.replies import Reply
from toolkiln.surfaces.http.requests import session_of

_FRESH = 1.0
"""Seconds for which a look at the parts holds."""
_PATIENCE = 10.0
"""Seconds that they have to answer."""
_UNKEPT = {"cache-control": "no-store"}
Content = tuple[int, str, bytes, Mapping[str, str]]
Checks = Mapping[str, Callable[[], Awaitable[object]]]


class Readiness:
    """Whether calls would be run: the parts that they need, looked at now and then."""

    def __init__(self, kiln: Kiln, checks: Checks | None = None) -> None:
        """`checks` are further parts, by name; asked, they raise ToolkilnError."""
        self._checks: Checks = {
            "catalog": lambda: asyncio.to_thread(lambda: kiln.specs),
            "store": lambda: asyncio.to_thread(kiln.guarding.keys.list),
            **kiln.engine.checks,
            **(checks or {}),
        }
        self._looking = asyncio.Lock()
        self._found: dict[str, str] = {}
        self._at = 0.0
        self.is_draining = False

    async def look(self) -> dict[str, str]:
        """How each part stands: `ok`, or what is wrong with it."""
        async with self._looking:
            if not self._at or time.monotonic() - self._at > _FRESH:
                states = [_state(ask()) for ask in self._checks.values()]
                self._found = dict(zip(self._checks, await asyncio.gather(*states), strict=True))
                self._at = time.monotonic()
        return {**self._found, "server": "draining" if self.is_draining else "ok"}


async def _state(asked: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            await asked
    except ToolkilnError as error:
        return error.code
    except TimeoutError:
        return "no_answer"
    return "ok"


class Beside:
    """Answers what is asked of the server itself."""

    def __init__(
        self,
        operations: Sequence[Operation],
        entrance: Entrance,
        readiness: Readiness,
        metrics: Metrics,
    ) -> None:
        is_optional = entrance.authentication.may_allow_anonymous
        description = describe(operations, version=version("toolkiln"), is_local=is_optional)
        self._description = json.dumps(description, ensure_ascii=False).encode()
        self._entrance = entrance
        self._readiness = readiness
        self._metrics = metrics
        self.paths: Mapping[str, Callable[[Scope], Awaitable[Content]]] = {
            "/healthz": self._health,
            "/readyz": self._ready,
            "/metrics": self._measured,
            "/openapi.json": self._described,
            "/docs": self._shown,
        }

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Refused, ToolkilnError: it is not answered.
        """
        answer = self.paths.get(scope["path"])
        if answer is None:
            raise Refused("not_found", "there is nothing at this path")
        if scope["method"] not in ("GET", "HEAD"):
            method = scope["method"][:20]
            allow = {"allow": "GET, HEAD"}
            raise Refused("method_not_allowed", f"there is no {method} of this path", headers=allow)
        status, kind, content, headers = await answer(scope)
        await Reply(scope, send).whole(status, kind.encode(), content, headers)

    async def _health(self, _: Scope) -> Content:
        return 200, JSON, b'{"status":"ok"}', _UNKEPT

    async def _ready(self, _: Scope) -> Content:
        found = await self._readiness.look()
        is_ready = set(found.values()) == {"ok"}
        content = json.dumps({"ready": is_ready, "checks": found}).encode()
        return 200 if is_ready else 503, JSON, content, _UNKEPT

    async def _measured(self, scope: Scope) -> Content:
        await session_of(self._entrance, scope)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return 200, kind, self._metrics.text(), _UNKEPT

    async def _described(self, _: Scope) -> Content:
        return 200, JSON, self._description, {"cache-control": "no-cache"}

    async def _shown(self, _: Scope) -> Content:
        content, headers = page()
        others = {name: value for name, value in headers.items() if name != "Content-Type"}
        return 200, headers["Content-Type"], content, others
