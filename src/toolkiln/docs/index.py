"""All tools at a glance: in groups, and as a short index for a prompt.

The index names each tool in one line, so that a model knows what there is before it reads
any schema. What is left out of it is said, with the way to find it.
"""

from collections.abc import Iterable
from itertools import groupby

from toolkiln.docs.prose import first_sentence, one_line
from toolkiln.model import ToolSpec


def prompt_index(specs: Iterable[ToolSpec], budget: int = 8_000) -> str:
    """One line for each tool, group by group, in about `budget` characters at most."""
    groups = grouped(specs)
    left = sum(len(members) for _, members in groups)
    room = budget - len(_more(left))
    lines: list[str] = []
    for title, members in groups:
        heading = ["", f"{title}:"] if lines else [f"{title}:"]
        for spec in members:
            entry = [*heading, f"- {one_line(spec.name)}: {first_sentence(spec.description)}"]
            room -= sum(len(line) + 1 for line in entry)
            if room < 0:
                return "\n".join([*lines, _more(left)])
            lines += entry
            heading = []
            left -= 1
    return "\n".join(lines)


def grouped(specs: Iterable[ToolSpec]) -> list[tuple[str, list[ToolSpec]]]:
    """Titles with tools: core ones, those of no toolkit, those of each; lightest first."""
    ordered = sorted(specs, key=lambda spec: (_group(spec), spec.weight, spec.name))
    return [(group[2], list(members)) for group, members in groupby(ordered, key=_group)]


def _group(spec: ToolSpec) -> tuple[int, int, str, str]:
    kit = spec.toolkit
    if spec.cannot_be_disabled:
        return 0, 0, "Core", ""
    return (2, kit.weight, one_line(kit.display_name), kit.name) if kit else (1, 0, "Tools", "")


def _more(number: int) -> str:
    return f"and {number:,} more: use search_tools"
