"""Documents: what is searched for, as named fields of text, and how a tool becomes one.

A document is plain text with a key; nothing is counted here. `weighing` turns it into words
and weights, `index` ranks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from toolkiln.model import ToolSpec

_FEWEST_WORDS = 3
"""Of a line that may be a usage."""
_DEEPEST = 8
"""How far into a schema parameters are looked for."""
_MOST_USAGES = 50
"""Past prompts of one tool that count; more of them say little more."""


@dataclass(frozen=True, slots=True)
class Document:
    """One thing that can be found."""

    key: str
    """Unique in an index; a query that names it finds it first."""
    fields: Mapping[str, str]
    """Text by what it is: `name`, `description` and so on weigh differently."""
    usages: tuple[str, ...] = ()
    """Past prompts that this was the answer to."""

    @property
    def fingerprint(self) -> str:
        """Another fingerprint, another content."""
        content = json.dumps([self.key, sorted(self.fields.items()), self.usages])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def document(spec: ToolSpec, usages: Sequence[str] = ()) -> Document:
    """What a tool says of itself, with the prompts that its author and its past name.

    Of many usages the first ones count.
    """
    toolkit, documentation = spec.toolkit, spec.documentation
    sections = (f"{section.title} {section.body}" for section in documentation.sections)
    names, texts = parameter_texts(spec.parameters)
    fields = {
        "name": spec.name,
        "title": spec.display_name,
        "toolkit": f"{toolkit.display_name} {toolkit.description}" if toolkit else "",
        "description": spec.description,
        "parameters": names,
        "arguments": texts,
        "documentation": " ".join([documentation.text, *sections, documentation.returns]),
    }
    prompts = dict.fromkeys([*spec.usages, *usages, *_said_of(documentation.examples)])
    return Document(spec.name, fields, tuple(islice(prompts, _MOST_USAGES)))


def _said_of(examples: str) -> Iterator[str]:
    """What stands in words before the code of examples: what each of them is for."""
    is_code = False
    for line in map(str.strip, examples.splitlines()):
        is_code = bool(line) and (is_code or line.startswith((">>>", "```")))
        if not is_code and len(line.split()) >= _FEWEST_WORDS:
            yield line


def parameter_texts(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The names of all parameters; their descriptions with the values they may take."""
    names, texts = [], []
    for name, value in _properties(schema, 0):
        names.append(name)
        choices = value.get("enum")
        texts.append(str(value.get("description") or ""))
        texts += map(str, choices) if isinstance(choices, list) else []
    return " ".join(names), " ".join(texts)


def _properties(schema: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    properties = schema.get("properties")
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(value, Mapping):
            yield name, value
            yield from _properties(value, depth + 1)
    for inner in (schema.get("items"), *(schema.get("$defs") or {}).values()):
        yield from _properties(inner, depth + 1)
