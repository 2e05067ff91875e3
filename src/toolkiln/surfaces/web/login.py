"""`/ui/login` and `/ui/logout`: an API key becomes a session in a cookie, for a person.

The cookie and when it counts are `cookies`' business, keys and sessions `app`'s. A key that is
wrong takes a while to be told so, and is written down nowhere.
"""

import asyncio
import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from starlette.types import Receive, Scope, Send

from toolkiln.app import Entrance, NoSession
from toolkiln.model import OpenSession, Value
from toolkiln.surfaces.http.cookies import (
    Given,
    clear_cookies,
    is_own_page,
    page_token,
    set_cookie,
)
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.replies import as_json
from toolkiln.surfaces.http.requests import checked_body, read_body
from toolkiln.surfaces.http.shapes import Body

_PENANCE = 1.0
"""Seconds after which a wrong key is told to be wrong."""
_MOST_WAITING = 20
"""Wrong keys that are recorded and wait at once; whoever shows further ones comes again."""


class Credentials(Body):
    """What a person shows."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class LoggedIn(Value):
    """That they are known; who they are tells `/v1/sessions/own`."""

    seconds: float
    """How long the session holds."""


class Login:
    """The two things that are posted to the page's own paths."""

    def __init__(self, entrance: Entrance, penance: float = _PENANCE) -> None:
        self._entrance = entrance
        self._penance = penance
        self.waiting = 0
        """Wrong keys that are not told so yet."""

    async def log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Exchange a key for a cookie.

        Raises:
            Refused: it is no key that holds, or another page asks.
        """
        given = _headers(scope)
        _refuse_others(given)
        body = await read_body(receive)
        shown = checked_body(Credentials, body, given.get(b"content-type", ""))
        assert isinstance(shown, Credentials)
        opened = await self.open(shown.key.strip(), _whence(scope))
        cookie = set_cookie(given, opened.token, opened.seconds)
        answer = LoggedIn(seconds=opened.seconds)
        await _answer(send, as_json(answer), [cookie])

    async def log_out(self, scope: Scope, _: Receive, send: Send) -> None:
        """End the session of the cookie, and have it forgotten.

        Raises:
            Refused: another page asks.
        """
        given = _headers(scope)
        _refuse_others(given)
        if token := page_token(given, is_local=True):  # whosever it is, the browser drops it
            await asyncio.to_thread(self._entrance.log_out, token)
        await _answer(send, b"", clear_cookies(given))

    async def open(self, key: str, whence: str) -> OpenSession:
        """A session for whoever shows a key.

        Raises:
            Refused: it does not hold, told after a while; or there are too many wrong ones.
        """
        try:
            return await asyncio.to_thread(self._entrance.log_in, key, whence)
        except NoSession as error:
            await self._repent(whence)
            raise Refused("no_session", error.message, hint=error.hint) from None

    async def _repent(self, whence: str) -> None:
        # Right keys are never kept waiting, however many wrong ones there are.
        if self.waiting >= _MOST_WAITING:
            later = {"retry-after": str(math.ceil(self._penance))}
            raise Refused("rate_limited", "too many wrong keys at once", headers=later)
        self.waiting += 1
        try:
            await asyncio.to_thread(self._entrance.record_refusal, whence)
            await asyncio.sleep(self._penance)
        finally:
            self.waiting -= 1


def _headers(scope: Scope) -> Given:
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def _refuse_others(given: Given) -> None:
    if not is_own_page(given):
        raise Refused(
            "origin_refused",
            "only the page itself logs people in and out",
            hint="open /ui/login in a browser; programs send `Authorization: Bearer tk_…`",
        )


def _whence(scope: Scope) -> str:
    return f"from {scope['client'][0]}" if scope.get("client") else ""


async def _answer(send: Send, content: bytes, cookies: Iterable[str]) -> None:
    headers = [
        (b"cache-control", b"no-store"),
        *((b"set-cookie", cookie.encode("latin-1")) for cookie in cookies),
        *([(b"content-type", b"application/json")] if content else []),
    ]
    status = 200 if content else 204
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
