"""Questions of a running tool as they travel, and their answers as its author sees them.

What may be asked, and whether an answer fits, is decided outside.
"""

from typing import Any

from toolkiln.define import Filled, Form, Question, Root, Roots, Sample, Sampled
from toolkiln.runtime.serialise import plain

_KINDS: dict[type[Question[Any]], str] = {Form: "form", Sample: "sample", Roots: "roots"}
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def kind_of(kind: type[Question[Any]]) -> str:
    """What outside such questions are called.

    Raises:
        TypeError: it is none.
    """
    found = next((name for base, name in _KINDS.items() if issubclass(kind, base)), None)
    if found is None:
        raise TypeError(f"a Form, a Sample or Roots can be asked, not {kind.__name__}")
    return found


def described(question: Question[Any]) -> dict[str, Any]:
    """A question in plain JSON.

    Raises:
        TypeError: it is none.
    """
    told: dict[str, Any] = {"kind": kind_of(type(question))}
    if isinstance(question, Form):
        fields = {name: _field(given) for name, given in question.fields.items()}
        required = question.required
        if required is None:
            required = [name for name, given in fields.items() if "default" not in given]
        told |= {"message": question.message, "fields": fields, "required": list(required)}
    elif isinstance(question, Sample):
        prompt = question.prompt
        said = [("user", prompt)] if isinstance(prompt, str) else prompt
        told["messages"] = [{"role": role, "text": text} for role, text in said]
        told |= {"system": question.system, "max_tokens": question.max_tokens}
    told["name"] = getattr(question, "name", "")
    found: dict[str, Any] = plain(told).value
    return found


def answered(question: Question[Any], given: dict[str, Any]) -> Any:
    """An answer as its author expects it."""
    if isinstance(question, Form):
        return Filled(given["action"], given["content"])
    if isinstance(question, Sample):
        return Sampled(**given)
    return tuple(Root(**root) for root in given["roots"])


def _field(given: Any) -> dict[str, Any]:
    if not isinstance(given, type):
        return dict(given)
    if given not in _TYPES:
        raise TypeError(f"a field is str, int, float, bool or a JSON Schema, not {given.__name__}")
    return {"type": _TYPES[given]}
