"""Tool names: display names for people, and names that every client and provider accepts."""

import re

from toolkiln.appearance import quoted

_SEPARATORS = re.compile(r"[_\-./:\s]+")
_PORTABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOOK_ALIKES = str.maketrans("01i5", "olls")


def display_name(identifier: str) -> str:
    """Return a title: `SandboxFilesTool` → `Sandbox Files`, `sb_shell_tool` → `Sb Shell`."""
    stem = _SEPARATORS.sub("_", identifier).removesuffix("_tool").removesuffix("Tool")
    words = _words(stem) or _words(identifier)[-1:]
    return " ".join([word[0].title() + word[1:] for word in words]) or identifier or "Tool"


def portable_name(name: str) -> bool:
    """Return whether every client and provider passes the name on unchanged."""
    return _PORTABLE.fullmatch(name) is not None


def accepted_name(name: str) -> bool:
    """Return whether a tool may have the name, even if some clients change it."""
    return _ACCEPTED.fullmatch(name) is not None


def accepted_form(name: str) -> str:
    """Return a name that clients accept, for a tool of a framework that takes any text."""
    if accepted_name(name):
        return name
    words = "_".join(re.findall(r"[a-z0-9]+", name.lower()))[:64].strip("_")
    return words if words[:1].isalpha() else f"tool_{words}".strip("_")


def name_problem(name: str) -> str | None:
    """Describe what clients do to a name; None if it is portable."""
    if portable_name(name):
        return None
    if not name:
        return "a tool needs a name"
    if not accepted_name(name):
        return f"clients may reject the name {quoted(name)}: {_rejection(name)}"
    effects = [effect for applies, effect in _effects(name) if applies]
    return f"{quoted(name)} is not portable across clients: {'; '.join(effects)}"


def look_alike_key(name: str) -> str:
    """Return a key that is the same for easily confused names, such as `fi1e` and `file`."""
    plain = name.lower().replace("_", "").replace("-", "").translate(_LOOK_ALIKES)
    return plain.replace("rn", "m").replace("vv", "w")


def _words(identifier: str) -> list[str]:
    """Split a snake_case, kebab-case or CamelCase name; acronyms and numbers stay whole."""
    words: list[str] = []
    for part in _SEPARATORS.split(identifier):
        start = 0
        for at in range(1, len(part)):
            if part[at].isupper() and (not part[at - 1].isupper() or _starts_word(part, at)):
                words.append(part[start:at])
                start = at
        if part:
            words.append(part[start:])
    return words


def _starts_word(part: str, at: int) -> bool:
    """Return whether the last capital of an acronym starts the next word, as in `HTTPServer`."""
    after = part[at + 1 : at + 3]
    is_plural = after[:1] == "s" and not after[1:].islower()
    return after[:1].islower() and not is_plural


def _rejection(name: str) -> str:
    invalid = sorted(set(re.sub(r"[A-Za-z0-9_-]", "", name)))
    if not invalid:
        return f"it has {len(name)} characters; the limit is 64"
    if invalid == ["."]:
        return (
            "OpenAI and Anthropic reject '.'; Claude Code, Codex and OpenCode replace it with '_'"
        )
    characters = ", ".join(map(ascii, invalid[:5]))
    return f"use only letters A-Z, digits, '_' and '-', not {characters}"


def _effects(name: str) -> list[tuple[bool, str]]:
    return [
        (
            len(name) > 40,
            "Gemini CLI shortens names over 63 characters, counting its prefix",
        ),
        ("-" in name, "Codex replaces '-' with '_'"),
        (name[0] in "-0123456789", "Gemini rejects names that start with a digit or '-'"),
        (name[0] == "_", "a leading '_' means private"),
        (
            any("A" <= letter <= "Z" for letter in name),
            "upper-case letters are kept, but names that differ only in case get confused",
        ),
    ]
