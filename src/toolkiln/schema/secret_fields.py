"""The fields of a settings schema whose values are secrets.

`SecretStr` and `SecretBytes` have the format `password` and are `writeOnly`; a field that
says `json_schema_extra={"secret": True}` counts, too. A field that contains a secret
anywhere is one as a whole.
"""

from typing import Any

from toolkiln.model import JsonSchema


def secret_fields(schema: JsonSchema) -> frozenset[str]:
    """The names of the top-level properties that are secrets or contain one."""
    properties = schema.get("properties", {})
    definitions = schema.get("$defs", {})
    return frozenset(name for name, part in properties.items() if _is_secret(part, definitions))


def _is_secret(schema: Any, definitions: JsonSchema) -> bool:
    pending, seen = [schema], set[str]()
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            if part.get("format") == "password" or part.get("writeOnly") or part.get("secret"):
                return True
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                pending.append(definitions.get(name))
            pending += [part[key] for key in _WITHIN if key in part]
            pending += [inner for key in _BY_NAME for inner in _values(part.get(key))]
    return False


_WITHIN = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")
_BY_NAME = ("properties", "patternProperties")


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else []
