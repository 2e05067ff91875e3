"""The tool registry: tools in files, functions of this process and built-in tools by name.

A name refers to the same tool for every caller. Functions take precedence over files, and
files cannot declare the names of built-in tools.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.files import read_file
from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission, FileState, FileVersion, ServedVersion, Snapshot
from toolkiln.model.source import Reading
from toolkiln.model.spec import BUILTIN_NAMES, Role, ToolSpec

if TYPE_CHECKING:
    from toolkiln.model.tool import ResolvedTool

Specs = dict[str, ToolSpec]
"""By name."""


class Function(NamedTuple):
    """A function of this process, as a tool."""

    spec: ToolSpec
    code: Callable[..., Any]


class NotAdmitted(InputError):
    """The tool is on disk, but not admitted."""

    code: ClassVar[str] = "not_admitted"


class Disabled(InputError):
    """The tool is admitted, but disabled."""

    code: ClassVar[str] = "disabled"


class ToolRegistry:
    """All current tools by name."""

    def __init__(
        self,
        catalog: Catalog | None,
        functions: Mapping[str, Function],
        grants: Callable[[], Mapping[str, Mapping[str, Any]]],
        home: Callable[[], object],
    ) -> None:
        """`grants` returns those in the settings; built-in tools are methods of `home()`."""
        self._catalog = catalog
        self._functions = functions
        self._grants = grants
        self._make_home = home
        self._local: dict[str, ResolvedTool] = {}
        """Tools that run in this process; executors compare them by identity."""
        self._tools: dict[str, tuple[ServedVersion, object, ResolvedTool]] = {}
        """Resolved tools, with the version and the grants they depend on."""
        self._sorted: tuple[Snapshot, Specs, Specs] | None = None
        """All specs, and those of tools only, of one snapshot."""

    @property
    def snapshot(self) -> Snapshot:
        """The catalog's snapshot, without functions and built-in tools.

        Raises:
            ManifestError: nothing is served, because the manifest is unusable.
        """
        return self._catalog.snapshot if self._catalog is not None else _EMPTY

    @property
    def specs(self) -> Specs:
        """Tools, prompts and resources of the catalog and this process, by weight and name."""
        return self._in_order()[1]

    @property
    def tools(self) -> Specs:
        """As `specs`, without prompts and resources."""
        return self._in_order()[2]

    def filter(self, role: Role | None, may_see: Callable[[ToolSpec], bool] | None) -> Specs:
        """Return the visible specs of a role, or of all roles, in the order of `specs`."""
        specs = self.tools if role is Role.TOOL else self.specs
        return {
            name: spec
            for name, spec in specs.items()
            if role in (None, spec.role) and (may_see is None or may_see(spec))
        }

    def _in_order(self) -> tuple[Snapshot, Specs, Specs]:
        snapshot = self.snapshot
        if self._sorted is None or self._sorted[0] is not snapshot:
            found = {
                **snapshot.tools,
                **{name: spec for name, (spec, _) in self._functions.items()},
            }
            ordered = sorted(found.values(), key=lambda spec: (spec.weight, spec.name))
            specs = {spec.name: spec for spec in ordered}
            tools = {name: spec for name, spec in specs.items() if spec.role is Role.TOOL}
            self._sorted = snapshot, specs, tools
        return self._sorted

    @cached_property
    def builtin(self) -> Specs:
        """The built-in tools."""
        reading = read_file(Path(__file__).parents[1] / "operations" / "builtin_tools.py")
        return {spec.name: spec for spec in reading.tools}

    def spec(self, name: str) -> ToolSpec:
        """Return the spec of a tool.

        Raises:
            UnknownTool: there is no such tool; the hint suggests similar names.
            NotAdmitted, Disabled, ManifestError: the tool is not served.
        """
        if name in self._functions:
            return self._functions[name][0]
        if name in BUILTIN_NAMES:
            return self.builtin[name]
        spec = self.snapshot.tools.get(name)
        if spec is None:
            raise self._not_served(name)
        return spec

    def resolve(self, name: str, digest: str | None) -> "ResolvedTool":
        """Return a tool to run, in the served version.

        Raises:
            InputError: as for `spec`, or another version is served.
        """
        found = self._resolve(name)
        if digest is not None and digest != found.spec.digest:
            raise InputError(
                f"{name} is no longer at version {digest[:12]}",
                hint=f"the current version is {found.spec.digest}",
            )
        return found

    def everything(self) -> "Iterator[ResolvedTool]":
        """Yield all tools of the catalog and this process, ready to run."""
        return (self._resolve(name) for name in self.specs)

    def _resolve(self, name: str) -> "ResolvedTool":
        local = self._local.get(name)
        if local is not None:
            return local
        from toolkiln.model.tool import ResolvedTool

        if name in self._functions or name in BUILTIN_NAMES:
            entry = self._functions.get(name)
            function = entry.code if entry else getattr(self._home, name)
            local = ResolvedTool(self.spec(name), dict, self._grant(name, None), function)
            self._local[name] = local
            return local
        snapshot = self.snapshot
        if name not in snapshot.tools:
            raise self._not_served(name)
        spec, served = snapshot.tools[name], snapshot.served[name]
        known, grants = self._tools.get(name), self._grants()
        if known is None or known[0] is not served or known[1] is not grants:
            known = self._tools[name] = served, grants, self._admitted(spec, served)
        return known[2]

    def _admitted(self, spec: ToolSpec, served: ServedVersion) -> "ResolvedTool":
        from toolkiln.model.tool import ResolvedTool

        return ResolvedTool(
            spec,
            lambda: served.sources,
            self._grant(spec.name, served),
            dev=served.dev,
            is_reviewed=served.is_reviewed,
        )

    def version(self, name: str, served: ServedVersion) -> "ResolvedTool":
        """Return a tool in another version, with the current grants."""
        return self._admitted(served.read.tool(name), served)

    def is_dev(self, name: str) -> bool:
        """Return whether `dev` serves a tool without admission."""
        if name in self._functions or name in BUILTIN_NAMES:
            return False
        try:
            served = self.snapshot.served.get(name)
        except ToolkilnError:  # nothing is served
            return False
        return served is not None and served.dev

    def is_function(self, name: str) -> bool:
        """Return whether a tool is a function of this process."""
        return name in self._functions

    def functions(self) -> list[ToolSpec]:
        """Return the specs of the functions of this process."""
        return [spec for spec, _ in self._functions.values()]

    def published(self) -> tuple[Snapshot, dict[str, Grant]]:
        """Return a snapshot for a fleet, and the grant of each tool.

        Functions have no sources: they run in this process only.
        """
        snapshot = self.snapshot
        grants = {name: self._grant(name, snapshot.served[name]) for name in snapshot.tools}
        tools, served = dict(snapshot.tools), dict(snapshot.served)
        for name, (spec, _) in self._functions.items():
            grants[name] = self._grant(name, None)
            tools[name], served[name] = spec, _without_sources(spec, grants[name])
        return Snapshot(snapshot.number, tools, served), grants

    def names(self, may_see: Callable[[ToolSpec], bool]) -> list[str]:
        """Return the names of visible tools."""
        return [
            spec.name for spec in (*self.tools.values(), *self.builtin.values()) if may_see(spec)
        ]

    def grant(self, name: str) -> Grant:
        """Return the grant of a tool in a file."""
        return self._grant(name, self.snapshot.served[name])

    def _grant(self, name: str, served: ServedVersion | None) -> Grant:
        """Return the operator's grant: from the settings, or else from the admission.

        A version that no person reviewed has none, even if the settings name the tool.
        """
        if served is not None and not served.is_reviewed:
            return Grant()
        grants = self._grants()
        grant = grants.get(name, grants.get("*"))
        if grant is not None:
            return Grant.model_validate(dict(grant))
        return served.grants.get(name, Grant()) if served else Grant()

    def _not_served(self, name: str) -> ToolkilnError:
        snapshot = self.snapshot
        if name in snapshot.served:
            return Disabled(f"{name} is disabled", hint=f"`toolkiln enable {name}`")
        for finding in snapshot.findings:
            if finding.tool == name and finding.rule == "example-fails":
                return NotAdmitted(finding.message, hint=finding.fix)
        for status in self._catalog.statuses() if self._catalog else ():
            if name in status.tools and status.state is not FileState.ADMITTED:
                file = self._catalog.root / status.file if self._catalog else status.file
                return NotAdmitted(
                    f"{name} is not admitted: {file} is {status.state}",
                    hint=f"review it and admit it with `toolkiln admit {file}`",
                )
        return UnknownTool(name, [*self.tools, *BUILTIN_NAMES])

    @cached_property
    def _home(self) -> object:
        return self._make_home()


_EMPTY = Snapshot(0)


def _without_sources(spec: ToolSpec, grant: Grant) -> ServedVersion:
    reading = Reading(path=spec.path, digest=spec.digest, tools=(spec,))
    admission = Admission(
        sha256=spec.digest,
        version=0,
        admitted_by="",
        admitted_at="",
        since="",
        rights={spec.name: grant},
    )
    return ServedVersion.admitted(spec.path, FileVersion(reading, {}), admission)


def functions_by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Function]:
    """Return functions by tool name.

    Raises:
        InputError: the source of a function does not declare a tool.
    """
    found = (Function(_spec_of(function), function) for function in functions)
    return {function.spec.name: function for function in found}


def _spec_of(function: Callable[..., Any]) -> ToolSpec:
    name = getattr(function, "__qualname__", repr(function))
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    reading = read_file(Path(file)) if file else None
    for spec in reading.tools if reading else ():
        if spec.entry == name:  # the rest of a program's file is not for its callers
            own = spec.documentation.model_copy(update={"module": ()})
            return spec.model_copy(update={"documentation": own})
    raise InputError(
        f"the source of {name} does not declare it as a tool",
        hint="pass a public function with a docstring, defined at the top level of a file",
    )
