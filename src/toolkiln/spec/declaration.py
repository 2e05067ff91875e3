"""The neutral declaration: what every dialect boils down to before it becomes a spec.

Dialects fill it in; `describe` turns it into a `ToolSpec`. Nothing after this module
knows how a tool was written down.
"""

import ast
from dataclasses import dataclass, field
from typing import Any

from toolkiln.model import Dialect, JsonSchema, Role, Toolkit
from toolkiln.spec.modules import Function, Scope


@dataclass(slots=True)
class Declaration:
    """One tool as its author wrote it, whatever the dialect."""

    dialect: Dialect
    name: str
    entry: str
    line: int
    scope: Scope
    """Where the signature's annotations are looked up."""
    function: Function
    """The signature that arguments are bound to."""
    whole_arguments: str | None = None
    """The parameter that takes all arguments as one dict, where they are not bound one by one."""
    docstring: str | None = None
    signature_docstring: str | None = None
    """Where parameters are described, if not there."""
    description: str | None = None
    """Given outright, before any docstring."""
    fallback: str = ""
    """What is said of a tool whose author says nothing."""
    named_after: str = ""
    """The identifier that a display name is made from."""
    parameters: JsonSchema | None = None
    """Written by hand."""
    parameters_line: int = 1
    role: Role = Role.TOOL
    options: dict[str, Any] = field(default_factory=dict)
    """What decorators and class attributes declare, by the names that `@tool` uses."""
    is_method: bool = False
    dunder_injected: bool = False
    """Whether `__user__` and its like are filled in by the runtime."""
    is_async: bool = False
    toolkit: Toolkit | None = None
    requirements: tuple[tuple[str, int], ...] = ()
    settings: dict[str, tuple[ast.expr, Scope]] = field(default_factory=dict)
