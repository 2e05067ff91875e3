"""The ASGI application: operations become routes, checks and answers.

It knows neither limits (`gate`) nor sockets (`server`). What is mounted beside the
operations gets its requests as they are, and asks for credentials itself.
"""

import logging
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.app import Entrance, Kiln
from toolkiln.errors import ToolkilnError
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.problems import Refused, refusal
from toolkiln.surfaces.http.repeats import Repeats, checked_key
from toolkiln.surfaces.http.replies import Reply
from toolkiln.surfaces.http.requests import (
    ClientGone,
    Presence,
    checked_body,
    checked_query,
    read_body,
    session_of,
    takes_gzip,
)
from toolkiln.surfaces.http.routes import Routes

_log = logging.getLogger(__name__)


class App:
    """The operations of one Kiln, and what is mounted beside them."""

    def __init__(
        self,
        kiln: Kiln,
        entrance: Entrance,
        operations: Iterable[Operation],
        mounts: Mapping[str, ASGIApp] | None = None,
    ) -> None:
        """`mounts`: by the beginning of their paths, such as `/mcp`."""
        self._kiln = kiln
        self._entrance = entrance
        self._routes = Routes(operations)
        self._mounts = {path.encode(): app for path, app in (mounts or {}).items()}
        self._repeats = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever goes wrong is a problem, unless an answer has begun."""
        reply, asked = Reply(scope, send), scope["raw_path"]
        try:
            for path, mounted in self._mounts.items():
                if asked == path or asked.startswith(path + b"/"):
                    await mounted(scope, receive, reply.pass_on)
                    return
            await self._answer(scope, receive, reply)
        except ClientGone:
            return
        except Refused as end:
            await reply.problem(end)
        except ToolkilnError as error:
            await reply.problem(refusal(error))
        except Exception:  # noqa: BLE001 - the last boundary; the log is told, the client not
            _log.exception("%s %s failed", scope["method"], ascii(scope["path"]))
            await reply.problem(Refused("internal", "the server failed; its log says why"))

    async def _answer(self, scope: Scope, receive: Receive, reply: Reply) -> None:
        operation, path = self._routes.find(scope["method"], scope["raw_path"])
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        session = await session_of(self._entrance, scope)
        guard = self._kiln.guarding.guard
        caller = guard.known_caller(session) or await guard.caller(session)
        visit = Visit(self._kiln, session, caller, path, headers)
        key = checked_key(headers.get("idempotency-key"))
        if key is not None and caller.is_anonymous:
            raise Refused(
                "not_allowed",
                "anonymous callers cannot use an Idempotency-Key: others may choose the same one",
                hint="sign in, send an API key, or leave the header out",
            )
        given, body = [], b""
        if operation.query is not None:
            given.append(checked_query(operation.query, scope["query_string"]))
        if operation.body is not None:
            body = await read_body(receive)
            kind = headers.get("content-type", "")
            given.append(checked_body(operation.body, body, kind))

        async def handle() -> Answer:
            answer = await operation.handle(visit, *given)
            if isinstance(answer, Answer):
                return answer
            return Answer(answer, next(iter(operation.answers)))

        async with Presence(receive):
            if key is not None and operation.idempotent_by_key is True:
                whose = caller.who, caller.session, scope["method"], scope["raw_path"]
                conditions = [headers.get(name.lower()) for name in operation.preconditions]
                what = repr((scope["query_string"], conditions, body)).encode()
                answer = await self._repeats.once(key, whose, what, handle)
            else:
                answer = await handle()
        if answer.events is not None:
            await reply.events(answer, receive)
        elif operation.is_large:
            await reply.large_value(answer, takes_gzip(headers.get("accept-encoding", "")))
        else:
            await reply.value(answer)
