"""What a returned value says of its call: that it went well, failed, or was refused.

Dialects say so in their own ways, and none of them raises. Pure functions over plain JSON;
they look for a few marks at the top of a value and for short sentences of refusal, and take
everything else for an answer. The value itself is left as it is.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_LONGEST = 300
_LONGEST_JSON = 20_000
"""Characters. What is longer is data."""
_NOTHING_SAID = "the tool says that it failed"
_TEXTS = ("error", "message", "reason", "detail", "details", "stderr", "output")
_FAILED = {"error", "failed", "failure"}
_REFUSED = {"denied", "forbidden", "unauthorized", "unauthorised"}
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_ABOUT_AN_ERROR = {
    "error", "message", "reason", "detail", "details", "code", "error_code", "errorcode",
    "status_code", "statuscode", "type", "error_type", "hint", "retryable", "traceback",
    "timestamp", "request_id",
}  # fmt: skip


class Failure(NamedTuple):
    """A value that reports a failure, in its own words."""

    text: str
    refused: bool


def failure_in(value: Any) -> Failure | None:
    """What a returned value reports, if it is not an answer."""
    if isinstance(value, str):
        if (written := _object(value)) is not None:
            return failure_in(written)
        refused = len(value) <= _LONGEST and is_refusal(value) and _is_brief(value.strip())
        return Failure(value.strip(), True) if refused else None
    if not isinstance(value, dict):
        return None
    if value.get("isError") is True or value.get("is_error") is True:
        return _failure("\n".join(_content(value.get("content"))))
    for flag in ("success", "ok"):
        if isinstance(said := value.get(flag), bool):
            return None if said else _failure(_text(value), _word(value.get("status")))
    status = _word(value.get("status"))
    if status in _FAILED or status in _REFUSED or _is_only_an_error(value):
        text = _text(value, "error", "message")
        return _failure(text, status) if text else None
    return None


def failure_of(stderr: str, stdout: str) -> Failure:
    """What a `ToolResult` reports that is not `ok`."""
    return _failure(stderr or stdout)


def is_refusal(text: str) -> bool:
    """Whether a text begins by saying that something was refused."""
    head = text[:_LONGEST]
    return bool(_REFUSAL.match(head) or ("require" in head and _REQUIREMENT.match(head)))


def _object(text: str) -> dict[str, Any] | None:
    """What a text says that is one object in JSON, as tools write that may only return text."""
    if len(text) > _LONGEST_JSON or not text[:50].lstrip().startswith("{"):
        return None
    try:
        value: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _is_brief(text: str) -> bool:
    return len(_BETWEEN_SENTENCES.findall(text)) < 2  # one sentence, or two


def _failure(text: str, status: str = "") -> Failure:
    return Failure(text or _NOTHING_SAID, status in _REFUSED or is_refusal(text))


def _word(value: Any) -> str:
    return value.strip().casefold() if isinstance(value, str) else ""


def _text(value: Mapping[str, Any], *names: str) -> str:
    """The first text that there is; `{"error": {"message": …}}` counts, too."""
    for name in names or _TEXTS:
        found = value.get(name)
        if name == "error" and isinstance(found, dict):
            found = found.get("message")
        if isinstance(found, str) and found.strip():
            return found
    return ""


def _is_only_an_error(value: Mapping[str, Any]) -> bool:
    """Whether there is an error, and nothing beside it but what is about it."""
    if not _text(value, "error"):
        return False
    return all(_is_about_it(name, content) for name, content in value.items())


def _is_about_it(name: str, content: Any) -> bool:
    if name == "status" and type(content) is int:
        return content >= 400  # HTTP's
    return name.casefold() in _ABOUT_AN_ERROR or content in _EMPTY


def _content(blocks: Any) -> Iterator[str]:
    """The texts of MCP's content."""
    for block in blocks if isinstance(blocks, list) else [blocks]:
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str) and text.strip():
            yield text


_BETWEEN_SENTENCES = re.compile(r"[.!?…]+\s+(?=\S)|\n\s*(?=\S)")
# A word alone may begin an answer ("Forbidden City"), so that what follows counts.
_STOP = r"(?=\s*(?:\Z|\n|[.:;!,()\[\]*_`—–|-]))"
_OR_WHY = r"(?=[\s_]*(?:\Z|\n|[^\w\s])|\s+(?:to|for|by|on|because|as|since|without|unless|due)\b)"
_NOT_LET = r"not\s+(?:allowed|permitted|authori[sz]ed)\b"
_DO = r"(?:access|call|change|create|delete|do|execute|modify|perform|read|run|use|view|write)"
_REFUSAL = re.compile(
    rf"""
    (?:\x1b\[[0-9;]*m|<\w{{1,10}}>|[\W_])*(?=[^\W_])
    (?:(?:error|failed|failure|warning|http|40[13]|i['’]m\s+sorry|sorry|but)\b[\W_]+){{0,4}}
    (?:
        (?:permission|access)[\s_-]+(?:(?:is|was|has\s+been)\s+)?denied{_OR_WHY}
      | access\s+to\s[^\n]{{1,80}}?\s(?:is|was|has\s+been)\s+(?:denied|refused|forbidden)\b
      | not[\s_-]+authori[sz]ed{_OR_WHY}
      | (?:unauthori[sz]ed|forbidden){_STOP}
      | denied\s*[:—–-]
      | you\s+(?:(?:do\s+not|don['’]t)\s+have|lack)\s+(?!to\b)[^.!?\n]{{0,80}}?
        \b(?:permissions?|privileges?|rights?|authori[sz]ation)\b
      | (?:i\s+am|i['’]m)\s+{_NOT_LET}
      | (?:you\s+are|you['’]re)\s+{_NOT_LET}\s+to\s+{_DO}\b
      | (?:(?:this|the|that|your)\s+)?(?:action|operation|request|command|call|tool)\s+
        (?:(?:is|was)\s+)?(?:{_NOT_LET}|(?:denied|forbidden|refused)\b)
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_REQUIREMENT = re.compile(
    r"""
    [^.!?:\n]{1,100}?\brequires?\s+
    (?:the\s+(?:[^\s.!?]|[.\s](?=\S)){1,60}?|[A-Z][A-Z0-9_]+)\s+(?:permission|privilege)s?\b
    """,
    re.VERBOSE,
)
