"""What is wrong with a request, as RFC 9457 says it: the table from codes to statuses.

`code` is stable, the wording is not. A tool that fails is no problem in this sense: its
Result is the answer.
"""

from collections.abc import Mapping
from http import HTTPStatus

from pydantic import ValidationError

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Value

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
"""By code. `docs/http.md` says what each means."""

_MOST_FAULTS = 50


class Fault(Value):
    """One thing that is wrong with what a request says."""

    place: str
    """As in `body.arguments.2` or `query.limit`."""
    message: str


class Problem(Value):
    """The body of every answer that is an error, as `application/problem+json`."""

    type: str
    """`urn:toolkiln:CODE`."""
    title: str
    status: int
    code: str
    """Stable."""
    detail: str
    hint: str | None = None
    """What to do about it."""
    errors: tuple[Fault, ...] | None = None
    """Everything that is wrong, with its place, if the request does not fit its description."""


class Refused(Exception):
    """A request that ends in a problem."""

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
        self.problem = Problem(
            type=f"urn:toolkiln:{code}",
            title=HTTPStatus(status).phrase,
            status=status,
            code=code,
            detail=detail,
            hint=hint,
            errors=errors,
        )
        self.headers = headers or {}


def refusal(error: ToolkilnError) -> Refused:
    """The problem that an error of Toolkiln's is."""
    code = error.code
    if code not in STATUSES:
        code = InputError.code if isinstance(error, InputError) else ToolkilnError.code
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}
    return Refused(code, error.message, hint=error.hint, headers=headers.get(STATUSES[code]))


def misfit(where: str, error: ValidationError) -> Refused:
    """The problem that a query or body does not fit its model, with everything at once."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    faults = tuple(
        Fault(place=".".join((where, *map(str, fault["loc"]))), message=fault["msg"])
        for fault in found[:_MOST_FAULTS]
    )
    detail = "; ".join(f"{fault.place}: {fault.message}" for fault in faults[:3])
    if len(found) > len(faults[:3]):
        detail += f"; {len(found) - 3} more"
    return Refused("invalid_request", detail, errors=faults)
