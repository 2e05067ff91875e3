"""What is wrong with a prompt or a resource that would be nothing to a tool."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolkiln.model import Role, ToolSpec, uri_places, uri_problem
from toolkiln.spec.report import Findings

_JSON = {"array", "object"}


def check_roles(specs: Sequence[ToolSpec], findings: Findings) -> list[ToolSpec]:
    """Report what is wrong, and leave out resources that no address leads to."""
    kept: list[ToolSpec] = []
    owners: dict[str, ToolSpec] = {}
    for spec in specs:
        if spec.role is Role.PROMPT:
            _check_arguments(spec, findings)
        elif spec.role is Role.RESOURCE:
            if not _has_address(spec, findings):
                continue
            assert spec.uri is not None
            first = owners.setdefault(spec.uri, spec)
            if first is not spec:
                findings.error(
                    "duplicate-uri",
                    f"{spec.name!r} has the address of {first.name!r} in line {first.line}, "
                    "and is left out",
                    spec.line,
                    "give one of them another address",
                    tool=spec.name,
                )
                continue
        kept.append(spec)
    return kept


def _check_arguments(spec: ToolSpec, findings: Findings) -> None:
    for name, schema in spec.parameters["properties"].items():
        if _is_json(schema, spec.parameters.get("$defs", {})):
            findings.warn(
                "prompt-argument",
                f"clients pass text to prompts, and {name!r} would have to be JSON",
                spec.line,
                f"take text, a number, True or False, or one of a few: `{name}: str`",
                tool=spec.name,
            )


def _has_address(spec: ToolSpec, findings: Findings) -> bool:
    problem = uri_problem(spec.uri) if spec.uri else "a resource has an address"
    if problem is not None:
        fix = 'write it as in @resource("notes://{year}/{name}")'
        findings.error("bad-uri", f"{problem}; it is left out", spec.line, fix, tool=spec.name)
        return False
    assert spec.uri is not None
    places, taken = set(uri_places(spec.uri)), set(spec.parameters["properties"])
    wrong = [f"{name!r} is in the address, and no parameter" for name in sorted(places - taken)]
    needed = set(spec.parameters.get("required", ())) - places
    wrong += [f"{name!r} is a parameter, and not in the address" for name in sorted(needed)]
    for message in wrong:
        fix = "name each place of the address like a parameter; others need a default"
        findings.error("bad-uri", message, spec.line, fix, tool=spec.name)
    return True


def _is_json(schema: Any, definitions: Mapping[str, Any]) -> bool:
    """Whether nothing but arrays and objects will do."""
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema:
        return _is_json(definitions.get(schema["$ref"].rpartition("/")[2]), {})
    if "anyOf" in schema:
        others = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return bool(others) and all(_is_json(one, definitions) for one in others)
    return schema.get("type") in _JSON
