"""The framework that a file was written for, and what it meets in the sandbox instead.

Found by imports first, then by the shape of its tools; nothing is imported. What is reported here
is no mistake of the file: `findings` has those.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from toolkiln.frameworks.modules import OLD_MODULES, PACKAGES, STAND_INS, is_provided
from toolkiln.frameworks.tool_context import instead_of
from toolkiln.model.imports import Difference, PackageUse
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import Capability, Dialect
from toolkiln.spec import syntax
from toolkiln.spec.checks.capabilities import find_uses
from toolkiln.spec.local_imports import NEVER_HELPERS
from toolkiln.spec.namespace import Function
from toolkiln.spec.requirements import Requirements, distribution_of, imported_modules

_BY_MODULE = {
    "agno": "agno",
    "agentpress": "Suna",
    "apps.webui": "Open WebUI",
    "atloop": "atloop",
    "core": "Suna",
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
_AGENT_STATE = "agent_state is that of the session; its changes come back in the result, to be kept"
_HOST = re.compile(r"https?://((?:[a-z0-9-]+\.)+[a-z]{2,})(?=[/:?#{]|\Z)", re.IGNORECASE)
_MOST_HOSTS = 5
_OF_SUNAS_SANDBOX = ("_ensure_sandbox", "sandbox", "sandbox_id", "sandbox_url")
_STAND_INS = Path(__file__).parents[1] / "frameworks"


class ForeignFile(NamedTuple):
    """What a version of a file brings along from elsewhere."""

    framework: str | None
    """For people; None: plain Python."""
    differences: tuple[Difference, ...]
    packages: tuple[PackageUse, ...]


class _Module(NamedTuple):
    """A module of a version."""

    file: str | None
    """None for the tool file itself."""
    nodes: Sequence[ast.AST]


class _Import(NamedTuple):
    """The first import of a name from elsewhere."""

    file: str | None
    line: int
    uses: tuple[int, ...]
    """The lines of code that use it, rather than annotations, bases and decorators."""


class _Found(NamedTuple):
    """A difference, and where it matters."""

    file: str | None
    message: str
    lines: tuple[int, ...]
    is_failure: bool = True
    """Whether a call that gets there fails."""


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
    own, *companions = (name.partition("/")[0].removesuffix(".py") for name in sources or [""])
    imported: dict[str, _Import] = {}
    for module in modules:
        # The file itself means a package by its own name.
        local = {*companions, own} if module.file else {*companions} - {own}
        for dotted, found in _imports(module):
            if dotted.partition(".")[0] not in local or listed.provide(dotted):
                imported.setdefault(dotted, found)
    is_suna = any(name.startswith("agentpress.") for name in imported)
    foreign = {
        _full_name(name, reading, is_suna=is_suna): item
        for name, item in imported.items()
        if name.partition(".")[0] not in NEVER_HELPERS
    }
    differences = [
        *_restrictions(modules, reading),
        *_absent_attributes(modules, reading),
        *_placeholder_members(modules, reading),
    ]
    if stateful := [spec.line for spec in reading.tools if "agent_state" in spec.injected.values()]:
        differences.append(_Found(None, _AGENT_STATE, (stateful[0],), is_failure=False))
    for name, item in foreign.items():
        if item.uses and not listed.provide(name) and (missing := _missing(name)):
            differences.append(_Found(item.file, missing, item.uses))
    users = _Users(modules, reading)
    return ForeignFile(
        _framework(imported, reading),
        tuple(sorted(map(users.difference, differences), key=_position)),
        tuple(_packages(foreign, listed, beside)),
    )


def _modules(sources: Mapping[str, bytes]) -> Iterator[_Module]:
    for number, (name, data) in enumerate(sources.items()):
        if name.endswith(".py"):
            with suppress(UnicodeDecodeError, SyntaxError, LookupError):  # a finding says so
                tree = syntax.parse(syntax.decode(data), name)
                if not isinstance(tree, Finding):
                    yield _Module(name if number else None, syntax.walk(tree))


def _imports(module: _Module) -> Iterator[tuple[str, _Import]]:
    uses = _uses(module.nodes)
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias, dotted in zip(node.names, imported_modules(node), strict=False):
                name = alias.asname or alias.name
                lines = uses.get(name.partition(".")[0], ())
                yield dotted, _Import(module.file, node.lineno, tuple(lines))


def _uses(nodes: Sequence[ast.AST]) -> Mapping[str, Sequence[int]]:
    """Return the lines that use each name, other than in annotations, bases and decorators."""
    passive: set[int] = set()
    for node in nodes:
        found: list[ast.AST | None] = []
        match node:
            case ast.arg() | ast.AnnAssign():
                found = [node.annotation]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found = [node.returns, *node.decorator_list]
            case ast.ClassDef():
                found = [*node.bases, *node.decorator_list]
        passive |= {id(part) for item in found if item for part in syntax.walk(item)}
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Name) and id(node) not in passive:
            lines[node.id].append(node.lineno)
    return lines


def _full_name(dotted: str, reading: Reading, *, is_suna: bool) -> str:
    """Return the name of a module that first versions of a framework had at the top."""
    is_open_webui = any(spec.dialect is Dialect.OPEN_WEBUI for spec in reading.tools)
    framework = "open_webui" if is_open_webui else "core" if is_suna else ""
    is_old = dotted.partition(".")[0] in OLD_MODULES.get(framework, ())
    return f"{framework}.{dotted}" if is_old else dotted


class _Users:
    """The functions of a file, and which of them use each other."""

    def __init__(self, modules: Sequence[_Module], reading: Reading) -> None:
        self._tools = {spec.name: spec.entry for spec in reading.tools}
        self._lines: dict[str, range] = {}
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        """The functions that use a name."""
        for node in modules[0].nodes if modules and modules[0].file is None else ():
            if isinstance(node, ast.Module | ast.ClassDef):
                prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                for function in node.body:
                    if isinstance(function, Function):
                        name = f"{prefix}{function.name}"
                        self._lines[name] = range(function.lineno, (function.end_lineno or 0) + 1)
                        for used in _used_functions(function, prefix):
                            self._users[used].add(name)

    def difference(self, found: _Found) -> Difference:
        """Return a difference with the tools that it makes fail, as far as the file shows it."""
        tools: tuple[str, ...] = ()
        if found.is_failure and found.file is None:
            users = self._users_of(found.lines)
            tools = tuple(name for name, entry in self._tools.items() if entry in users)
        return Difference(
            file=found.file, line=min(found.lines), message=found.message, tools=tools
        )

    def _users_of(self, lines: Iterable[int]) -> set[str]:
        pending = [name for name, own in self._lines.items() if any(line in own for line in lines)]
        users: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in users:
                users.add(name)
                pending += self._users[name]
        return users


def _used_functions(function: Function, prefix: str) -> set[str]:
    names: set[str] = set()
    for node in syntax.walk(function):
        match node:
            case ast.Name(id=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                names.add(f"{prefix}{name}")
    return names


def _position(item: Difference) -> tuple[str, int, str]:
    return item.file or "", item.line, item.message


def _requirements(items: Iterable[str]) -> Requirements:
    return Requirements(tuple(items), {}, None, ())


def _framework(imported: Iterable[str], reading: Reading) -> str | None:
    for dotted in imported:
        parts = dotted.split(".")
        if parts[0] == "core" and not is_provided(dotted):
            continue  # a name that others use too
        for end in range(len(parts), 0, -1):
            if title := _BY_MODULE.get(".".join(parts[:end])):
                return title
    if any("agent_state" in spec.injected.values() for spec in reading.tools):
        return "Letta"
    return next((_BY_DIALECT[s.dialect] for s in reading.tools if s.dialect in _BY_DIALECT), None)


def _missing(dotted: str) -> str | None:
    """Return why a name of a framework does not work; None if it works, or is of none."""
    module, _, name = dotted.rpartition(".")
    if not (is_provided(dotted) or is_provided(module)) or name == "*":
        return None
    if dotted in STAND_INS or dotted in PACKAGES:
        return None
    offered = _names(STAND_INS[module]) if module in STAND_INS else {}
    if (hint := offered.get(name, "")) is None:
        return None
    return f"{dotted} is a placeholder: a call that uses it fails{hint and f' ({hint})'}"


@cache
def _names(stand_in: str) -> Mapping[str, str | None]:
    """Return the names that a stand-in has: the hint of a placeholder, None for what works."""
    path = _STAND_INS / stand_in.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: dict[str, str | None] = {}
    for node in syntax.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names[name] = None
            case ast.ClassDef(name=name):
                names[name] = None
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= dict.fromkeys(alias.asname or alias.name for alias in aliases)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="Unavailable"), args=arguments),
            ):
                hints = [a.value for a in arguments[1:] if isinstance(a, ast.Constant)]
                names[name] = str(hints[0]) if hints else ""
            case ast.Assign() | ast.AnnAssign():
                names |= dict.fromkeys(name for name, _ in syntax.assigned_names(node))
    return names


def _restrictions(modules: Sequence[_Module], reading: Reading) -> Iterator[_Found]:
    """Yield what the sandbox restricts, once for each capability that the file does not declare."""
    rights = [spec.rights for spec in reading.tools]
    seen = {capability for right in rights for capability in right.capabilities}
    seen |= {Capability.NETWORK for right in rights if right.network}
    for module in modules:
        for use in find_uses(module.nodes):
            text = _IN_THE_SANDBOX.get(use.capability)
            if text and use.capability not in seen:
                seen.add(use.capability)
                message = f"{use.api}: {text.replace('HOSTS', ', '.join(_hosts(modules)))}"
                yield _Found(module.file, message, (use.line,), is_failure=False)


def _absent_attributes(modules: Sequence[_Module], reading: Reading) -> Iterator[_Found]:
    """Yield the attributes of a call's context that Stargazer has and a sandboxed call does not."""
    injected = (item for spec in reading.tools for item in spec.injected.items())
    names = {name for name, kind in injected if kind == "context"}
    for module in modules:
        for node in module.nodes:
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names:
                    if instead := instead_of(attribute):
                        message = f"{name}.{attribute} is not available in the sandbox: {instead}"
                        yield _Found(module.file, message, (node.lineno,))


