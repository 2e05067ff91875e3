"""Snapshots of served files, and enabling and disabling of tools.

A change updates only the tool names it affects, regardless of the number of tools.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkiln.catalog.manifest import Manifest, Switch
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model.catalog import ServedVersion, Snapshot, Tools
from toolkiln.model.source import Finding, Reading, Severity
from toolkiln.model.spec import ToolSpec


def is_enabled(spec: ToolSpec, manifest: Manifest) -> bool:
    """Return whether a tool is enabled."""
    if spec.cannot_be_disabled:
        return True
    switch = manifest.enabled.get(spec.toolkit.name if spec.toolkit else spec.name, True)
    if isinstance(switch, bool):
        return switch
    return switch.enabled and switch.methods.get(spec.name, True)


def with_enabled(
    manifest: Manifest, specs: Sequence[ToolSpec], name: str, state: bool | Mapping[str, Any]
) -> Manifest:
    """Return a manifest with a tool, a toolkit or some of its methods enabled or disabled.

    Raises:
        UnknownTool: there is no tool or toolkit of that name.
        InputError: it is a core tool, or `state` is invalid.
    """
    kits = {spec.toolkit.name for spec in specs if spec.toolkit}
    by_name = {spec.entry: spec for spec in specs} | {spec.name: spec for spec in specs}
    spec = by_name.get(name)
    enabled = dict(manifest.enabled)
    if name in kits:
        members = [spec for spec in specs if spec.toolkit and spec.toolkit.name == name]
        enabled[name] = _kit_switch(members, state)
    elif spec is None:
        raise UnknownTool(name, [*kits, *(spec.name for spec in specs)])
    elif not isinstance(state, bool):
        raise InputError(f"{name} is not a toolkit", hint="use true or false")
    elif spec.toolkit is None:
        _check_core([spec], {spec.name: state})
        enabled[spec.name] = state
    else:
        kit = spec.toolkit.name
        members = [other for other in specs if other.toolkit and other.toolkit.name == kit]
        methods = {member.name: is_enabled(member, manifest) for member in members}
        methods[spec.name] = state
        enabled[kit] = _kit_switch(members, {"methods": methods})
    disabled = {key: value for key, value in enabled.items() if value is not True}
    return manifest.model_copy(update={"enabled": disabled})


def _kit_switch(members: Sequence[ToolSpec], state: bool | Mapping[str, Any]) -> bool | Switch:
    """Return the switch of a toolkit; it is disabled if no method is enabled."""
    if isinstance(state, bool):
        _check_core(members, {spec.name: state for spec in members})
        return state
    names = {_method(m): m.name for m in members} | {m.name: m.name for m in members}
    methods = state.get("methods", {}) if isinstance(state, Mapping) else None
    if not isinstance(methods, Mapping) or state.keys() - {"enabled", "methods"}:
        raise InputError(
            f"{state!r} is not a switch", hint="use true, false or {enabled, methods: {name: …}}"
        )
    for name, value in methods.items():
        if name not in names:
            raise UnknownTool(name, names)
        if not isinstance(value, bool):
            raise InputError(f"{name} is {value!r}, neither true nor false")
    chosen = {names[name]: value for name, value in methods.items()}
    kit_enabled = state.get("enabled", True)
    if not isinstance(kit_enabled, bool):
        raise InputError(f"enabled is {kit_enabled!r}, neither true nor false")
    _check_core(members, {m.name: kit_enabled and chosen.get(m.name, True) for m in members})
    if not any(chosen.get(spec.name, True) for spec in members):
        kit_enabled = False
    off = {name: value for name, value in chosen.items() if not value}
    return Switch(enabled=kit_enabled, methods=off) if off else kit_enabled


def _check_core(specs: Sequence[ToolSpec], state: Mapping[str, bool]) -> None:
    for spec in specs:
        if spec.cannot_be_disabled and not state[spec.name]:
            raise InputError(
                f"{spec.name} is a core tool and cannot be disabled",
                hint="its author marked it with is_core=True",
            )


def _method(spec: ToolSpec) -> str:
    return spec.entry.rpartition(".")[2]


def refused_tools(refused: Mapping[str, str], reading: Reading) -> Iterator[Finding]:
    """Yield the findings about the tools of a version that are not served, with the reasons."""
    for spec in reading.tools:
        if spec.name in refused:
            yield refused_tool(spec.name, refused[spec.name], spec.line, reading.path)


def refused_tool(name: str, reason: str, line: int, path: str) -> Finding:
    """Return the finding about a tool whose example failed when its file was admitted."""
    return Finding(
        rule="example-fails",
        severity=Severity.WARNING,
        message=f"{name!r} is not served: {reason}",
        line=line,
        fix="correct the example or the code, then admit the file again",
        tool=name,
        path=path,
    )


_PROGRAM = "Toolkiln or this program"


class Snapshots:
    """Builds successive snapshots."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._reserved = reserved
        self.served: dict[str, ServedVersion] = {}
        """By file."""
        self._claims: dict[str, set[str]] = defaultdict(set)
        """Files by tool name; several files may declare one name."""
        self._enabled: dict[str, ServedVersion] = {}
        """Enabled tools by name."""
        self._contested: set[str] = set()
        self._refused: dict[str, ServedVersion] = {}
        """Versions with tools that are not served, by file."""
        self.current = Snapshot(0)

    def publish(
        self,
        changes: Mapping[str, ServedVersion | None],
        manifest: Manifest,
        problems: tuple[Finding, ...],
    ) -> None:
        """Publish the next snapshot; `changes` maps files to served versions or None."""
        names: set[str] = set()
        for file, served in changes.items():
            old = self.served.pop(file, None)
            self._refused.pop(file, None)
            for name in old.names if old else ():
                self._claims[name].discard(file)
                names.add(name)
            if served is not None:
                self.served[file] = served
                if served.refused:
                    self._refused[file] = served
                for name in served.names:
                    self._claims[name].add(file)
                    names.add(name)
        by_name, enabled = dict(self.current.served), dict(self._enabled)
        for name in sorted(names):
            by_name.pop(name, None)
            enabled.pop(name, None)
            owner = self._owner(name)
            if owner is not None:
                served = by_name[name] = self.served[owner]
                if not manifest.enabled or is_enabled(served.read.tool(name), manifest):
                    enabled[name] = served
        self._enabled = enabled
        findings = (*problems, *self._duplicate_names(), *self._refused_tools())
        self.current = Snapshot(self.current.number + 1, Tools(enabled), by_name, findings)

    def _owner(self, name: str) -> str | None:
        """Return the file that owns a name: the one admitted first; unadmitted ones come last."""
        claims = self._claims[name]
        if not claims:
            del self._claims[name]
            self._contested.discard(name)
            return None
        if name in self._reserved:
            self._contested.add(name)
            return None
        if len(claims) == 1:
            self._contested.discard(name)
            return next(iter(claims))
        self._contested.add(name)
        return min(claims, key=self._precedence)

    def _precedence(self, file: str) -> tuple[bool, str, str]:
        admission = self.served[file].admission
        return admission is None, admission.since if admission else "", file

    def _refused_tools(self) -> Iterator[Finding]:
        for _, served in sorted(self._refused.items()):
            yield from refused_tools(served.refused, served.reading)

    def _duplicate_names(self) -> Iterator[Finding]:
        for name in sorted(self._contested):
            owner = self._owner(name)
            for file in sorted(self._claims[name]):
                if file != owner:
                    spec = self.served[file].read.tool(name)
                    yield Finding(
                        rule="duplicate-name",
                        severity=Severity.ERROR,
                        message=f"{name!r} is a tool of {owner or _PROGRAM} already, and this one "
                        "is not served",
                        line=spec.line,
                        fix="give one of them another name",
                        tool=name,
                        path=spec.path,
                    )
