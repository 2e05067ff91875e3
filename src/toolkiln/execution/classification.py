"""Classification of what a tool returned: a result, a failure, or a refusal.

Other people's tools report failures as values: `{"success": false, …}`, problem details, the
error body of an API, or a sentence. Only values that have the shape of an error are read for
refusals at any place; a plain text counts if it is nothing but a refusal. Only English wordings
are recognised.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolkiln.execution.refusals import OTHER_403, is_only_refusal, is_refusal

_MAX_JSON = 20_000
"""Characters; longer texts are data."""
_NO_REASON = "the tool reports a failure"
_TEXT_FIELDS = (
    "error", "message", "error_description", "errormessage", "error_message", "reason", "detail",
    "details", "msg", "title", "description", "stderr", "output",
)  # fmt: skip
_CODE_WORD = re.compile(r"[A-Za-z0-9]+(?:[_.-][A-Za-z0-9]+)*")
_FAILED = {"error", "failed", "failure", "fail"}
_REFUSED = {
    "denied", "forbidden", "unauthorized", "unauthorised", "permission_denied", "access_denied",
    "unauthenticated", "not_authenticated", "no_permission", "eperm", "eacces",
}  # fmt: skip
_SUCCEEDED = {"ok", "success", "succeeded", "active", "done", "completed", "complete", "pending"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_CODE_WORDS = (
    "status", "code", "error", "type", "reason", "title", "error_code", "errorcode", "__type",
    "error_type", "errortype", "exception",
)  # fmt: skip
"""Fields that may have a refusal as a code: `access_denied`."""
_CODE_FIELDS = ("status", "code", "status_code", "statuscode", "error_code", "errorcode")
_ERROR_FIELDS = {
    *(name.casefold() for name in _TEXT_FIELDS), *_CODE_FIELDS, "type", "error_type", "errortype",
    "__type", "hint", "retryable", "traceback", "timestamp", "time", "request_id", "requestid",
    "trace_id", "traceid", "fbtrace_id", "instance", "path", "documentation_url", "doc_url",
    "more_info", "help", "name", "param", "errors", "domain", "metadata", "kind", "apiversion",
    "needed", "provided", "required", "missing_scope", "scope", "resource", "error_uri",
    "correlationid", "statustext", "reasonphrase", "method", "url", "object", "ok", "success",
    "error_subcode", "innererror", "target", "exception",
    "errormessages", "responsemetadata",
}  # fmt: skip


class Failure(NamedTuple):
    """A failure that a returned value reports."""

    text: str
    refused: bool


def failure_in(value: Any) -> Failure | None:
    """Return the failure that a returned value reports; None if it is a result."""
    if isinstance(value, str):
        if (parsed := _json(value)) is not None:
            return failure_in(parsed)
        return Failure(value.strip(), True) if is_only_refusal(value) else None
    if not isinstance(value, dict):
        return None
    value = _with_plain_names(value)
    if value.get("iserror") is True or value.get("is_error") is True:
        return reported_failure("\n".join(_content_texts(value.get("content"))))
    for flag in ("success", "ok"):
        if isinstance(is_ok := value.get(flag), bool):
            return None if is_ok else _failure_from(_text(value) or _errors_text(value), value)
    if value.get("error") is True:
        return _failure_from(_text(value), value)
    status = _word(value.get("status"))
    if status in _FAILED or status in _REFUSED:
        text = _text(value, "error", "message")
        if not text and _has_only_error_fields(value):
            text = _text(value, "reason", "detail")
        return _failure_from(text, value) if text else None
    if _is_success(value):
        return None
    text = _text(value)
    if text and _has_only_error_fields(value) and (_has_error(value) or _http_code(value) >= 400):
        return _failure_from(text, value)
    errors = _errors_text(value)
    if errors and _has_only_error_fields(value, "data"):
        return _failure_from(errors, value)
    # An error beside data may be a warning; a refusal is none.
    error = _text(value, "error")
    is_refused = is_refusal(error)
    if not is_refused and text and _is_bare_message(value):
        codes = [str(value.get(name)) for name in ("code", "errorcode", "__type")]
        is_refused = is_only_refusal(text) or any(map(_is_refusal_code, codes))
    return Failure(error or text, True) if is_refused else None


def reported_failure(text: str) -> Failure:
    """Return the failure with this text."""
    return Failure(text or _NO_REASON, is_refusal(text))


def _json(text: str) -> dict[str, Any] | list[Any] | None:
    """Parse a text that is a JSON object or array; some tools can return text only."""
    if len(text) > _MAX_JSON or not text[:50].lstrip().startswith(("{", "[")):
        return None
    try:
        value: dict[str, Any] | list[Any] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _failure_from(text: str, value: Mapping[str, Any]) -> Failure:
    codes = _codes(value)
    refused = is_refusal(text) or any(map(_is_refusal_code, codes))
    if "invalid_grant" in codes:  # OAuth's answer to an old code, with the status 400
        return Failure(text, False)
    if not refused and _http_code(value) in (401, 403):
        refused = OTHER_403.search(text) is None
    return Failure(text or _NO_REASON, refused)


def _codes(value: Mapping[str, Any]) -> list[str]:
    sources = list(_sources(value))
    codes = [source.get(name) for source in sources for name in _CODE_WORDS]
    return [code.strip() for code in codes if isinstance(code, str)]


def _is_refusal_code(code: str) -> bool:
    return code.casefold() in _REFUSED or (
        not code.isdigit() and is_refusal(code.replace("-", "_"))
    )


def _with_plain_names(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name).casefold().replace("-", "_"): content for name, content in value.items()}


def _sources(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that may have the code of an error."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    data = value.get("data")
    inner = data if _is_status("data", data) else None
    for source in (value, value.get("error"), first, inner):
        if isinstance(source, dict):
            yield _with_plain_names(source)
            if isinstance(extensions := source.get("extensions"), dict):
                yield extensions


def _word(value: Any) -> str:
    return value.strip().casefold() if isinstance(value, str) else ""


def _text(value: Mapping[str, Any], *names: str) -> str:
    """Return the first text among some fields; `{"error": {"message": …}}` counts, too."""
    first = ""
    for name in names or _TEXT_FIELDS:
        found = value.get(name)
        if name == "error" and isinstance(found, dict):
            found = _text(
                _with_plain_names(found), "message", "detail", "reason", "msg", "description"
            )
        if isinstance(found, str) and found.strip():
            if not _CODE_WORD.fullmatch(found) or names:
                return found
            first = first or found  # a code; the words may be in another field
    return first


def _has_error(value: Mapping[str, Any]) -> bool:
    """Return whether a value has a field that only errors have."""
    names = ("error", "errormessage", "error_message", "error_description")
    return any(_text(value, name) for name in names)


def _has_only_error_fields(value: Mapping[str, Any], *others: str) -> bool:
    return all(
        name.casefold() in _ERROR_FIELDS or content in _EMPTY or _is_status(name, content)
        for name, content in value.items()
        if name not in others
    )


def _is_status(name: str, content: Any) -> bool:
    """Return whether a field is WordPress's `"data": {"status": 401}`."""
    return name == "data" and isinstance(content, dict) and [*content] == ["status"]


