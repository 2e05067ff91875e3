"""What a provider's schema dialect can say, as data. The compilers differ in little else.

The numbers and lists come from the providers' documentation; `tests/schema` checks the
compiled payloads against an independent reading of the same rules.
"""

import re
from dataclasses import dataclass

PRIMITIVES = frozenset(("string", "integer", "number", "boolean"))


@dataclass(frozen=True)
class Profile:
    """The dialect that a schema is lowered to."""

    name: str
    keywords: frozenset[str]
    """Constraining keywords that survive."""
    formats: frozenset[str] | None = None
    """The formats that survive, None for all."""
    nullable_optionals: bool = False
    """An optional property becomes a required one that may be null."""
    references: bool = True
    """Definitions may be referenced, recursively; otherwise they are written out."""
    null_type: bool = True
    empty_objects: bool = True
    """Objects without properties may be described, other than at the root."""
    enum_types: frozenset[str] = PRIMITIVES
    key_pattern: str = r"(?s).+"
    """What property names look like."""
    forbidden_pattern: str | None = None
    """Where this matches a regular expression, the provider does not understand it."""
    largest_min_items: int | None = None

    def keeps(self, keyword: str, value: object) -> bool:
        """Whether the provider takes this keyword with this value."""
        if keyword not in self.keywords:
            return False
        if keyword == "format":
            return self.formats is None or value in self.formats
        if keyword == "pattern" and self.forbidden_pattern:
            return not re.search(self.forbidden_pattern, str(value))
        if keyword == "minItems" and self.largest_min_items is not None:
            return isinstance(value, int) and value <= self.largest_min_items
        return True


def wire_names(names: list[str], pattern: str) -> dict[str, str]:
    """A distinct name that matches `pattern` for each name; itself where it does."""
    fine = re.compile(pattern)
    taken = {name for name in names if fine.fullmatch(name)}
    renamed: dict[str, str] = {}
    for name in names:
        if name in taken:
            renamed[name] = name
            continue
        stem = re.sub(r"[^A-Za-z0-9_]", "_", name)[:56]
        stem = stem if re.match(r"[A-Za-z_]", stem) else f"_{stem}"
        candidate, count = stem, 1
        while candidate in taken:
            count += 1
            candidate = f"{stem}_{count}"
        taken.add(candidate)
        renamed[name] = candidate
    return renamed
