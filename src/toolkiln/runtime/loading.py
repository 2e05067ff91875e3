"""Importing a tool's file, and finding in it what a call runs.

The file lies in a folder with its helper modules and nothing else. That folder serves
`import helper` and, as the package `_tool`, `from . import helper`. All dialects end in
one `Entry`: how to make the function of one call, and what binds arguments to it.
"""

from __future__ import annotations

import os
import sys
import types
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import SourceFileLoader  # `importlib` takes longer to import

from toolkiln.runtime.settings import made, typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_PACKAGE = "_tool"


def import_file(file: str) -> types.ModuleType:
    """Import a tool's file as a module of its own name.

    Raises:
        BaseException: whatever its code raises.
    """
    folder, name = os.path.split(file)
    stem = name.removesuffix(".py")
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    if folder not in sys.path:
        # Behind the standard library: the reader takes none of its names for a helper.
        sys.path.append(folder)
    dotted = f"{_PACKAGE}.{stem}"
    loader = SourceFileLoader(dotted, file)
    module = types.ModuleType(dotted)
    module.__file__, module.__loader__, module.__package__ = file, loader, _PACKAGE
    module.__spec__ = ModuleSpec(dotted, loader, origin=file)
    sys.modules[dotted] = module
    if stem not in sys.stdlib_module_names:
        sys.modules[stem] = module
    # Compiled here, because the loader would look for bytecode that is never there.
    exec(compile(loader.get_data(file), file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


class Entry:
    """What a call of one tool runs."""

    def __init__(self, module: types.ModuleType, load: Mapping[str, Any]) -> None:
        owner_name, _, self._name = load["entry"].rpartition(".")
        self._owner = getattr(module, owner_name) if owner_name else None
        self._module = module
        self._dialect: str = load["dialect"]
        self.workdir: str | None = load.get("workdir")
        """Where the session's files are, if the call has any."""
        self._whole: str | None = load.get("whole_arguments")
        self.injected: dict[str, str] = load.get("injected", {})
        self.is_resource = load.get("role") == "resource"
        self._kept = self._instance() if load.get("keep_instance") else None
        self._bind = self._binder()

    @property
    def is_base_tool(self) -> bool:
        """Whether `validate_args` is to be asked first."""
        return self._dialect == "base_tool"

    def typed_settings(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """What an operator set, as the class that the tool declares for it has it.

        Raises:
            BadSettings: the class refuses the values.
        """
        owner = self._module if self._owner is None else self._owner
        return typed(getattr(owner, self._name), values)

    def prepared(
        self,
        arguments: dict[str, Any],
        injections: Mapping[str, Any],
        caller: Mapping[str, Any],
    ) -> Callable[[], Any]:
        """The call, ready to be made: on a fresh instance, where there is one.

        Raises:
            BindingError: an argument cannot become what the signature asks for.
            Refused: `validate_args` says no.
            BadSettings: `Valves` or `UserValves` refuse the values.
        """
        if self._owner is None:
            function = getattr(self._module, self._name)
        else:
            instance = self._instance() if self._kept is None else self._kept
            if self._dialect == "open_webui":
                _set_up(instance, injections.get("__user__"), caller)
            if self.is_base_tool:
                _validated(instance, arguments)
            function = getattr(instance, self._name)
        positional, named = self._bind(arguments, injections)
        return lambda: function(*positional, **named)

    def _instance(self) -> Any:
        assert self._owner is not None
        return self._owner()

    def _binder(self) -> Callable[[dict[str, Any], Mapping[str, Any]], tuple[Any, Any]]:
        if self._whole is not None:
            return self._bind_whole
        from toolkiln.runtime.binding import Binder

        if self._owner is None:
            function = getattr(self._module, self._name)
        else:
            # Bound to no instance: the signature without `self`, for all three kinds of method.
            raw = self._owner.__dict__.get(self._name) or getattr(self._owner, self._name)
            function = (
                getattr(self._owner, self._name)
                if isinstance(raw, staticmethod | classmethod)
                else types.MethodType(raw, object())
            )
        return Binder(function, injected=self.injected).bind

    def _bind_whole(
        self, arguments: dict[str, Any], injections: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert self._whole is not None
        named = {name: injections.get(what) for name, what in self.injected.items()}
        if self._whole == "*":
            return (arguments,), {}
        if self._whole.startswith("**"):
            return (), {**arguments, **named}
        return (), {self._whole: arguments, **named}


def _set_up(instance: Any, user: dict[str, Any] | None, caller: Mapping[str, Any]) -> None:
    """Give an instance of Open WebUI's `Tools` what an operator set, and what its user did."""
    tools = type(instance)
    if caller["settings"] and hasattr(tools, "Valves"):
        instance.valves = made(tools.Valves, caller["settings"])
    if user is not None and hasattr(tools, "UserValves"):
        user["valves"] = made(tools.UserValves, caller["user_settings"])


def awaited(value: Any) -> Any:
    """What an awaitable gives, on a loop of its own."""
    import asyncio

    async def until_done() -> Any:
        return await value

    return asyncio.run(until_done())


class Refused(Exception):
    """`validate_args` does not accept the arguments."""


def _validated(instance: Any, arguments: dict[str, Any]) -> None:
    validate = getattr(instance, "validate_args", None)
    if validate is None:
        return
    answer = validate(dict(arguments))
    if hasattr(answer, "__await__"):
        answer = awaited(answer)
    accepted, message = answer if isinstance(answer, tuple) else (answer, "")
    if not accepted:
        raise Refused(str(message) or "the tool does not accept these arguments")
