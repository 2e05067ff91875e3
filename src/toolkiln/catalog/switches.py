"""Switches: which tools, toolkits and methods are offered. Core ones always are."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolkiln.catalog.manifest import Manifest, Switch
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import ToolSpec


def is_on(spec: ToolSpec, manifest: Manifest) -> bool:
    """Whether a tool is offered."""
    if spec.cannot_be_disabled:
        return True
    switch = manifest.enabled.get(spec.toolkit.name if spec.toolkit else spec.name, True)
    if isinstance(switch, bool):
        return switch
    return switch.enabled and switch.methods.get(spec.name, True)


def switched(
    manifest: Manifest, specs: Sequence[ToolSpec], name: str, wanted: bool | Mapping[str, Any]
) -> Manifest:
    """The manifest with a tool, a toolkit or some of its methods switched on or off.

    Raises:
        UnknownTool: there is none of that name.
        InputError: it is a core tool, or `wanted` is no switch.
    """
    kits = {spec.toolkit.name for spec in specs if spec.toolkit}
    by_name = {spec.entry: spec for spec in specs} | {spec.name: spec for spec in specs}
    spec = by_name.get(name)
    enabled = dict(manifest.enabled)
    if name in kits:
        members = [spec for spec in specs if spec.toolkit and spec.toolkit.name == name]
        enabled[name] = _kit_switch(members, wanted)
    elif spec is None:
        raise UnknownTool(name, [*kits, *(spec.name for spec in specs)])
    elif not isinstance(wanted, bool):
        raise InputError(f"{name} is not a toolkit", hint="it can be enabled or disabled")
    elif spec.toolkit is None:
        _refuse_core([spec], {spec.name: wanted})
        enabled[spec.name] = wanted
    else:
        kit = spec.toolkit.name
        members = [other for other in specs if other.toolkit and other.toolkit.name == kit]
        methods = {member.name: is_on(member, manifest) for member in members}
        methods[spec.name] = wanted
        enabled[kit] = _kit_switch(members, {"methods": methods})
    kept = {key: value for key, value in enabled.items() if value is not True}
    return manifest.model_copy(update={"enabled": kept})


def _kit_switch(members: Sequence[ToolSpec], wanted: bool | Mapping[str, Any]) -> bool | Switch:
    """A toolkit's switch; one without any method left is off."""
    if isinstance(wanted, bool):
        _refuse_core(members, {spec.name: wanted for spec in members})
        return wanted
    names = {_method(m): m.name for m in members} | {m.name: m.name for m in members}
    methods = wanted.get("methods", {}) if isinstance(wanted, Mapping) else None
    if not isinstance(methods, Mapping) or wanted.keys() - {"enabled", "methods"}:
        raise InputError(
            f"{wanted!r} is not a switch", hint="true, false or {enabled, methods: {name: …}}"
        )
    for name, value in methods.items():
        if name not in names:
            raise UnknownTool(name, names)
        if not isinstance(value, bool):
            raise InputError(f"{name} is {value!r}, neither true nor false")
    chosen = {names[name]: value for name, value in methods.items()}
    is_on = wanted.get("enabled", True)
    if not isinstance(is_on, bool):
        raise InputError(f"enabled is {is_on!r}, neither true nor false")
    _refuse_core(members, {m.name: is_on and chosen.get(m.name, True) for m in members})
    if not any(chosen.get(spec.name, True) for spec in members):
        is_on = False
    off = {name: value for name, value in chosen.items() if not value}
    return Switch(enabled=is_on, methods=off) if off else is_on


def _refuse_core(specs: Sequence[ToolSpec], wanted: Mapping[str, bool]) -> None:
    for spec in specs:
        if spec.cannot_be_disabled and not wanted[spec.name]:
            raise InputError(
                f"{spec.name} is a core tool and cannot be disabled",
                hint="its author marked it with is_core=True",
            )


def _method(spec: ToolSpec) -> str:
    return spec.entry.rpartition(".")[2]
