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

_MAX_REFUSAL = 300
_MAX_ERROR = 2_000
"""Characters of an error that are searched for a refusal."""
_MAX_JSON = 20_000
"""Characters; longer texts are data."""
_NO_REASON = "the tool reports a failure"
_TEXT_FIELDS = (
    "error", "message", "error_description", "errorMessage", "error_message", "reason", "detail",
    "details", "msg", "title", "description", "stderr", "output", "Message",
)  # fmt: skip
_FAILED = {"error", "failed", "failure", "fail"}
_REFUSED = {
    "denied", "forbidden", "unauthorized", "unauthorised", "permission_denied", "access_denied",
    "unauthenticated", "not_authenticated", "no_permission", "eperm", "eacces",
}  # fmt: skip
_SUCCEEDED = {"ok", "success", "succeeded", "active", "done", "completed", "complete", "pending"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_CODE_WORDS = ("status", "code", "error", "type", "reason")
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
        return Failure(value.strip(), True) if _is_only_refusal(value) else None
    if not isinstance(value, dict):
        return None
    if value.get("isError") is True or value.get("is_error") is True:
        return reported_failure("\n".join(_content_texts(value.get("content"))))
    for flag in ("success", "ok"):
        if isinstance(is_ok := value.get(flag), bool):
            return None if is_ok else _failure_from(_text(value), value)
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
    is_refused = is_refusal(error) or (_is_bare_message(value) and is_refusal(text))
    return Failure(error or text, True) if is_refused else None


def reported_failure(text: str) -> Failure:
    """Return the failure with this text."""
    return Failure(text or _NO_REASON, is_refusal(text))


def is_refusal(text: str) -> bool:
    """Return whether the text of an error contains a refusal."""
    head = text[:_MAX_ERROR].strip()
    clauses = (head, *_BETWEEN_CLAUSES.split(head))
    return any(_refuses(part, _REFUSAL_IN_ERROR) or _LACKS.search(part) for part in clauses)


def _is_only_refusal(text: str) -> bool:
    """Return whether a text is a refusal and nothing else: one sentence, or two."""
    head = text.strip()
    if len(text) > _MAX_REFUSAL or len(_BETWEEN_SENTENCES.findall(head)) >= 2:
        return False
    lacks = _LACKS.search(head)
    is_about_caller = lacks is not None and _WHO.fullmatch(head[: lacks.start()].rstrip())
    return bool(is_about_caller) or _refuses(head, _REFUSAL)


def _refuses(clause: str, pattern: re.Pattern[str]) -> bool:
    """Return whether a clause begins with a refusal."""
    return bool(pattern.match(clause) or ("require" in clause and _REQUIREMENT.match(clause)))


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
    nested = value.get("error")
    sources = (value, nested) if isinstance(nested, dict) else (value,)
    codes = [_word(source.get(name)) for source in sources for name in _CODE_WORDS]
    refused = any(code in _REFUSED or is_refusal(code) for code in (*codes, text))
    if not refused and _http_code(value) in (401, 403):
        refused = _OTHER_403.search(text) is None
    return Failure(text or _NO_REASON, refused)


def _word(value: Any) -> str:
    return value.strip().casefold() if isinstance(value, str) else ""


def _text(value: Mapping[str, Any], *names: str) -> str:
    """Return the first text among some fields; `{"error": {"message": …}}` counts, too."""
    first = ""
    for name in names or _TEXT_FIELDS:
        found = value.get(name)
        if name == "error" and isinstance(found, dict):
            found = _text(found, "message", "detail", "reason", "msg", "description")
        if isinstance(found, str) and found.strip():
            if not _CODE_WORD.fullmatch(found) or names:
                return found
            first = first or found  # a code; the words may be in another field
    return first


def _has_error(value: Mapping[str, Any]) -> bool:
    """Return whether a value has a field that only errors have."""
    names = ("error", "errorMessage", "error_message", "error_description")
    return any(_text(value, name) for name in names)


def _has_only_error_fields(value: Mapping[str, Any], *others: str) -> bool:
    return all(
        name.casefold() in _ERROR_FIELDS or content in _EMPTY
        for name, content in value.items()
        if name not in others
    )


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
}  # fmt: skip


def _http_code(value: Mapping[str, Any]) -> int:
    """Return the HTTP status that an error names; 0 if it names none."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    for source in (value, value.get("error"), first):
        for name, content in source.items() if isinstance(source, dict) else ():
            if name.casefold() in _CODE_FIELDS:
                text = str(content) if type(content) in (int, str) else ""
                if len(text) == 3 and text.isascii() and text.isdigit():
                    return int(text)
    return 0


def _errors_text(value: Mapping[str, Any]) -> str:
    """Return the messages of a GraphQL or JSON:API response that has errors and no data."""
    errors = value.get("errors")
    if not isinstance(errors, list) or value.get("data") not in _EMPTY:
        return ""
    texts = (_text(item) if isinstance(item, dict) else item for item in errors[:20])
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _content_texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of MCP content blocks."""
    for block in blocks if isinstance(blocks, list) else [blocks]:
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str) and text.strip():
            yield text


