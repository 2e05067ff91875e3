"""Loader: imports a tool's file and finds the function that a call runs.

The file is in a folder with only its helper modules. `import helper` finds them through
`sys.path`, `from . import helper` through the package `_tool`. `EntryPoint` covers all dialects.
"""

from __future__ import annotations

import os
import sys
import types
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (  # `importlib` is slower to import
    PathFinder,
    SourceFileLoader,
)

from toolkiln.frameworks import finder, unavailable
from toolkiln.frameworks.modules import TOOL_OBJECTS
from toolkiln.runtime.signature import ABSENT, FunctionSignature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_PACKAGE = "_tool"
_MAX_PROBLEMS = 10


class BadSettings(Exception):
    """The tool's settings class rejects the operator's values."""


class ArgumentsRejected(Exception):
    """The tool's `validate_args` rejects the arguments."""


def typed_settings(function: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert values with the class of `@tool(settings=…)` and add its defaults.

    Without such a class the values are returned unchanged.

    Raises:
        BadSettings: the class rejects the values.
    """
    declared = getattr(function, "__toolkiln_tool__", None)
    cls = declared.get("settings") if isinstance(declared, dict) else None
    if cls is None:
        return values
    instance = new_settings(cls, values)
    if isinstance(instance, dict):  # a TypedDict
        return instance
    names: Any = getattr(instance, "__dataclass_fields__", getattr(instance, "__dict__", values))
    return {name: getattr(instance, name) for name in names if hasattr(instance, name)}


def new_settings(cls: Any, values: Mapping[str, Any]) -> Any:
    """Create an instance of a settings class.

    Raises:
        BadSettings: the class rejects the values.
    """
    try:
        if hasattr(cls, "__dataclass_fields__"):
            return _new_dataclass(cls, values)
        return cls(**values)
    except Exception as error:  # pydantic or the author's class may raise anything
        raise BadSettings(f"{cls.__name__} rejects the settings: {_problems(error)}") from None


def _new_dataclass(cls: Any, values: Mapping[str, Any]) -> Any:
    """Convert values by annotation, which a dataclass does not do itself."""
    from toolkiln.runtime.binder import Binder

    def function(settings: Any) -> None: ...

    function.__annotations__ = {"settings": cls}
    return Binder(function).bind({"settings": dict(values)}, {})[1]["settings"]


def _problems(error: Exception) -> str:
    """Name the wrong fields and the kind of problem, without messages, which may quote values."""
    core = sys.modules.get("pydantic_core")
    if core is not None and isinstance(error, core.ValidationError):
        problems = [(item["loc"], item["type"].replace("_", " ")) for item in error.errors()]
    else:
        kind = type(error).__name__
        problems = [(path[1:], kind) for path, _ in getattr(error, "problems", [((), kind)])]
    return ", ".join(
        f"{'.'.join(map(str, path)) or 'the whole'} ({kind})"
        for path, kind in problems[:_MAX_PROBLEMS]
    )


def import_file(file: str) -> types.ModuleType:
    """Import a tool's file as a module named after it; raises what the tool's code raises."""
    folder, name = os.path.split(file)
    stem = name.removesuffix(".py")
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    if folder not in sys.path:
        # After the standard library, which helper modules cannot shadow.
        sys.path.append(folder)
    dotted = f"{_PACKAGE}.{stem}"
    loader = SourceFileLoader(dotted, file)
    module = types.ModuleType(dotted)
    module.__file__, module.__loader__, module.__package__ = file, loader, _PACKAGE
    module.__spec__ = ModuleSpec(dotted, loader, origin=file)
    sys.modules[dotted] = module
    if _is_installed(stem, folder):
        # The file is named after a package that it requires, which it means by that name.
        sys.path.remove(folder)
        sys.path.append(folder)
    elif stem not in sys.stdlib_module_names:
        sys.modules[stem] = module
    data = loader.get_data(file)
    finder.install(data)
    unavailable.importing = True
    try:
        # Compiled here: the loader would look for cached bytecode, which never exists.
        code = compile(data, file, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102
    finally:
        unavailable.importing = False
    return module


def _is_installed(name: str, folder: str) -> bool:
    """Return whether a module is found outside the tool's folder."""
    elsewhere = [entry for entry in sys.path if entry != folder]
    found = PathFinder.find_spec(name, elsewhere)
    return found is not None and found.loader is not None


class EntryPoint:
    """The function of a tool, and the binding of arguments to it."""

    def __init__(self, module: types.ModuleType, load: Mapping[str, Any]) -> None:
        owner, self._name = find_owner(module, load["entry"])
        self._owner: Any = owner if isinstance(owner, type) else None
        self._module = owner
        self._dialect: str = load["dialect"]
        self.workdir: str | None = load.get("workdir")
        """The session's workspace folder, if the call has one."""
        self._whole_arguments: str | None = load.get("whole_arguments")
        self.injected: dict[str, str] = load.get("injected", {})
        self.is_resource = load.get("role") == "resource"
        self.is_open_webui = self._dialect == "open_webui"
        self._shared_instance = self._new_instance() if load.get("keep_instance") else None
        self._bind_arguments = self._binder()

    def typed_settings(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert the operator's settings with the class that the tool declares for them."""
        return typed_settings(getattr(self._module, self._name), values)

    def bind(
        self,
        arguments: dict[str, Any],
        injections: Mapping[str, Any],
        caller: Mapping[str, Any],
    ) -> Callable[[], Any]:
        """Bind arguments; return a function that makes the call, on a new instance of a class.

        Raises:
            BindingError: an argument cannot be converted to its annotation.
            ArgumentsRejected: `validate_args` rejects the arguments.
            BadSettings: `Valves` or `UserValves` reject the settings.
        """
        if self._owner is None:
            declared = getattr(self._module, self._name)
            function = find_function(self._module, self._name)
        else:
            instance = self._shared_instance
            if instance is None:
                instance = self._new_instance(caller["settings"])
            if self.is_open_webui:
                _set_valves(instance, injections.get("__user__"), caller)
            if self._dialect == "base_tool":
                _validate_arguments(instance, arguments)
                if getattr(instance, "is_initialized", True) is False:  # of smolagents
                    instance.setup()
            declared, function = instance, _bound(instance, self._name)
        if self._whole_arguments == "args_schema":
            from toolkiln.runtime.binder import bind_model

            injected = {name: injections.get(kind) for name, kind in self.injected.items()}
            positional, named = (), bind_model(declared.args_schema, function, arguments, injected)
        else:
            positional, named = self._bind_arguments(arguments, injections)
        if getattr(declared, "response_format", "") == "content_and_artifact":
            return lambda: _content(function(*positional, **named))
        return lambda: function(*positional, **named)

    def _new_instance(self, settings: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
        """Create the object of a method; what a class gets from its framework is unavailable.

        Raises:
            BadSettings: a setting cannot be converted to its annotation.
        """
        arguments: dict[str, Any] = {}
        if hasattr(self._owner.__init__, "__code__"):
            name = self._owner.__name__
            constructor = find_function(self._owner, "__init__")
            parameters = FunctionSignature(constructor).of_kind("either", "keyword")
            if self._dialect != "toolkit":
                settings = {}
            given = {p.name: settings[p.name] for p in parameters if p.name in settings}
            arguments = {
                parameter.name: unavailable.Unavailable(f"{name}.{parameter.name}")
                for parameter in parameters
                if parameter.default is ABSENT and parameter.name not in given
            }
            if given and not hasattr(find_function(self._owner, self._name), "__toolkiln_tool__"):
                from toolkiln.runtime.binder import Binder

                binder = Binder(constructor, injected={name: name for name in arguments})
                try:
                    arguments = binder.bind(given, arguments)[1]
                except Exception as error:  # types of the author may raise anything
                    problems = _problems(error)
                    raise BadSettings(f"{name} rejects the settings: {problems}") from None
        unavailable.importing = True
        try:
            return self._owner(**arguments)
        finally:
            unavailable.importing = False

    def _binder(self) -> Callable[[dict[str, Any], Mapping[str, Any]], tuple[Any, Any]]:
        if self._whole_arguments is not None:
            return self._bind_whole
        from toolkiln.runtime.binder import Binder

        return Binder(find_function(self._module, self._name), injected=self.injected).bind

    def _bind_whole(
        self, arguments: dict[str, Any], injections: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert self._whole_arguments is not None
        named = {name: injections.get(source) for name, source in self.injected.items()}
        if self._whole_arguments == "*":
            return (arguments,), {}
        if self._whole_arguments.startswith("**"):
            return (), {**arguments, **named}
        return (), {self._whole_arguments: arguments, **named}


def _content(value: Any) -> Any:
    """Return what a LangChain tool returns for the model, without what is for programs."""
    if not hasattr(value, "__await__"):
        return value[0]

    async def content() -> Any:
        return (await value)[0]

    return content()


def _set_valves(instance: Any, user: dict[str, Any] | None, caller: Mapping[str, Any]) -> None:
    """Pass the settings of the operator and of the user to an Open WebUI `Tools` instance."""
    tools = type(instance)
    if caller["settings"] and hasattr(tools, "Valves"):
        instance.valves = new_settings(tools.Valves, caller["settings"])
    if user is not None and hasattr(tools, "UserValves"):
        user["valves"] = new_settings(tools.UserValves, caller["user_settings"])


def find_owner(module: types.ModuleType, entry: str) -> tuple[Any, str]:
    """Return the module, the class or the local names that a tool is in, and its own name."""
    owner_name, _, name = entry.rpartition(".")
    outer, is_local, _ = owner_name.partition(".<locals>")
    if is_local:
        return _local_names(module, outer), name
    return getattr(module, owner_name) if owner_name else module, name


def _local_names(module: Any, outer: str) -> types.SimpleNamespace:
    """Return the local names of a function or method that declares tools, after running it.

    A server that it takes is one of ours: it only has to hand the functions back.
    """
    class_name, _, name = outer.rpartition(".")
    owner = getattr(module, class_name) if class_name else module
    function = getattr(owner, name)
    code = FunctionSignature(function).function.__code__
    found: dict[str, Any] = {}

    def watch(frame: Any, event: str, _: object) -> None:
        if event == "return" and frame.f_code is code:
            found.update(frame.f_locals)

    unavailable.importing = True
    sys.setprofile(watch)
    try:
        if class_name:
            function = getattr(owner(), name)  # the constructor of a server often calls it
        if not found:
            required = [
                parameter
                for parameter in FunctionSignature(function).of_kind("positional", "either")
                if parameter.default is ABSENT
            ]
            value = function(*(finder.stand_in("fastmcp:FastMCP")() for _ in required))
            if hasattr(value, "__await__"):
                run_awaitable(value)
    except Exception:  # serving, which comes last, needs what the sandbox does not have
        if not found:
            raise
    finally:
        sys.setprofile(None)
        unavailable.importing = False
    return types.SimpleNamespace(**found)


def find_function(owner: Any, name: str) -> Any:
    """Return a function of a module or class; methods are bound, to drop `self`."""
    if not isinstance(owner, type):
        return _underlying(getattr(owner, name))
    raw = vars(owner).get(name) or getattr(owner, name)
    if isinstance(raw, staticmethod | classmethod):
        return getattr(owner, name)
    return types.MethodType(_underlying(raw), object())


def _bound(instance: Any, name: str) -> Any:
    found = getattr(instance, name)
    function = _underlying(found)
    return found if function is found else types.MethodType(function, instance)


def _underlying(value: Any) -> Any:
    """Return the function that a framework's decorator has made a tool object of."""
    for cls in type(value).__mro__:
        for path in TOOL_OBJECTS.get(cls.__module__.partition(".")[0], ()):
            inner = value
            for name in path.split("."):
                inner = getattr(inner, name, None)
            if callable(inner):
                return inner
    return value


def run_awaitable(value: Any) -> Any:
    """Run an awaitable in a new event loop and return its result."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _validate_arguments(instance: Any, arguments: dict[str, Any]) -> None:
    validate = getattr(instance, "validate_args", None)
    if validate is None:
        return
    verdict = validate(dict(arguments))
    if hasattr(verdict, "__await__"):
        verdict = run_awaitable(verdict)
    accepted, message = verdict if isinstance(verdict, tuple) else (verdict, "")
    if not accepted:
        raise ArgumentsRejected(str(message) or "the tool rejects these arguments")
