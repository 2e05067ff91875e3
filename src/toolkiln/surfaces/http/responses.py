"""Responses: JSON values, and problem details (RFC 9457) for failed requests.

The `code` of a problem is stable, the wording is not. A failing tool is not a problem: its
Result is the response.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from http import HTTPStatus
from math import isfinite
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

from toolkiln.errors import AdmissionRefused, InputError, InvalidCursor, ToolkilnError
from toolkiln.model.base import Value

STATUSES = {
    "bad_input": 400,
    "bad_json": 400,
    "bad_request": 400,
    "no_session": 401,
    "host_refused": 403,
    "not_allowed": 403,
    "not_granted": 403,
    "origin_refused": 403,
    "disabled": 404,
    "not_admitted": 404,
    "not_found": 404,
    "unknown_tool": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "conflict": 409,
    "exists": 409,
    "takes_others": 409,
    "too_late": 409,
    "outdated": 412,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_request": 422,
    "key_reused": 422,
    "refused": 422,
    "rate_limited": 429,
    "too_many_proposals": 429,
    "headers_too_large": 431,
    "internal": 500,
    "toolkiln_error": 500,
    "audit_failed": 503,
    "backend_failed": 503,
    "bad_config": 503,
    "busy": 503,
    "draining": 503,
    "embedding_failed": 503,
    "environment_failed": 503,
    "manifest_unusable": 503,
    "no_worker": 503,
    "secret_unusable": 503,
    "store_failed": 503,
    "unanswered": 503,
}
"""The HTTP status of each error code; documented in `docs/http.md`."""

_MAX_FAULTS = 50
_GZIP_LEVEL = 5
"""Higher levels take twice as long and save one percent."""


class JsonResponse(Response):
    """A response with a value as JSON."""

    media_type = "application/json"

    def render(self, content: BaseModel) -> bytes:
        return to_json(content)


def large_response(value: BaseModel, status: int, *, compress: bool) -> Response:
    """Return a response with a value that takes long to serialise: call this in a thread."""
    content, headers = to_json(value), {"vary": "accept-encoding"}
    if compress:
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(content, status, headers, JsonResponse.media_type)


def to_json(value: BaseModel) -> bytes:
    """Return a value as JSON in UTF-8."""
    try:
        return value.__pydantic_serializer__.to_json(value)
    except PydanticSerializationError:  # a lone surrogate, which needs an escape
        return json.dumps(_to_plain(value.model_dump()), allow_nan=False).encode()


def _to_plain(value: Any) -> Any:
    """Convert a value as pydantic's serialiser would."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return None if isinstance(value, float) and not isfinite(value) else value


class Fault(Value):
    """One invalid value in a request."""

    place: str
    """Where it is, such as `body.arguments.2` or `query.limit`."""
    message: str


class ProblemDetails(Value):
    """The body of every error response, as `application/problem+json`."""

    type: str
    """`urn:toolkiln:CODE`."""
    title: str
    status: int
    code: str
    """Stable."""
    detail: str
    hint: str | None = None
    """How to fix it."""
    errors: tuple[Fault, ...] | None = None
    """All invalid values, if the request does not match its schema."""


class HttpProblem(Exception):
    """An error whose response is a problem."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        errors: tuple[Fault, ...] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        status = STATUSES[code]
        self.problem = ProblemDetails(
            type=f"urn:toolkiln:{code}",
            title=HTTPStatus(status).phrase,
            status=status,
            code=code,
            detail=detail,
            hint=hint,
            errors=errors,
        )
        self.headers = headers or {}

    def response(self) -> JsonResponse:
        """Return the response."""
        status = self.problem.status
        return JsonResponse(self.problem, status, self.headers, "application/problem+json")


def refusal(error: ToolkilnError) -> HttpProblem:
    """Return the problem for an error."""
    code = error.code
    if isinstance(error, AdmissionRefused):
        code = error.reason if error.reason in STATUSES else code
        lines = tuple(
            Fault(place=f"{error.source}:{line}", message=text) for line, text in error.findings
        )
        return HttpProblem(code, error.message, hint=error.hint, errors=lines or None)
    if code not in STATUSES:
        code = InputError.code if isinstance(error, InputError) else ToolkilnError.code
    if isinstance(error, InvalidCursor):
        fault = Fault(place="query.cursor", message="not a cursor of this list")
        return HttpProblem(code, error.message, hint=error.hint, errors=(fault,))
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}
    return HttpProblem(code, error.message, hint=error.hint, headers=headers.get(STATUSES[code]))


def validation_problem(part: str, error: ValidationError) -> HttpProblem:
    """Return the problem for an invalid query or body, with all invalid values."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    faults = tuple(
        Fault(place=".".join((part, *map(str, item["loc"]))), message=item["msg"])
        for item in errors[:_MAX_FAULTS]
    )
    detail = "; ".join(f"{fault.place}: {fault.message}" for fault in faults[:3])
    if len(errors) > 3:
        detail += f"; {len(errors) - 3} more"
    return HttpProblem("invalid_request", detail, errors=faults)