def _placeholder_members(modules: Sequence[_Module], reading: Reading) -> Iterator[_Found]:
    """Yield the members of tool classes that a call has placeholders for, where they are used."""
    classes = {spec.entry.partition(".")[0] for spec in reading.tools if "." in spec.entry}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                lines: defaultdict[str, list[int]] = defaultdict(list)
                for name, line in _uses_of_members(node):
                    lines[name].append(line)
                members = _members_of_bases(node) | _constructor_members(node)
                for name in members.keys() & lines.keys():
                    message = f"self.{name} is {members[name]}: a call that uses it fails"
                    yield _Found(module.file, message, tuple(lines[name]))


def _members_of_bases(node: ast.ClassDef) -> dict[str, str]:
    if all(syntax.last_name(base) != "SandboxToolsBase" for base in node.bases):
        return {}
    return dict.fromkeys(_OF_SUNAS_SANDBOX, "a placeholder for Suna's sandbox")


def _constructor_members(node: ast.ClassDef) -> dict[str, str]:
    """Return the attributes that `__init__` sets to parameters without a default."""
    members: dict[str, str] = {}
    for function in node.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            continue
        required = {
            argument.arg
            for argument, default in syntax.parameters(function.args)[1:]
            if default is None
        }
        for child in syntax.walk(function):
            match child:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)],
                    value=ast.Name(id=name),
                ) if name in required:
                    members[attribute] = f"a placeholder for the parameter {name!r} of __init__"
    return members


