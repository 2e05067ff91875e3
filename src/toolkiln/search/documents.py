"""Search documents: named text fields with a key, built from a tool and weighted by word."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from toolkiln.model.spec import ToolSpec
from toolkiln.search.analysis import Words, joined, normalize_name, pairs, words, words_or_all

_MIN_USAGE_WORDS = 3
_MAX_SCHEMA_DEPTH = 8
_MAX_USAGES = 50


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """A searchable item."""

    key: str
    """Unique in an index; a query that contains it ranks this document first."""
    fields: Mapping[str, str]
    """Text by field, such as `name` or `description`; each field has its own weight."""
    usages: tuple[str, ...] = ()
    """Past prompts for which this document was chosen."""

    @property
    def fingerprint(self) -> str:
        """Hash of the content."""
        content = json.dumps([self.key, sorted(self.fields.items()), self.usages])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def document(spec: ToolSpec, usages: Sequence[str] = ()) -> SearchDocument:
    """Build the document of a tool, with prompts from its author and from past usages."""
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
        "module": " ".join(f"{section.title} {section.body}" for section in documentation.module),
    }
    prompts = dict.fromkeys([*spec.usages, *usages, *_example_captions(documentation.examples)])
    return SearchDocument(spec.name, fields, tuple(islice(prompts, _MAX_USAGES)))


def _example_captions(examples: str) -> Iterator[str]:
    """Yield the lines of prose before each code example."""
    is_code = False
    for line in map(str.strip, examples.splitlines()):
        is_code = bool(line) and (is_code or line.startswith((">>>", "```")))
        if not is_code and len(line.split()) >= _MIN_USAGE_WORDS:
            yield line


def parameter_texts(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of all parameters, and their descriptions with enum values."""
    names, texts = [], []
    for name, value in _properties(schema, 0):
        names.append(name)
        choices = value.get("enum")
        texts.append(str(value.get("description") or ""))
        texts += map(str, choices) if isinstance(choices, list) else []
    return " ".join(names), " ".join(texts)


def _properties(schema: Any, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(schema, Mapping) or depth > _MAX_SCHEMA_DEPTH:
        return
    properties = schema.get("properties")
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(value, Mapping):
            yield name, value
            yield from _properties(value, depth + 1)
    for inner in (schema.get("items"), *(schema.get("$defs") or {}).values()):
        yield from _properties(inner, depth + 1)


class _Field(NamedTuple):
    weight: float
    length: int
    """The expected number of words; longer fields count less."""


_NO_DESCRIPTION = ""
"""The field that replaces a missing description."""
_FIELDS = {
    "name": _Field(3.0, 4),
    "title": _Field(1.0, 4),
    "toolkit": _Field(1.0, 4),
    "description": _Field(1.2, 12),
    "parameters": _Field(0.5, 5),
    "arguments": _Field(0.5, 20),
    _NO_DESCRIPTION: _Field(2.4, 12),
}
_NAMES = ("name", "title")
"""Fields whose neighbouring words also count as one word."""
_OTHER = _Field(0.4, 80)
_USAGES = _Field(1.5, 30)
_LENGTH_SHARE = 0.6
"""BM25's b: how strongly long fields are discounted."""
_SATURATION = 3.0
"""BM25's k1: the weight at which a word scores half of its maximum."""
_MAX_EMBEDDED_WORDS = 100
"""Later words change a vector little and blur it."""
_NO_WORDS = Words([], [], [])


class WeightedDocument(NamedTuple):
    """A document's word weights and text to embed."""

    weights: dict[str, float]
    """Stemmed word to weight, from 0 to 1."""
    text: str


def weigh(document: SearchDocument) -> WeightedDocument:
    """Weight all words of a document."""
    fields = {name: words(text) for name, text in document.fields.items()}
    fields["name"] = words_or_all(document.fields.get("name", ""))
    if "title" in fields and fields["title"] == fields["name"]:
        del fields["title"]
    if not fields.get("description", _NO_WORDS).terms:
        # Otherwise a well-named tool would lose to a well-described one.
        fields[_NO_DESCRIPTION] = joined([fields["name"], fields.get("toolkit", _NO_WORDS)])
    totals: defaultdict[str, float] = defaultdict(float)
    for name, found in fields.items():
        _add(totals, found, _FIELDS.get(name, _OTHER), pairs(found) if name in _NAMES else ())
    _add(totals, joined([_NO_WORDS, *map(words, document.usages)]), _USAGES)
    weights = {term: total / (_SATURATION + total) for term, total in totals.items()}
    weights[literal(document.key)] = 1.0
    embedded = sorted(fields.keys() - {"module", "toolkit", _NO_DESCRIPTION}, key=_field_order)
    spoken = chain.from_iterable(fields[name].spoken for name in embedded)
    return WeightedDocument(weights, " ".join(islice(spoken, _MAX_EMBEDDED_WORDS)))


def literal(name: str) -> str:
    """Return the term for a name in any spelling; it never occurs in a text."""
    return f"={normalize_name(name)}"


def _field_order(name: str) -> tuple[float, str]:
    return -_FIELDS.get(name, _OTHER).weight, name


def _add(
    totals: defaultdict[str, float], found: Words, field: _Field, more: Iterable[str] = ()
) -> None:
    length = len(found.terms) / field.length
    share = field.weight / (1 - _LENGTH_SHARE + _LENGTH_SHARE * length)
    for term in chain(found.terms, more):
        totals[term] += share
