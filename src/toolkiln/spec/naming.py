"""Names: how tools are called before people, and what clients do to their names."""

import re

_SEPARATORS = re.compile(r"[_\-./:\s]+")
_PORTABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}")


def display_name(identifier: str) -> str:
    """The name for people: `SandboxFilesTool` → `Sandbox Files`, `sb_shell_tool` → `Sb Shell`."""
    stem = _SEPARATORS.sub("_", identifier).removesuffix("_tool").removesuffix("Tool")
    words = _words(stem) or _words(identifier)[-1:]
    return " ".join([word[0].title() + word[1:] for word in words]) or identifier or "Tool"


def portable_name(name: str) -> bool:
    """Whether every client and provider takes the name as it is, with its prefix."""
    return _PORTABLE.fullmatch(name) is not None


def accepted_name(name: str) -> bool:
    """Whether a tool may have the name at all, be it mangled by some clients."""
    return _ACCEPTED.fullmatch(name) is not None


def name_problem(name: str) -> str | None:
    """What clients do to a name that is not portable; None if it travels everywhere."""
    if portable_name(name):
        return None
    if not name:
        return "a tool needs a name"
    if not accepted_name(name):
        return f"no client can be relied on to accept {_shown(name)}: {_refusal(name)}"
    effects = [effect for applies, effect in _effects(name) if applies]
    return f"{_shown(name)} does not reach every client as written: {'; '.join(effects)}"


def _words(identifier: str) -> list[str]:
    """The parts of a snake_case, kebab-case or CamelCase name; acronyms and numbers stay whole."""
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
    """Whether the last capital of an acronym belongs to the next word, as in `HTTPServer`."""
    after = part[at + 1 : at + 3]
    is_plural = after[:1] == "s" and not after[1:].islower()
    return after[:1].islower() and not is_plural


def _refusal(name: str) -> str:
    odd = sorted(set(re.sub(r"[A-Za-z0-9_-]", "", name)))
    if not odd:
        return f"it has {len(name)} characters, and names end at 64"
    if odd == ["."]:
        return "OpenAI and Anthropic refuse '.', Claude Code, Codex and OpenCode turn it into '_'"
    shown = ", ".join(map(ascii, odd[:5]))
    return f"names have letters A-Z, digits, '_' and '-' only, not {shown}"


def _effects(name: str) -> list[tuple[bool, str]]:
    return [
        (
            len(name) > 40,
            "Gemini CLI cuts the middle out of names over 63 characters, prefix and all",
        ),
        ("-" in name, "Codex turns '-' into '_'"),
        (name[0] in "-0123456789", "Gemini refuses names that start with a digit or '-'"),
        (name[0] == "_", "a leading '_' marks what is private"),
        (
            any("A" <= letter <= "Z" for letter in name),
            "upper-case letters are passed on, but names that differ in case alone get mixed up",
        ),
    ]


def _shown(text: str) -> str:
    """Quoted, and cut where it is too long to read."""
    return ascii(text) if len(text) <= 80 else f"{text[:77]!a}…"


def shape(name: str) -> str:
    """Return what remains of a name where look-alikes are one: case, separators, `0` and `O`."""
    plain = name.lower().replace("_", "").replace("-", "").translate(_LOOK_ALIKES)
    return plain.replace("rn", "m").replace("vv", "w")


_LOOK_ALIKES = str.maketrans("01i5", "olls")
