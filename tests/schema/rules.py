"""The providers' rules read independently of the compilers, from `provider_rules.json`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RULES = json.loads(Path(__file__).with_name("provider_rules.json").read_text())["profiles"]
_STRUCTURE = {"type", "properties", "required", "items", "anyOf", "enum", "description"}


def schema_of(payload: dict[str, Any], provider: str) -> dict[str, Any]:
    """The schema inside a payload."""
    schema: dict[str, Any]
    if provider.startswith("openai"):
        schema = payload.get("function", payload)["parameters"]
    elif provider.startswith("anthropic"):
        schema = payload["input_schema"]
    elif provider == "gemini":
        schema = payload.get("parameters", {"type": "object"})
    else:
        schema = payload["inputSchema"]
    return schema


def as_json_schema(node: Any, provider: str) -> Any:
    """Gemini's subset in JSON Schema's terms; the others' are that already."""
    if provider != "gemini" or not isinstance(node, dict):
        return node
    out = {k: v for k, v in node.items() if k not in ("nullable", "default")}
    for key in ("properties",):
        if key in out:
            out[key] = {k: as_json_schema(v, provider) for k, v in out[key].items()}
    if "items" in out:
        out["items"] = as_json_schema(out["items"], provider)
    if "anyOf" in out:
        out["anyOf"] = [as_json_schema(v, provider) for v in out["anyOf"]]
    return {"anyOf": [out, {"type": "null"}]} if node.get("nullable") else out


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every subschema of the kinds that lowered payloads have."""
    yield node
    inner = [*node.get("properties", {}).values(), *node.get("$defs", {}).values()]
    inner += node.get("anyOf", [])
    if "items" in node:
        inner.append(node["items"])
    for child in inner:
        if isinstance(child, dict):
            yield from nodes(child)


def violations(payload: dict[str, Any], provider: str) -> list[str]:
    """What a provider would refuse."""
    schema = schema_of(payload, provider)
    if provider == "mcp":
        return [] if schema.get("type") == "object" else ["root"]
    found = [] if schema.get("type") == "object" else ["root is not an object"]
    found += [f"root has {key}" for key in ("anyOf", "oneOf", "allOf", "$ref") if key in schema]
    strict = payload.get("function", payload).get("strict", False)
    if provider in ("openai-strict", "openai-responses-strict") and strict:
        found += _openai_strict(schema)
    if provider.startswith("anthropic"):
        key = re.compile(RULES["anthropic-any"]["property_key_regex"])
        found += [
            n for node in nodes(schema) for n in node.get("properties", {}) if not key.match(n)
        ]
    if provider == "anthropic-strict" and strict:
        found += _anthropic_strict(schema)
    if provider == "gemini":
        found += _gemini(schema)
    return found


def _common_strict(schema: dict[str, Any], rules: dict[str, Any], allowed: set[str]) -> list[str]:
    found: list[str] = []
    for node in nodes(schema):
        found += [f"keyword {key}" for key in node.keys() - allowed]
        if "$ref" not in node and "anyOf" not in node and "type" not in node:
            found.append(f"untyped {node}")
        if "object" in node.get("type", ()):
            if node.get("additionalProperties") is not False:
                found.append("open object")
            if set(node["required"]) - set(node["properties"]):
                found.append("required beyond properties")
        if "array" in node.get("type", ()) and "items" not in node:
            found.append("untyped items")
        if "format" in node and node["format"] not in rules["formats"]:
            found.append(f"format {node['format']}")
        if re.search(r"\(\?<?[=!]", node.get("pattern", "")):
            found.append("lookaround")
        if any(isinstance(value, dict | list) for value in node.get("enum", ())):
            found.append("enum of non-primitives")
    return found


def _openai_strict(schema: dict[str, Any]) -> list[str]:
    rules = RULES["openai-strict"]
    allowed = _STRUCTURE | {"additionalProperties", "$ref", "$defs"}
    allowed |= {*rules["string_kw"], *rules["number_kw"], *rules["array_kw"]}
    found = _common_strict(schema, rules, allowed)
    for node in nodes(schema):
        if "$ref" in node and len(node) > 1:
            found.append("siblings of $ref")
        if "$ref" in node and not re.fullmatch(r"#(/\$defs/[^/]+)?", node["$ref"]):
            found.append(f"ref {node['$ref']}")
        if "object" in node.get("type", ()) and set(node["required"]) != set(node["properties"]):
            found.append("optional property")
    properties = sum(len(node.get("properties", {})) for node in nodes(schema))
    values = sum(len(node.get("enum", ())) for node in nodes(schema))
    if properties > rules["max_properties"] or values > rules["max_enum_values_total"]:
        found.append("too large")
    if _depth(schema, schema, ()) > rules["max_depth"]:
        found.append("too deep")
    return found


def _anthropic_strict(schema: dict[str, Any]) -> list[str]:
    rules = RULES["anthropic-strict"]
    allowed = _STRUCTURE | {"additionalProperties", "format", "pattern", "minItems"}
    found = _common_strict(schema, rules, allowed)
    optional = unions = 0
    for node in nodes(schema):
        optional += len(node.get("properties", {})) - len(node.get("required", ()))
        unions += "anyOf" in node or isinstance(node.get("type"), list)
        if node.get("minItems", 0) not in rules["minItems"]:
            found.append("minItems")
        if re.search(r"\\[1-9b]", node.get("pattern", "")):
            found.append("backreference or \\b")
    if optional > rules["max_optional_params_total"] or unions > rules["max_union_params_total"]:
        found.append("too many optionals or unions")
    return found


def _gemini(schema: dict[str, Any]) -> list[str]:
    allowed = {key.split("(")[0] for key in RULES["gemini-openapi-subset"]["keys"]}
    name = re.compile(RULES["gemini-any"]["param_name_regex"])
    found: list[str] = []
    for node in nodes(schema):
        found += [f"keyword {key}" for key in node.keys() - allowed]
        found += [f"name {key}" for key in node.get("properties", {}) if not name.match(key)]
        if not isinstance(node.get("type", ""), str) or node.get("type") == "null":
            found.append(f"type {node['type']}")
        if not all(isinstance(value, str) for value in node.get("enum", ())):
            found.append("enum of non-strings")
        if "type" not in node and "anyOf" not in node:
            found.append("untyped")
    return found


def _depth(node: dict[str, Any], root: dict[str, Any], seen: tuple[str, ...]) -> int:
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        return 0 if name in seen else _depth(root["$defs"][name], root, (*seen, name))
    inner = [*node.get("properties", {}).values(), *node.get("anyOf", [])]
    inner += [node["items"]] if "items" in node else []
    nests = any(kind in node.get("type", ()) for kind in ("object", "array"))
    return nests + max((_depth(child, root, seen) for child in inner), default=0)
