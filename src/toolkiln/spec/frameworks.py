"""The framework that a file was written for, and what it meets in the sandbox instead.

Found by imports first, then by the shape of its tools; nothing is imported. What is reported here
is no mistake of the file: `findings` has those.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from toolkiln.frameworks.modules import PACKAGES, STAND_INS, is_provided
from toolkiln.model.imports import Difference, PackageUse
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import Capability, Dialect
from toolkiln.spec import syntax
from toolkiln.spec.checks.capabilities import CapabilityUse, find_uses
from toolkiln.spec.local_imports import NEVER_HELPERS
from toolkiln.spec.requirements import Requirements, distribution_of, imported_modules

_BY_MODULE = {
    "agno": "agno",
    "agentpress": "Suna",
    "apps.webui": "Open WebUI",
    "atloop": "atloop",
    "core.agentpress": "Suna",
    "crewai": "CrewAI",
    "crewai_tools": "CrewAI",
    "fastmcp": "FastMCP",
    "langchain": "LangChain",
    "langchain_community": "LangChain",
    "langchain_core": "LangChain",
    "letta": "Letta",
    "mcp.server.fastmcp": "FastMCP",
    "open_webui": "Open WebUI",
    "smolagents": "smolagents",
    "tool_context": "Stargazer",
    "toolkiln": "Toolkiln",
}
_BY_DIALECT = {
    Dialect.BASE_TOOL: "atloop",
    Dialect.CONSTANTS: "Stargazer",
    Dialect.OPEN_WEBUI: "Open WebUI",
    Dialect.TOOLKIT: "Suna",
}
_IN_THE_SANDBOX = {
    Capability.NETWORK: "a call has no network until the file declares its hosts "
    "(network = [HOSTS] in [tool.toolkiln]) and you grant them",
    Capability.FILES: "a call sees files of its own only, and a workspace that you grant",
    Capability.SUBPROCESS: "programs run in the sandbox, with the limits of the call",
    Capability.ENVIRONMENT: "a call gets none of the server's variables: use secrets or settings",
}
_HOST = re.compile(r"https?://((?:[a-z0-9-]+\.)+[a-z]{2,})(?=[/:?#{]|\Z)", re.IGNORECASE)
_MOST_HOSTS = 5
_STAND_INS = Path(__file__).parents[1] / "frameworks"


class ForeignFile(NamedTuple):
    """What a version of a file brings along from elsewhere."""

    framework: str | None
    """For people; None: plain Python."""
    differences: tuple[Difference, ...]
    packages: tuple[PackageUse, ...]


_Nodes = Sequence[ast.AST]


def inspect(
    reading: Reading, sources: Mapping[str, bytes], *, beside: Iterable[str], served: Iterable[str]
) -> ForeignFile:
    """Return what a file needs, and what is different for it.

    `sources` are the file and its companions; `beside` are the requirements of its folder,
    `served` those of the tools folder.
    """
    modules = list(_modules(sources))
    listed = _requirements(
        dict.fromkeys([*(item for spec in reading.tools for item in spec.requirements), *served])
    )
    local = {name.partition("/")[0].removesuffix(".py") for name in sources}
    imported: dict[str, int] = {}
    for nodes in modules:
        for dotted, line in _imports(nodes):
            if dotted.partition(".")[0] not in local or listed.provide(dotted):
                imported.setdefault(dotted, line)
    foreign = {
        name: line for name, line in imported.items() if name.partition(".")[0] not in NEVER_HELPERS
    }
    missing = (_missing(name, line) for name, line in foreign.items() if not listed.provide(name))
    differences = {*filter(None, missing), *_restrictions(modules)}
    return ForeignFile(
        _framework(imported, reading),
        tuple(sorted(differences, key=lambda item: (item.line, item.message))),
        tuple(_packages(foreign, listed, beside)),
    )


def _modules(sources: Mapping[str, bytes]) -> Iterator[_Nodes]:
    for name, data in sources.items():
        if name.endswith(".py"):
            with suppress(UnicodeDecodeError, SyntaxError, LookupError):  # a finding says so
                tree = syntax.parse(syntax.decode(data), name)
                if not isinstance(tree, Finding):
                    yield syntax.walk(tree)


def _imports(nodes: _Nodes) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for dotted in imported_modules(node):
                yield dotted, node.lineno


def _requirements(items: Iterable[str]) -> Requirements:
    return Requirements(tuple(items), {}, None, ())


def _framework(imported: Iterable[str], reading: Reading) -> str | None:
    for dotted in imported:
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            if title := _BY_MODULE.get(".".join(parts[:end])):
                return title
    if any("agent_state" in spec.injected.values() for spec in reading.tools):
        return "Letta"
    return next((_BY_DIALECT[s.dialect] for s in reading.tools if s.dialect in _BY_DIALECT), None)


def _missing(dotted: str, line: int) -> Difference | None:
    """Return what the sandbox has no stand-in for, if a file imports it from a framework."""
    module, _, name = dotted.rpartition(".")
    if not (is_provided(dotted) or is_provided(module)) or name == "*":
        return None
    if dotted in STAND_INS or dotted in PACKAGES:
        return None
    if module in STAND_INS and name in _offered(STAND_INS[module]):
        return None
    return Difference(
        line=line, message=f"{dotted} is a placeholder, which fails when a call uses it"
    )


@cache
def _offered(stand_in: str) -> frozenset[str]:
    """Return the names that a stand-in offers, other than placeholders."""
    path = _STAND_INS / stand_in.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: set[str] = set()
    for node in syntax.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(value=ast.Call(func=ast.Name(id="Unavailable"))):
                pass
            case ast.Assign() | ast.AnnAssign():
                names |= {name for name, _ in syntax.assigned_names(node)}
    return frozenset(names)


def _restrictions(modules: Sequence[_Nodes]) -> Iterator[Difference]:
    """Yield what the sandbox restricts, once for each capability."""
    first: dict[Capability, CapabilityUse] = {}
    for nodes in modules:
        for use in find_uses(nodes):
            first.setdefault(use.capability, use)
    for capability, use in first.items():
        if capability in _IN_THE_SANDBOX:
            text = _IN_THE_SANDBOX[capability].replace("HOSTS", ", ".join(_hosts(modules)))
            yield Difference(line=use.line, message=f"{use.api}: {text}")


def _hosts(modules: Sequence[_Nodes]) -> list[str]:
    """Return the hosts of the URLs in a source, quoted; not those of docstrings."""
    found: dict[str, None] = {}
    for nodes in modules:
        texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                hosts = () if id(node) in texts else _HOST.findall(node.value)
                found |= dict.fromkeys(host.lower() for host in hosts)
    return [f'"{host}"' for host in list(found)[:_MOST_HOSTS]] or ['"api.example.com"']


def _packages(
    imported: Mapping[str, int], listed: Requirements, beside: Iterable[str]
) -> Iterator[PackageUse]:
    """Yield the packages that a file imports, once each."""
    written = [_requirements([item]) for item in (*listed.packages, *beside)]
    seen: set[str] = set()
    for dotted, line in imported.items():
        if is_provided(dotted) or is_provided(dotted.rpartition(".")[0]):
            continue
        distribution, top = distribution_of(dotted), dotted.partition(".")[0]
        if (distribution or top) not in seen:
            seen.add(distribution or top)
            known = (item.packages[0] for item in written if item.provide(dotted))
            yield PackageUse(
                module=top,
                line=line,
                requirement=next(known, distribution),
                is_listed=listed.provide(dotted),
            )
