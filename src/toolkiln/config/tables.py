"""Settings that are tables: limits, grants, rules, privileges, rates; one function checks each."""

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolkiln.errors import ConfigError, nearest_hint

EFFECTS = ("allow", "deny", "ask")
KINDS = {"str": "a text in quotes", "int": "a whole number", "bool": "true or false"}
ENDLESS = 2**60
_LIMITS = ("timeout", "memory", "cpu", "processes", "disk")
_GRANTS = {"network": list, "workspace": str, "sandbox": bool, "secrets": list}
_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_RULE = {"effect": str, **dict.fromkeys(_LISTS, tuple), "approve_own": bool, "reason": str}
_WORDS = {
    "effect": EFFECTS,
    "hints": ("read_only", "destructive", "idempotent", "open_world"),
}
_AS_RULES = 'write [[rules]], and below it effect = "deny" and so on'
_GROUP = "group:"
_ANONYMOUS = "anonymous"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(rf"([0-9]{{1,10}})/({'|'.join(_SECONDS)})")
_MOST_CALLS = 10**9


def pace(rate: Any) -> tuple[int, int]:
    """How many calls within how many seconds `60/minute` means.

    Raises:
        ConfigError: it means nothing.
    """
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if not match or not 1 <= int(match[1]) <= _MOST_CALLS:
        hint = f'such as "60/minute": from 1 to {_MOST_CALLS}, per {", ".join(_SECONDS)}'
        raise ConfigError(f"{reprlib.repr(rate)} is no rate", hint=hint)
    return int(match[1]), _SECONDS[match[2]]


def hint_from(name: Any, known: Iterable[str]) -> str:
    """The nearest of some names, or all of them."""
    names = list(known)
    return nearest_hint(str(name)[:100], names) or f"one of {', '.join(names)}"


def _limits(value: Any, origin: str) -> dict[str, float]:
    table = _as_table("limits", value, origin)
    for name, number in table.items():
        if name not in _LIMITS:
            raise ConfigError(
                f"{origin}: limits has no {name!r}", hint=f"one of {', '.join(_LIMITS)}"
            )
        least = 0.001 if name in ("timeout", "cpu") else 1
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not least <= number < ENDLESS
        ):
            hint = f"a number from {least:g} on"
            raise ConfigError(f"{origin}: limits.{name} is {number!r}", hint=hint)
    return table


def _grants(value: Any, origin: str) -> dict[str, dict[str, Any]]:
    for tool, grant in _as_table("grants", value, origin).items():
        for name, granted in _as_table(f"grants.{tool}", grant, origin).items():
            if name not in _GRANTS:
                raise ConfigError(
                    f"{origin}: grants.{tool} has no {name!r}", hint=f"one of {', '.join(_GRANTS)}"
                )
            if (
                not isinstance(granted, _GRANTS[name])
                or (name == "workspace" and granted not in ("read", "write"))
                or (isinstance(granted, list) and not all(isinstance(h, str) for h in granted))
            ):
                raise ConfigError(
                    f"{origin}: grants.{tool}.{name} is {granted!r}",
                    hint='network = ["api.example.com"], workspace = "read" or "write", '
                    'sandbox = false, secrets = ["NAME"]',
                )
    return dict(value)


def _as_table(name: str, value: Any, origin: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        hint = f"write [{name}], and its values below"
        raise ConfigError(f"{origin}: {name} is {reprlib.repr(value)}, not a table", hint=hint)
    return dict(value)


def _rules(value: Any, origin: str) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{origin}: rules is {reprlib.repr(value)}, not a list", hint=_AS_RULES)
    return tuple(_rule(rule, f"{origin}: rules[{place}]") for place, rule in enumerate(value, 1))


def _rule(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} is {reprlib.repr(value)}, not a table", hint=_AS_RULES)
    rule = {name: _given(name, given, place) for name, given in value.items()}
    if "effect" not in rule:
        raise ConfigError(f"{place} has no effect", hint=f"one of {', '.join(EFFECTS)}")
    return rule


def _given(name: str, value: Any, place: str) -> Any:
    """What a rule gives for one of its fields."""
    if name not in _RULE:
        raise ConfigError(f"{place} has no {reprlib.repr(name)}", hint=hint_from(name, _RULE))
    place = f"{place}.{name}"
    if name in _LISTS:
        value = _texts(value, place)
    elif not isinstance(value, _RULE[name]):
        hint = KINDS[_RULE[name].__name__]
        raise ConfigError(f"{place} is {reprlib.repr(value)}", hint=hint)
    if name in _WORDS:
        for word in (value,) if name == "effect" else value:
            if word not in _WORDS[name]:
                hint = hint_from(word, _WORDS[name])
                raise ConfigError(f"{place} is {reprlib.repr(word)}", hint=hint)
    return value


def _texts(value: Any, place: str) -> tuple[str, ...]:
    """One text or several; none at all would fit nothing and looks like a slip."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ConfigError(f"{place} is {reprlib.repr(value)}", hint="a list of texts")
    if not texts:
        raise ConfigError(f"{place} is empty", hint="leave it out, or list some")
    for text in texts:
        if not isinstance(text, str) or not text or text != text.strip():
            hint = "texts that are not empty, without blanks around them"
            raise ConfigError(f"{place} has {reprlib.repr(text)} in it", hint=hint)
    return tuple(texts)


def _privileges(value: Any, origin: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for who, names in _as_table("privileges", value, origin).items():
        place = f"{origin}: privileges.{reprlib.repr(who)}"
        if who in ("*", _GROUP) or not who or who != who.strip():
            hint = 'name a user, or a group as in "group:admins"'
            raise ConfigError(f"{place} names nobody", hint=hint)
        if who == _ANONYMOUS:
            hint = f'a rule with users = ["{_ANONYMOUS}"] allows such callers a tool'
            raise ConfigError(f"{place}: anonymous callers have no privileges", hint=hint)
        found[who] = _texts(names, place)
    return found


def _rates(value: Any, origin: str) -> dict[str, dict[str, str]]:
    for glob, rates in _as_table("rates", value, origin).items():
        place = f"rates.{reprlib.repr(glob)}"
        _texts(glob, f"{origin}: rates")
        for name, rate in _as_table(place, rates, origin).items():
            if name not in ("caller", "tool"):
                hint = hint_from(name, ("caller", "tool"))
                raise ConfigError(f"{origin}: {place} has no {reprlib.repr(name)}", hint=hint)
            try:
                pace(rate)
            except ConfigError as error:
                message = f"{origin}: {place}.{name}: {error.message}"
                raise ConfigError(message, hint=error.hint) from None
    return dict(value)


TABLES: dict[str, Callable[[Any, str], Any]] = {
    "limits": _limits,
    "grants": _grants,
    "rules": _rules,
    "privileges": _privileges,
    "rates": _rates,
}
"""By name: what such a table is as `Settings` holds it, or a ConfigError."""
