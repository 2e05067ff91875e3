"""Lowering: the canonical schema to a provider's narrower dialect, with a codec to undo it.

Constraints that the dialect does not support move into the description (a loss). Parts
without any equivalent structure are sent as JSON text in a string (a gap). So no tool is ever
dropped. An object that declares properties without mentioning others is treated as closed.

Documents must be valid (`validity`). `containers` lowers objects and arrays; `algebra`
eliminates `allOf` and decides whether alternatives overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from jsonschema_rs import Draft202012Validator

from toolkiln.model.base import JsonSchema
from toolkiln.schema.document import (
    SchemaDocument,
    assertions,
    implied_type,
    is_free_form,
    join,
    limit_backtracking,
    without_definitions,
)
from toolkiln.schema.providers import containers
from toolkiln.schema.providers.algebra import (
    CannotMergeError,
    NothingFitsError,
    disjoint,
    flat,
    merge,
)
from toolkiln.schema.providers.codec import (
    SAME,
    Branch,
    ChoiceCodec,
    Codec,
    Named,
    TextCodec,
    Wrapped,
)
from toolkiln.schema.providers.containers import enumerated
from toolkiln.schema.providers.profile import Gap, Loss, Profile
from toolkiln.schema.providers.wire import (
    Lowered,
    closed_object,
    default_note,
    definition_name,
    described,
    display,
    json_text,
    nullable,
    phrase,
    reachable,
    size,
)
from toolkiln.schema.validator_options import options_for

_UNSUPPORTED = (
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_BUDGET = 5_000
_SCALARS = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "boolean": (),
    "null": (),
}
ENVELOPE = "arguments"


class TooLargeError(Exception):
    """The schema is too large for any provider once its references are expanded."""


@dataclass(frozen=True)
class LoweredRoot:
    """A tool's lowered parameters."""

    wire: JsonSchema
    codec: Codec
    losses: tuple[Loss, ...]
    gaps: tuple[Gap, ...]


def lower_root(root: JsonSchema, profile: Profile) -> LoweredRoot:
    """Lower a tool's valid parameters to an object without combinators at the top.

    Raises:
        TooLargeError: expanding the references exceeds the budget.
    """
    lowering = Lowering(SchemaDocument(root), profile)
    try:
        lowered = lowering.lower_root()
    except RecursionError:
        raise TooLargeError from None
    wire = dict(lowered.wire)
    used = reachable(wire, lowering.definitions)
    if used:
        wire["$defs"] = {name: lowering.definitions[name] for name in sorted(used)}
    losses = dict.fromkeys([*lowering.losses, *lowering.settled_losses])
    gaps = dict.fromkeys([*lowering.gaps, *lowering.settled_gaps])
    return LoweredRoot(wire, lowered.codec, tuple(losses), tuple(gaps))


