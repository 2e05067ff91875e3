"""Which operation a path and method mean. What it does with a request is `app`'s."""

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from toolkiln.surfaces.http.operations import Operation
from toolkiln.surfaces.http.problems import Refused

_VARIABLE = "{}"


class Routes:
    """Operations by their paths: a tree with one level for each part."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Raises ValueError if two operations cannot be told apart."""
        self._root: _Node = _Node()
        for operation in operations:
            node, names = self._root, []
            for part in operation.path.strip("/").split("/"):
                is_variable = part.startswith("{")
                if is_variable:
                    names.append(part[1:-1])
                node = node.below.setdefault(_VARIABLE if is_variable else part, _Node())
            if operation.method in node.operations:
                raise ValueError(f"{operation.method} {operation.path} is there twice")
            node.operations[operation.method] = operation, tuple(names)

    def find(self, method: str, raw_path: bytes) -> tuple[Operation, dict[str, str]]:
        """The operation, and the variable parts of the path by name.

        Parts are told apart before they are decoded: `%2F` is part of a name.

        Raises:
            Refused: there is none, or it has other methods.
        """
        found = _below(self._root, [_decoded(raw) for raw in raw_path[1:].split(b"/")])
        if found is None:
            raise Refused("not_found", "there is nothing at this path")
        node, values = found
        known = node.operations.get("GET" if method == "HEAD" else method)
        if known is None:
            allowed = {*node.operations, *(("HEAD",) if "GET" in node.operations else ())}
            raise Refused(
                "method_not_allowed",
                f"there is no {method[:20]} of this path",
                headers={"allow": ", ".join(sorted(allowed))},
            )
        operation, names = known
        return operation, dict(zip(names, values, strict=True))


class _Node:
    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.operations: dict[str, tuple[Operation, tuple[str, ...]]] = {}


def _below(node: _Node, parts: list[str]) -> tuple[_Node, list[str]] | None:
    """Where a path leads, with its variable parts; the fixed way goes before the variable one."""
    if not parts:
        return (node, []) if node.operations else None
    part, rest = parts[0], parts[1:]
    if part != _VARIABLE and (fixed := node.below.get(part)) is not None:
        if (found := _below(fixed, rest)) is not None:
            return found
    variable = node.below.get(_VARIABLE)
    if variable is None or not part or (found := _below(variable, rest)) is None:
        return None
    return found[0], [part, *found[1]]


def _decoded(raw: bytes) -> str:
    try:
        return (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError:
        raise Refused("bad_request", "the path is not UTF-8") from None