def _uses_of_members(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for function in node.body:
        if isinstance(function, Function) and function.name != "__init__":
            for child in syntax.walk(function):
                match child:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                        yield name, child.lineno


def _hosts(modules: Sequence[_Module]) -> list[str]:
    """Return the hosts of the URLs in a source, quoted; not those of docstrings."""
    found: dict[str, None] = {}
    for module in modules:
        texts = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                hosts = () if id(node) in texts else _HOST.findall(node.value)
                found |= dict.fromkeys(host.lower() for host in hosts)
    return [f'"{host}"' for host in list(found)[:_MOST_HOSTS]] or ['"api.example.com"']


def _packages(
    imported: Mapping[str, _Import], listed: Requirements, beside: Iterable[str]
) -> Iterator[PackageUse]:
    """Yield the packages that a file imports, once each."""
    written = [_requirements([item]) for item in (*listed.packages, *beside)]
    seen: set[str] = set()
    for dotted, item in imported.items():
        if is_provided(dotted) or is_provided(dotted.rpartition(".")[0]):
            continue
        distribution, top = distribution_of(dotted), dotted.partition(".")[0]
        if (distribution or top) not in seen:
            seen.add(distribution or top)
            known = (one.packages[0] for one in written if one.provide(dotted))
            yield PackageUse(
                module=top,
                line=item.line,
                requirement=next(known, distribution),
                is_listed=listed.provide(dotted),
            )
