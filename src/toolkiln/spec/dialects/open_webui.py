"""Files written for Open WebUI: class `Tools`, `Valves`, frontmatter in the docstring."""

import ast
import re
from collections.abc import Iterator

from toolkiln.model import Dialect, Toolkit
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import docstring, is_static, methods
from toolkiln.spec.modules import Function, Module, Scope
from toolkiln.spec.naming import display_name

_SETTINGS = {"Valves": "operator", "UserValves": "user"}
_FRONTMATTER = re.compile(r"^\s*(\w+)\s*:\s*(.+?)\s*$", re.M)


def declared(module: Module) -> Iterator[Declaration]:
    """The public methods of the class `Tools`."""
    node = next((c for c in module.classes if c.name == "Tools"), None)
    if node is None or any(isinstance(d, ast.Call) for d in node.decorator_list):
        return
    public = [m for m in methods(node) if not m.name.startswith("_") and not _is_property(m)]
    about = dict(_FRONTMATTER.findall(docstring(module.tree) or ""))
    toolkit = Toolkit(
        name=node.name,
        display_name=about.get("title") or display_name(node.name),
        description=about.get("description")
        or (docstring(node) or "").strip()
        or f"{node.name} functionality",
        visible=True,
    )
    scope = Scope(module, (node,))
    nested = {child.name for child in node.body if isinstance(child, ast.ClassDef)}
    settings: dict[str, tuple[ast.expr, Scope]] = {
        kind: (ast.Name(name, ast.Load()), scope)
        for name, kind in _SETTINGS.items()
        if name in nested
    }
    for method in public:
        yield Declaration(
            dialect=Dialect.OPEN_WEBUI,
            name=method.name,
            entry=f"{node.name}.{method.name}",
            line=method.lineno,
            scope=scope,
            function=method,
            docstring=docstring(method),
            fallback=f"{method.name} function",
            named_after=method.name,
            is_method=not is_static(method),
            dunder_injected=True,
            is_async=isinstance(method, ast.AsyncFunctionDef),
            toolkit=toolkit,
            settings=settings,
        )


def _is_property(method: Function) -> bool:
    names = (ast.unparse(decorator).rpartition(".")[2] for decorator in method.decorator_list)
    return not {"property", "cached_property", "setter", "getter", "deleter"}.isdisjoint(names)
