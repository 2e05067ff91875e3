"""`/ui/login` and `/ui/logout`: an API key or the start-up token becomes a session in a cookie.

`cookies` says when the cookie counts, `app` what keys and tokens open. The answer to a wrong key
or token is delayed; neither is recorded.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import Field
from starlette.types import Receive, Scope, Send

from toolkiln.app import Entrance, NoSession
from toolkiln.model import OpenSession, Value
from toolkiln.surfaces.http.access import IS_LOCAL
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

_log = logging.getLogger(__name__)
_PENANCE = 1.0
"""Seconds after which a wrong key is told to be wrong."""
_MOST_WAITING = 20
"""Wrong keys that are recorded and wait at once; whoever shows further ones comes again."""


_MOST_RECORDED = 10
"""Wrong keys of one address that are recorded in a minute: the audit log is kept for long."""
_MOST_ADDRESSES = 1_000
_MINUTE = 60.0


class Credentials(Body):
    """What a person shows."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class LoggedIn(Value):
    """That they are known; who they are tells `/v1/sessions/own`."""

    seconds: float
    """How long the session holds."""


class Login:
    """Signing in and out of the page."""

    def __init__(
        self,
        entrance: Entrance,
        on_sign_in: Callable[[], None] = lambda: None,
        penance: float = _PENANCE,
    ) -> None:
        """`on_sign_in` is called when the start-up token was used."""
        self._entrance = entrance
        self._on_sign_in = on_sign_in
        self._penance = penance
        self.waiting = 0
        """Wrong keys that are not told so yet."""
        self._recorded: dict[str, tuple[float, int]] = {}
        """By address, when its minute began and how many wrong keys it has had since."""

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

    async def sign_in(self, token: str, scope: Scope, send: Send) -> None:
        """Exchange the start-up token for a cookie, and lead to the page without the token.

        Raises:
            Refused: a browser fetches the link ahead of time, or too many tokens are wrong.
        """
        given = _headers(scope)
        if "prefetch" in given.get(b"sec-purpose", "") + given.get(b"purpose", ""):
            raise Refused("not_allowed", "a sign-in link is not fetched ahead of time")
        whence = _whence(scope)
        try:
            if not scope.get(IS_LOCAL):
                raise NoSession("a sign-in link works on the server's machine only")
            opened = await asyncio.to_thread(self._entrance.sign_in, token, whence)
        except NoSession as error:
            await self._repent(whence)
            _log.info("sign-in link refused: %s", error.message)
            await _redirect(send, "/ui/login?link=refused", [])
            return
        self._on_sign_in()
        cookie = set_cookie(given, opened.token, opened.seconds)
        await _redirect(send, "/ui/", [cookie])

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
            if (count := self._counted(whence)) <= _MOST_RECORDED:
                more = "; more within a minute are not recorded" if count == _MOST_RECORDED else ""
                await asyncio.to_thread(self._entrance.record_refusal, whence + more)
            await asyncio.sleep(self._penance)
        finally:
            self.waiting -= 1

    def _counted(self, whence: str) -> int:
        """Count a wrong key of an address; returns how many it has had within a minute."""
        now = time.monotonic()
        since, count = self._recorded.pop(whence, (now, 0))
        if now - since >= _MINUTE:
            since, count = now, 0
        self._recorded[whence] = since, count + 1
        if len(self._recorded) > _MOST_ADDRESSES:
            del self._recorded[next(iter(self._recorded))]
        return count + 1


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


async def _redirect(send: Send, location: str, cookies: Iterable[str]) -> None:
    headers = [
        (b"location", location.encode()),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-length", b"0"),
        *((b"set-cookie", cookie.encode("latin-1")) for cookie in cookies),
    ]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