_BETWEEN_SENTENCES = re.compile(r"[.!?…]+\s+(?=\S)|\n\s*(?=\S)")
_BETWEEN_CLAUSES = re.compile(r"[.!?…;]+\s+|\n+|:\s+|\s+[-–—]\s+|,\s+(?:but|because|since)\s+|\s\(")
_CODE_WORD = re.compile(r"[A-Za-z0-9]+(?:[_.-][A-Za-z0-9]+)*")
_OTHER_403 = re.compile(r"\b(?:rate|quota|limit|throttl\w*|too many|billing|csrf)\b", re.I)
# A word alone may begin a result ("Forbidden City"): what follows it counts.
_STOP = r"(?=\s*(?:\Z|\n|[.:;!,()\[\]*_`—–|<-]))"
_WHY = (
    r"(?=[\s_]*(?:\Z|\n|[^\w\s])|\s+"
    r"(?:to|for|by|on|in|because|as|since|without|unless|due|while|when)\b)"
)
_NOT_LET = r"not\s+(?:allowed|permitted|authori[sz]ed)\b"
_DO = (
    r"(?:access|add|call|change|create|delete|do|edit|execute|invite|list|manage|modify|perform|"
    r"post|push|read|remove|run|send|update|use|view|write)"
)
_KIND = (
    r"(?<!['\"`])(?:permissions?|privileges?|rights\b|scopes?|roles?|authori[sz]ation|"
    r"entitlements?)"
)
_NOT_HAVE = r"(?:(?:do|does|did)\s+not|(?:do|does|did)n['’]t)\s+have\s+(?!to\b)"


def _refusal(after_word: str) -> re.Pattern[str]:
    """Return the pattern of a refusal; `after_word` is what may follow "Forbidden" alone."""
    return re.compile(
        rf"""
        (?:\x1b\[[0-9;]*m|<\w{{1,10}}>|[\W_])*(?=[^\W_])
        (?:(?:error|failed|failure|warning|fatal|http(?:/\d(?:\.\d)?)?|40[13]|errno\s+\d+|
            client\s+error|i['’]m\s+sorry|sorry|but)\b[\W_]+){{0,4}}
        (?:
            (?:permission|access)[\s_-]*(?:(?:is|was|has\s+been)\s+)?denied(?:exception|error)?
            {_WHY}
          | access\s+to\s[^\n]{{1,80}}?\s(?:is|was|has\s+been)\s+(?:denied|refused|forbidden)\b
          | not[\s_-]*(?:authori[sz]ed|authenticated)(?:exception)?{_WHY}
          | authentication\s+(?:(?:is\s+)?required|credentials\s+were\s+not\s+provided)\b
          | (?:unauthori[sz]ed|forbidden)(?:exception|error|operation|\s+access)?{after_word}
          | missing\s+access{_STOP}
          | (?:insufficient|missing|not\s+enough)[\s_-]*(?:required[\s_-]+)?
            (?:(?:the|oauth|api|access)\s+)?(?:[\w.:`'"-]+\s+)?{_KIND}(?:{_STOP}|\s+(?:to|for|in|on)\b)
          | authori[sz]ation\s*(?:failed|denied|failure)\b
          | operation[\s_]+not[\s_]+permitted\b
          | (?:eperm|eacces)\b(?=\W+\w)
          | denied\s*[:—–-](?!\s*\d)
          | (?:you|your\s+\w+(?:\s+\w+)?)\s+{_NOT_HAVE}
            [^.!?\n]{{0,80}}?\b(?:{_KIND}|access\s+to)\b
          | you\s+lack\s+[^.!?\n]{{0,80}}?\b{_KIND}
          | (?:i\s+am|i['’]m)\s+{_NOT_LET}
          | (?:you\s+are|you['’]re)\s+{_NOT_LET}\s+to\s+{_DO}\b
          | (?:(?:this|the|that|your)\s+)?(?:action|operation|request|command|(?:tool\s+)?call|tool)
            \s+(?:(?:is|was|has\s+been)\s+)?(?:{_NOT_LET}|(?:denied|forbidden|refused|unauthori[sz]ed)\b)
          | resource\s+not\s+accessible\s+by\b
        )
        """,
        re.IGNORECASE | re.VERBOSE,
    )


_REFUSAL, _REFUSAL_IN_ERROR = _refusal(_STOP), _refusal(_WHY)
_LACKS = re.compile(
    rf"""
        \b{_NOT_HAVE}[^.!?\n]{{0,80}}?\b{_KIND}(?!\s+of\s)
      | \b(?:lacks?|is\s+missing|are\s+missing)\s+[^.!?\n]{{0,80}}?\b{_KIND}
      | \b(?:is|are|was|were)\s+not\s+authori[sz]ed(?:\s+(?:to|for|by)\b|{_STOP})
      | (?<=\w)\s+(?:is|are)\s+not\s+(?:allowed|permitted)\s+to\s+{_DO}\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Missing permission of anyone: the text before it says of whom."""
_REQUIREMENT = re.compile(
    r"""
    [^.!?:\n]{1,100}?\brequires?\s+
    (?:the\s+(?:[^\s.!?]|[.\s](?=\S)){1,60}?|[A-Z][A-Z0-9_]+)\s+(?:permission|privilege)s?\b
    """,
    re.VERBOSE,
)
_WHO = re.compile(
    r"""
    [\W_]*(?:(?:error|sorry|warning)\b[\W_]+)?
    (?:(?:the|this|your|current|calling)\s+){0,2}
    (?:user|caller|account|agent|bot|client|app|application|session|token|api\s+key|key|member|
       service\s+account|principal|you|i|we|channel|guild|server|role|person|operator|identity)
    (?:\s+(?:with\s+\w+\s+)?(?:'[^']{1,60}'|"[^"]{1,60}"|`[^`]{1,60}`|[\w.@\#:/-]{1,60}))?
    """,
    re.IGNORECASE | re.VERBOSE,
)
