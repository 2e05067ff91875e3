"""The tools that can be called: those of a catalog, of this process, and Toolkiln's own.

One table for names, so that a name means the same tool to every caller. Functions come
before files, and no file takes a name of Toolkiln's own tools.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from toolkiln.catalog import Catalog, read_file
from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.model import (
    Admission,
    FileState,
    Grant,
    Read,
    Reading,
    Role,
    Served,
    Snapshot,
    ToolSpec,
)

if TYPE_CHECKING:
    from toolkiln.execution import Admitted

BUILTIN_NAMES = frozenset(
    {"check_task", "await_task", "cancel_task", "read_output", "write_python_tool",
     "search_tools", "describe_tool", "call_tool", "rag_search"}
)  # fmt: skip
"""Toolkiln's own tools, known without reading the file that declares them."""

Specs = dict[str, ToolSpec]
"""By name."""


class Function(NamedTuple):
    """A function of this process, as a tool."""

    spec: ToolSpec
    code: Callable[..., Any]


class NotAdmitted(InputError):
    """The tool is on disk, but nobody has admitted it."""

    code: ClassVar[str] = "not_admitted"


class Disabled(InputError):
    """The tool is admitted, but switched off."""

    code: ClassVar[str] = "disabled"


class Offer:
    """Every tool by its name, as it is at this moment."""

    def __init__(
        self,
        catalog: Catalog | None,
        functions: "Mapping[str, Function]",
        grants: Callable[[], Mapping[str, Mapping[str, Any]]],
        home: Callable[[], object],
    ) -> None:
        """`grants` are the settings' at the moment; Toolkiln's own tools are methods of `home`."""
        self._catalog = catalog
        self._own = functions
        self._grants = grants
        self._make_home = home
        self._here: dict[str, Admitted] = {}
        """What runs in this process; executors know it again by its identity."""
        self._tools: dict[str, tuple[Served, object, Admitted]] = {}
        """With the version and the grants that they were made for."""
        self._sorted: tuple[Snapshot, Specs, Specs] | None = None
        """All, and those that are tools, of one snapshot."""

    @property
    def snapshot(self) -> Snapshot:
        """What the catalog serves, without functions and Toolkiln's own tools.

        Raises:
            ManifestError: nothing, and why.
        """
        return self._catalog.snapshot if self._catalog is not None else _EMPTY

    @property
    def specs(self) -> Specs:
        """What the catalog and this process offer by name, whatever its role, lightest first."""
        return self._in_order()[1]

    @property
    def tools(self) -> Specs:
        """What of that is for models: no prompts and no resources."""
        return self._in_order()[2]

    def of(self, role: Role | None, may_see: Callable[[ToolSpec], bool] | None) -> Specs:
        """What of a role, or of any, somebody may know of, in the order of `specs`."""
        among = self.tools if role is Role.TOOL else self.specs
        return {
            name: spec
            for name, spec in among.items()
            if role in (None, spec.role) and (may_see is None or may_see(spec))
        }

    def _in_order(self) -> tuple[Snapshot, Specs, Specs]:
        snapshot = self.snapshot
        if self._sorted is None or self._sorted[0] is not snapshot:
            found = {**snapshot.tools, **{name: spec for name, (spec, _) in self._own.items()}}
            ordered = sorted(found.values(), key=lambda spec: (spec.weight, spec.name))
            specs = {spec.name: spec for spec in ordered}
            tools = {name: spec for name, spec in specs.items() if spec.role is Role.TOOL}
            self._sorted = snapshot, specs, tools
        return self._sorted

    @cached_property
    def builtin(self) -> Specs:
        """The tools that Toolkiln brings along."""
        reading = read_file(Path(__file__).with_name("builtin.py"))
        return {spec.name: spec for spec in reading.tools}

    def spec(self, name: str) -> ToolSpec:
        """One tool.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
            NotAdmitted, Disabled, ManifestError: there is, but it is not served.
        """
        if name in self._own:
            return self._own[name][0]
        if name in BUILTIN_NAMES:
            return self.builtin[name]
        spec = self.snapshot.tools.get(name)
        if spec is None:
            raise self._why_not(name)
        return spec

    def resolve(self, name: str, digest: str | None) -> "Admitted":
        """A tool to be run, in the version that is served.

        Raises:
            InputError: as `spec`, or the version is another.
        """
        found = self._resolve(name)
        if digest is not None and digest != found.spec.digest:
            raise InputError(
                f"{name} is no longer at version {digest[:12]}",
                hint=f"the current version is {found.spec.digest}",
            )
        return found

    def everything(self) -> "Iterator[Admitted]":
        """All that the catalog and this process offer, ready to be run."""
        return (self._resolve(name) for name in self.specs)

    def _resolve(self, name: str) -> "Admitted":
        here = self._here.get(name)
        if here is not None:
            return here
        from toolkiln.execution import Admitted

        if name in self._own or name in BUILTIN_NAMES:
            own = self._own.get(name)
            function = own.code if own else getattr(self._home, name)
            here = Admitted(self.spec(name), dict, self._grant(name, None), function)
            self._here[name] = here
            return here
        snapshot = self.snapshot
        if name not in snapshot.tools:
            raise self._why_not(name)
        spec, served = snapshot.tools[name], snapshot.served[name]
        known, grants = self._tools.get(name), self._grants()
        if known is None or known[0] is not served or known[1] is not grants:
            known = self._tools[name] = served, grants, self._admitted(spec, served)
        return known[2]

    def _admitted(self, spec: ToolSpec, served: Served) -> "Admitted":
        """A tool of the catalog, to be run."""
        from toolkiln.execution import Admitted

        return Admitted(
            spec,
            lambda: served.sources,
            self._grant(spec.name, served),
            dev=served.dev,
            is_reviewed=served.is_reviewed,
        )

    def version(self, name: str, served: Served) -> "Admitted":
        """A tool in another version, with what it is granted here, or else was with that."""
        return self._admitted(served.read.tool(name), served)

    def is_dev(self, name: str) -> bool:
        """Whether `dev` serves a tool without an admission."""
        if name in self._own or name in BUILTIN_NAMES:
            return False
        try:
            served = self.snapshot.served.get(name)
        except ToolkilnError:  # nothing is served
            return False
        return served is not None and served.dev

    def is_function(self, name: str) -> bool:
        """Whether a tool is a function of this process."""
        return name in self._own

    def functions(self) -> list[ToolSpec]:
        """The tools that are functions of this process."""
        return [spec for spec, _ in self._own.values()]

    def published(self) -> tuple[Snapshot, dict[str, Grant]]:
        """What others may know of the tools that are called here, and what each is granted.

        Functions of this process are without sources: they run here and nowhere else.
        """
        snapshot = self.snapshot
        grants = {name: self._grant(name, snapshot.served[name]) for name in snapshot.tools}
        tools, served = dict(snapshot.tools), dict(snapshot.served)
        for name, (spec, _) in self._own.items():
            grants[name] = self._grant(name, None)
            tools[name], served[name] = spec, _without_sources(spec, grants[name])
        return Snapshot(snapshot.number, tools, served), grants

    def names(self, may_see: Callable[[ToolSpec], bool]) -> list[str]:
        """The names of the tools that somebody may know of."""
        return [
            spec.name for spec in (*self.tools.values(), *self.builtin.values()) if may_see(spec)
        ]

    def grant(self, name: str) -> Grant:
        """What a tool of the catalog was granted."""
        return self._grant(name, self.snapshot.served[name])

    def _grant(self, name: str, served: Served | None) -> Grant:
        """Return what the operator grants: in the settings, or else with the admission.

        A name in the settings is not enough: a version that no person admitted has no grants.
        """
        if served is not None and not served.is_reviewed:
            return Grant()
        grants = self._grants()
        given = grants.get(name, grants.get("*"))
        if given is not None:
            return Grant.model_validate(dict(given))
        return served.grants.get(name, Grant()) if served else Grant()

    def _why_not(self, name: str) -> ToolkilnError:
        snapshot = self.snapshot
        if name in snapshot.served:
            return Disabled(f"{name} is disabled", hint=f"`toolkiln enable {name}`")
        for status in self._catalog.statuses() if self._catalog else ():
            if name in status.tools and status.state is not FileState.ADMITTED:
                file = self._catalog.root / status.file if self._catalog else status.file
                return NotAdmitted(
                    f"{name} is not admitted: {file} is {status.state}",
                    hint=f"look at it and admit it with `toolkiln admit {file}`",
                )
        return UnknownTool(name, [*self.tools, *BUILTIN_NAMES])

    @cached_property
    def _home(self) -> object:
        return self._make_home()


_EMPTY = Snapshot(0)


def _without_sources(spec: ToolSpec, grant: Grant) -> Served:
    reading = Reading(path=spec.path, digest=spec.digest, tools=(spec,))
    admission = Admission(
        sha256=spec.digest,
        version=0,
        admitted_by="",
        admitted_at="",
        since="",
        rights={spec.name: grant},
    )
    return Served.admitted(spec.path, Read(reading, {}), admission)


def functions_by_name(functions: Iterable[Callable[..., Any]]) -> dict[str, Function]:
    """Functions under the names that they have as tools.

    Raises:
        InputError: one is not a tool by its source.
    """
    found = (Function(_spec_of(function), function) for function in functions)
    return {function.spec.name: function for function in found}


def _spec_of(function: Callable[..., Any]) -> ToolSpec:
    """The spec of a function of this process, from the source that it was written in."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    reading = read_file(Path(file)) if file else None
    for spec in reading.tools if reading else ():
        if spec.entry == name:
            return spec
    raise InputError(
        f"{name} is not a tool by its source",
        hint="hand over a public function of a file's top level, with a docstring",
    )