def _is_success(value: Mapping[str, Any]) -> bool:
    """Return whether a value has a status that is none of an error."""
    status = value.get("status")
    if type(status) is int:
        return status < 400
    return bool(_word(status) in _SUCCEEDED)


def _is_bare_message(value: Mapping[str, Any]) -> bool:
    """Return whether a value is a message and nothing but details of an error."""
    names = {name.casefold() for name, content in value.items() if content not in _EMPTY}
    return names <= _BARE_FIELDS


_BARE_FIELDS = {
    "message", "detail", "msg", "reason", "code", "status", "status_code", "statuscode",
    "request_id", "requestid", "documentation_url", "error_code", "__type", "type", "title",
    "errorcode", "hostid",
}  # fmt: skip


def _http_code(value: Mapping[str, Any]) -> int:
    """Return the HTTP status that an error names; 0 if it names none."""
    for source in _sources(value):
        for name, content in source.items():
            if name.casefold() in _CODE_FIELDS:
                text = str(content) if type(content) in (int, str) else ""
                if len(text) == 3 and text.isascii() and text.isdigit():
                    return int(text)
    return 0


def _errors_text(value: Mapping[str, Any]) -> str:
    """Return the messages in the errors of a response without data: GraphQL, JSON:API, Jira."""
    if value.get("data") not in _EMPTY:
        return ""
    items: list[Any] = []
    for errors in (value.get("errormessages"), value.get("errors")):
        if isinstance(errors, list):
            items += errors[:20]
        elif isinstance(errors, dict) and "errormessages" in value:
            items += [*errors.values()][:20]
    texts = (_text(_with_plain_names(item)) if isinstance(item, dict) else item for item in items)
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _content_texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of MCP content blocks."""
    for block in blocks if isinstance(blocks, list) else [blocks]:
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str) and text.strip():
            yield text