class Lowering:
    """The lowering of one document: definitions, losses and gaps so far."""

    def __init__(self, document: SchemaDocument, profile: Profile) -> None:
        self.document = document
        self.profile = profile
        self.losses: list[Loss] = []
        self.gaps: list[Gap] = []
        self.settled_losses: list[Loss] = []
        self.settled_gaps: list[Gap] = []
        self.definitions: dict[str, JsonSchema] = {}
        self._codecs: dict[str, Codec] = {}
        self._names: dict[str, str] = {}
        self._inlined: dict[str, Lowered] = {}
        self._open: set[str] = set()
        self._spent = 0

    def lower_root(self) -> Lowered:
        """Lower the root to an object; anything else is wrapped in one."""
        root = self.document.root
        try:
            node = flat(root, self.document)
        except CannotMergeError:
            node = None
        if isinstance(node, dict) and not any(
            keyword in node for keyword in ("anyOf", "oneOf", "enum", "const")
        ):
            closed = {"additionalProperties": False, "properties": {}} if _is_bare(node) else {}
            lowered = self.lower({**node, **closed, "type": "object"}, "")
            if lowered.wire.get("type") == "object" and isinstance(
                lowered.codec, containers.OBJECT_CODECS
            ):
                return lowered
        inner = self.lower(without_definitions(root), "")
        return Lowered(closed_object({ENVELOPE: inner.wire}), Wrapped(ENVELOPE, inner.codec))

    def lower(self, node: Any, path: str) -> Lowered:
        """Lower any subschema."""
        self._spend(1)
        if not isinstance(node, dict):
            reason = "accepts no value" if node is False else "accepts any value"
            return self.as_text(node, path, "type", reason)
        losses, gaps = len(self.losses), len(self.gaps)
        try:
            return self._lower_node(node, path)
        except CannotMergeError as conflict:
            del self.losses[losses:], self.gaps[gaps:]
            reason = f"{conflict.keyword!r} has no strict form here"
            return self.as_text(node, path, conflict.keyword, reason)

    def as_text(
        self, node: Any, path: str, keyword: str, reason: str, notes: Sequence[str] = ()
    ) -> Lowered:
        """Lower a subschema without an equivalent to JSON text."""
        reason = f"{reason}; it is sent as JSON text in a string"
        self.losses.append(Loss(path, keyword, reason))
        self.gaps.append(Gap(path, reason))
        text = json_text(assertions(node) if isinstance(node, dict) else node)
        return self.finish({"type": "string"}, TextCodec(), node, [text, *notes])

    def finish(self, wire: JsonSchema, codec: Codec, node: Any, notes: list[str]) -> Lowered:
        """Add the description with notes, default and examples."""
        annotated = node if isinstance(node, dict) else {}
        notes = list(notes)
        if annotated.get("default") is not None:
            if codec == SAME and self.profile.keeps("default", annotated["default"]):
                wire = {**wire, "default": annotated["default"]}
            else:
                notes.append(default_note(annotated["default"]))
        if isinstance(annotated.get("examples"), list) and annotated["examples"]:
            notes.append("for example: " + ", ".join(map(display, annotated["examples"][:3])))
        # The only alternative of a union has texts of its own: bounds, and how it is encoded.
        texts = dict.fromkeys((annotated.get("description"), wire.get("description")))
        text = described(" ".join(text for text in texts if isinstance(text, str)), notes)
        if text and "$ref" in wire:
            wire = {"anyOf": [wire]}
        return Lowered({**wire, "description": text} if text else wire, codec)

    def keep(
        self, wire: JsonSchema, node: JsonSchema, keywords: tuple[str, ...], path: str
    ) -> list[str]:
        """Copy supported constraints; record the others as losses and return them as phrases."""
        notes: list[str] = []
        for keyword in keywords:
            if keyword not in node or node[keyword] is False:
                continue
            if self.profile.keeps(keyword, node[keyword]):
                wire[keyword] = node[keyword]
            elif not self._close_bound(wire, node, keyword):
                notes.append(self.lose(node, keyword, path))
        return notes

    def lose(self, node: JsonSchema, keyword: str, path: str) -> str:
        """Record that a keyword is not enforced; return a phrase for the description."""
        note = phrase(keyword, node[keyword])
        reason = f"{self.profile.name} does not support {keyword!r}; the description says: {note}"
        self.losses.append(Loss(path, keyword, reason))
        return note

    def _close_bound(self, wire: JsonSchema, node: JsonSchema, keyword: str) -> bool:
        """Convert an exclusive bound of an integer to an inclusive one."""
        closed = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}
        bound, step = closed.get(keyword, ("", 0))
        value = node[keyword]
        if node.get("type") != "integer" or not isinstance(value, int) or bound in node:
            return False
        if not bound or not self.profile.keeps(bound, value):
            return False
        wire[bound] = value + step
        return True

    def _lower_node(self, node: JsonSchema, path: str) -> Lowered:
        if "$ref" in node and not assertions(node).keys() - {"$ref"}:
            return self._reference(node, path)
        if "$ref" in node or "allOf" in node:
            parts = node.get("allOf", ())
            if "$ref" not in node and len(parts) == 1 and assertions(node).keys() == {"allOf"}:
                only = parts[0]
                if isinstance(only, dict) and assertions(only).keys() == {"$ref"}:
                    return self._reference({**node, "$ref": only["$ref"]}, path)
            return self.lower(flat(node, self.document), path)
        notes: list[str] = []
        unsupported = [keyword for keyword in _UNSUPPORTED if keyword in node]
        if unsupported:
            if containers.declares_elsewhere(node):
                raise CannotMergeError(unsupported[0])
            for keyword in unsupported:
                notes.append(self.lose(node, keyword, path))
                self.gaps.append(Gap(path, f"{keyword!r} cannot be enforced in strict mode"))
            node = {key: value for key, value in node.items() if key not in unsupported}
        if "const" in node or "enum" in node:
            return self._enumerated(node, notes)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._union(node, keyword, path, notes)
        kind = node.get("type") or implied_type(node)
        if isinstance(kind, list) and len(kind) == 1:
            (kind,) = kind
            node = {**node, "type": kind}
        if isinstance(kind, list):
            return self._of_types(kind, node, path, notes)
        if kind == "object":
            return containers.lower_object(self, node, path, notes)
        if kind == "array":
            return containers.lower_array(self, node, path, notes)
        if kind is None:
            return self.as_text(node, path, "type", "accepts values of any type", notes)
        if kind == "null" and not self.profile.null_type:
            return self._enumerated({**node, "enum": [None]}, notes)
        wire: JsonSchema = {"type": kind}
        notes += self.keep(wire, {**node, "type": kind}, _SCALARS[kind], path)
        return self.finish(wire, SAME, node, notes)

    def _reference(self, node: JsonSchema, path: str) -> Lowered:
        ref = node["$ref"]
        annotations = {key: value for key, value in node.items() if key != "$ref"}
        target_path = ref[1:]
        if not self.profile.references:
            if ref in self._open:
                return self.as_text(
                    {**without_definitions(self.document.target(ref)), **annotations},
                    path,
                    "$ref",
                    "refers back to itself",
                )
            if ref not in self._inlined:
                self._open.add(ref)
                self._inlined[ref] = self._definition(ref, target_path)
                self._open.discard(ref)
            lowered = self._inlined[ref]
            self._spend(size(lowered.wire))
            texts = (annotations.get("description"), lowered.wire.get("description"))
            annotations["description"] = " ".join(filter(None, texts))
            wire = {key: value for key, value in lowered.wire.items() if key != "description"}
            return self.finish(wire, lowered.codec, annotations, [])
        if ref not in self._names:
            name = definition_name(ref, set(self._names.values()))
            self._names[ref] = name
            lowered = self._definition(ref, target_path)
            self.definitions[name], self._codecs[name] = lowered
        name = self._names[ref]
        same = self._codecs.get(name) == SAME
        codec = SAME if same else Named(name, self._codecs)
        return self.finish({"$ref": f"#/$defs/{name}"}, codec, annotations, [])

    def _definition(self, ref: str, path: str) -> Lowered:
        # Losses and gaps of a definition remain even if this reference to it is dropped.
        outer = self.losses, self.gaps
        self.losses, self.gaps = [], []
        lowered = self.lower(without_definitions(self.document.target(ref)), path)
        self.settled_losses += self.losses
        self.settled_gaps += self.gaps
        self.losses, self.gaps = outer
        return lowered

    def _of_types(self, kinds: list[str], node: JsonSchema, path: str, notes: list[str]) -> Lowered:
        rest = {key: value for key, value in node.items() if key != "type"}
        annotations = {key: rest.pop(key) for key in list(rest) if key not in assertions(rest)}
        branches = [{**_relevant(rest, kind), "type": kind} for kind in kinds]
        return self._alternatives(branches, [path] * len(kinds), annotations, notes)

    def _union(self, node: JsonSchema, keyword: str, path: str, notes: list[str]) -> Lowered:
        siblings = {key: node[key] for key in assertions(node) if key != keyword}
        annotations = {key: value for key, value in node.items() if key not in assertions(node)}
        branches: list[Any] = []
        paths: list[str] = []
        for index, branch in enumerate(node[keyword]):
            try:
                branches.append(merge(branch, siblings, self.document) if siblings else branch)
                paths.append(join(path, keyword, index))
            except NothingFitsError:
                continue
        if not branches:
            raise NothingFitsError(keyword)
        exclusive = keyword == "oneOf" and "discriminator" not in node
        return self._alternatives(branches, paths, annotations, notes, exclusive=exclusive, at=path)

    def _alternatives(
        self,
        branches: list[Any],
        paths: list[str],
        annotations: JsonSchema,
        notes: list[str],
        *,
        exclusive: bool = False,
        at: str = "",
    ) -> Lowered:
        if any(is_free_form(branch) for branch in branches):
            reason = "accepts values of any type"
            return self.as_text(annotations, at or paths[0], "type", reason, notes)
        concrete: list[Branch] = []
        has_null = False
        for branch, path in zip(branches, paths, strict=True):
            if branch is False:
                continue
            if isinstance(branch, dict) and assertions(branch) == {"type": "null"}:
                has_null = True
                continue
            lowered = self.lower(branch, path)
            if not any(lowered == (other.wire, other.codec) for other in concrete):
                concrete.append(self._branch(lowered, branch))
        if not concrete:
            return self.lower({**annotations, "type": "null"}, paths[0])
        if exclusive and not self._all_apart(concrete):
            notes = [*notes, self.lose({"oneOf": True}, "oneOf", at)]
        wire, codec = self._joined(concrete)
        return self.finish(nullable(wire) if has_null else wire, codec, annotations, notes)

    def _joined(self, branches: list[Branch]) -> Lowered:
        if len(branches) == 1:
            return Lowered(branches[0].wire, branches[0].codec)
        confused = self._confused(branches)
        if confused:
            tagged = [self._tagged(b, i) if i in confused else b for i, b in enumerate(branches)]
            if self._confused(tagged):
                tagged = [self._tagged(branch, i) for i, branch in enumerate(branches)]
            branches = tagged
        wire: JsonSchema = {"anyOf": [branch.wire for branch in branches]}
        if all(branch.codec == SAME for branch in branches):
            return Lowered(wire, SAME)
        return Lowered(wire, ChoiceCodec(tuple(branches)))

    def _branch(self, lowered: Lowered, node: Any, accepts: Any = None) -> Branch:
        wire = lowered.wire

        def recognises() -> Draft202012Validator:
            schema = {**wire, "$defs": self.definitions}
            options = options_for(schema)
            return Draft202012Validator(
                limit_backtracking(schema), pattern_options=options, offline=True
            )

        make_accepts = accepts or (lambda: self.document.validator(node))
        return Branch(lowered.codec, wire, make_accepts, recognises)

    def _tagged(self, branch: Branch, index: int) -> Branch:
        name = f"option_{index + 1}"
        lowered = Lowered(closed_object({name: branch.wire}), Wrapped(name, branch.codec))
        return self._branch(lowered, None, branch.make_accepts)

    def _confused(self, branches: list[Branch]) -> set[int]:
        # Indexes of alternatives whose values might be decoded as another's.
        return {
            index
            for (i, one), (j, other) in combinations(enumerate(branches), 2)
            if one.codec != other.codec and not disjoint(one.wire, other.wire, self.definitions)
            for index in (i, j)
        }

    def _all_apart(self, branches: list[Branch]) -> bool:
        return all(
            disjoint(one.wire, other.wire, self.definitions)
            for one, other in combinations(branches, 2)
        )

    def _enumerated(self, node: JsonSchema, notes: list[str]) -> Lowered:
        values = [node["const"]] if "const" in node else node["enum"]
        accepts = self.document.validator(assertions(node))
        values = [value for value in values if accepts.is_valid(value)]
        if not values:
            raise NothingFitsError("enum")
        wire, codec = enumerated(values, self.profile)
        return self.finish(wire, codec, node, notes)

    def _spend(self, amount: int) -> None:
        self._spent += amount
        if self._spent > _BUDGET:
            raise TooLargeError


def _is_bare(node: JsonSchema) -> bool:
    return not any(key in node for key in ("properties", "additionalProperties")) and (
        "patternProperties" not in node
    )


def _relevant(node: JsonSchema, kind: str) -> JsonSchema:
    # Drops keywords that only apply to values of other types.
    own = set(_SCALARS.get(kind, ())) | {"enum", "const", "anyOf", "oneOf", "allOf", "$ref"}
    if kind in ("object", "array"):
        others = {keyword for group in _SCALARS.values() for keyword in group}
        return {key: value for key, value in node.items() if key not in others}
    return {key: value for key, value in node.items() if key in own}
