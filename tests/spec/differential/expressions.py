"""Type expressions, constraints and default values as source text.

Knows which constraints and values suit which kind of type, and now and then picks
ones that do not: pydantic has an answer for most of those as well.
"""

from dataclasses import dataclass

from .draft import Draft

_DEFAULTS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "-7", "10 * 60", "2 ** 8", "True"),
    "float": ("0.5", "1", "-1.5", "1e3", "3 / 4"),
    "bool": ("True", "False"),
    "str": ("''", "'a'", "'a' 'b'", "'x' + 'y'", "'\\n\"é'"),
    "bytes": ("b'a'", "b''"),
    "decimal": ("1", "'1.5'"),
    "none": ("None",),
    "any": ("None", "1", "[1, 'a']"),
    "list": ("[]", "[1, -2]", "['a']", "()", "None"),
    "set": ("{1}", "set()", "frozenset()", "frozenset({2})"),
    "tuple": ("()", "(1, 'a')", "(1, (2, None))"),
    "dict": ("{}", "{'a': 1}", "{'title': [1, {'b': None}]}"),
}

_NUMBERS = (("gt", "0"), ("ge", "1"), ("lt", "100"), ("le", "99"), ("multiple_of", "3"))
_FLOATS = (("gt", "0.5"), ("ge", "-1.5"), ("lt", "10"), ("le", "9.75"), ("multiple_of", "0.25"))
_SIZES = (("min_length", "1"), ("max_length", "9"))
_CONSTRAINTS: dict[str, tuple[tuple[str, str], ...]] = {
    "int": _NUMBERS,
    "float": _FLOATS,
    "decimal": (*_NUMBERS, ("max_digits", "6"), ("decimal_places", "2")),
    "str": (*_SIZES, ("pattern", "'^a+$'")),
    "bytes": _SIZES,
    "list": _SIZES,
    "set": _SIZES,
    "tuple": _SIZES,
    "dict": _SIZES,
    "any": (("gt", "0"), ("min_length", "1")),
}
_MARKS = {
    "gt": "Gt",
    "ge": "Ge",
    "lt": "Lt",
    "le": "Le",
    "multiple_of": "MultipleOf",
    "min_length": "MinLen",
    "max_length": "MaxLen",
}
_TEXTS = (
    ("description", "'What it is.'"),
    ("title", "'Title'"),
    ("examples", "[1, 'a']"),
    ("deprecated", "True"),
    ("json_schema_extra", "{'unit': 'm'}"),
)

_LEAVES: tuple[tuple[str, str], ...] = (
    *(("int", "int"), ("str", "str"), ("float", "float"), ("bool", "bool")) * 4,
    *(("typing.Any", "any"), ("None", "none"), ("bytes", "bytes"), ("object", "other")),
    *((f"datetime.{name}", "date") for name in ("datetime", "date", "time", "timedelta")),
    *(("uuid.UUID", "other"), ("decimal.Decimal", "decimal"), ("pathlib.Path", "other")),
    *(("ipaddress.IPv4Address", "mute"), ("fractions.Fraction", "other")),
    *(("list", "list"), ("dict", "dict"), ("set", "set"), ("tuple", "tuple")),
    *(("typing.List", "list"), ("typing.Dict", "dict"), ("collections.abc.Mapping", "dict")),
    *((f"pydantic.{name}", "other") for name in ("EmailStr", "HttpUrl", "AnyUrl", "SecretStr")),
    *((f"pydantic.{name}", "other") for name in ("Json", "UUID4")),
    *((f"pydantic.{name}", "other") for name in ("PastDate", "AwareDatetime", "FilePath")),
    *((f"pydantic.{name}", "other") for name in ("UUID1", "StrictStr")),
    *(("pydantic.IPvAnyAddress", "mute"), ("pydantic.JsonValue", "mute")),
    *(("pydantic.PositiveInt", "int"), ("pydantic.NonNegativeInt", "int")),
    *(("call", "pydantic.conint gt=0, multiple_of=5"), ("call", "pydantic.confloat ge=0.5")),
    *(("call", "pydantic.constr min_length=1, pattern='^x'"), ("call", "pydantic.condate ")),
    *(("call", "pydantic.conlist int, min_length=1"), ("call", "pydantic.conset str")),
    *(("call", "pydantic.condecimal max_digits=5, decimal_places=2"),),
    *(("pydantic.NegativeFloat", "float"), ("pydantic.StrictInt", "int")),
)
_LISTS = ("list", "typing.List", "collections.abc.Sequence", "typing.Sequence", "collections.deque")
_SETS = ("set", "frozenset", "typing.Set", "typing.FrozenSet", "collections.abc.Set")
_DICTS = (
    *("dict", "typing.Dict", "collections.abc.Mapping", "typing.Mapping"),
    *("collections.OrderedDict", "collections.abc.MutableMapping"),
)
_KEYS = ("str", "str", "str", "int", "uuid.UUID", "datetime.date", "bool", "typing.Any")
_LITERALS = ("'a'", "'b'", "1", "-2", "0", "True", "False", "None", "b'c'", "'it\\'s'")


@dataclass(frozen=True)
class Type:
    """A type expression and what kind of values it has."""

    text: str
    kind: str
    defaults: tuple[str, ...] = ()


def annotation(d: Draft, depth: int = 3) -> Type:
    """A type as an annotation: quoted now and then, as a whole."""
    if not d.lazy and d.rarely(8):
        with d.read_late():
            inner = expression(d, depth)
        return Type(repr(inner.text), inner.kind, inner.defaults)
    with d.read_late(d.lazy):
        return expression(d, depth)


def expression(d: Draft, depth: int) -> Type:
    """Any type expression, at most this deep."""
    if depth <= 0:
        return _leaf(d)
    makers = (_leaf, _leaf, _named, _named, _literal)
    nesting = (_optional, _listed, _mapped, _united, _annotated, _annotated, _tupled, _gathered)
    choice = d.count(0, len(makers) + len(nesting) - 1)
    if choice < len(makers):
        return makers[choice](d)
    return nesting[choice - len(makers)](d, depth - 1)


def default(d: Draft, type_: Type) -> str:
    """An expression for a default value, mostly one that fits."""
    if d.rarely(10):
        return d.pick(("None", "-1", "'odd'", "[{'a': (1, 2)}]", "1.25"))
    options = type_.defaults or _DEFAULTS.get(type_.kind, ("None",))
    text = d.pick(options)
    name = text.split(".")[0].split("(")[0]
    if any(named.name == name for named in d.known):
        d.evaluate(name)
    return text


def field_arguments(d: Draft, kind: str, *, odd: bool = True) -> list[str]:
    """Keyword arguments for `Field`: constraints that suit the kind, or not, and texts."""
    if "mute" in kind.split():  # pydantic forgets the constraints of these; the reader keeps it
        return []
    # Of a generic model so constrained, pydantic writes the same definition twice.
    if odd and "generic" not in kind and d.rarely(16):
        kind = d.pick(tuple(_CONSTRAINTS))
    constraints = d.some(_CONSTRAINTS.get(kind, ()), 0, 2)
    texts = d.some(_TEXTS, 0, 1) if d.rarely(3) or not constraints else []
    return [f"{key}={value}" for key, value in [*constraints, *texts]]


def _leaf(d: Draft) -> Type:
    path, kind = d.pick(_LEAVES)
    if path == "call":
        path, arguments = kind.split(" ", 1)
        return Type(f"{d.use(path)}({arguments})", "other")
    return Type(d.use(path) if path != "None" else path, kind)


def _named(d: Draft) -> Type:
    """A definition of this module; one further down only where that is read late."""
    if d.ahead and d.rarely(4):
        named = d.pick(d.ahead)
        return Type(named.name if d.late else repr(named.name), f"quoted {named.kind}")
    if not d.known:
        return _leaf(d)
    named = d.pick(d.known)
    text = named.name
    if named.kind == "generic" and not d.rarely(4):
        text += f"[{d.pick(('int', 'str', 'list[int]', 'dict[str, float]', 'None'))}]"
    if not d.late and d.rarely(6):
        return Type(repr(text), f"quoted {named.kind}", named.defaults)
    d.refer(named.name)
    return Type(text, named.kind, named.defaults)


def _literal(d: Draft) -> Type:
    members = [(f"{n.name}.A", n.name) for n in d.known if n.kind == "enum"]
    values = d.some(_LITERALS, 1, 3)
    if members and d.rarely(4):
        text, name = d.pick(members)
        d.refer(name)
        # A member beside its own value: pydantic lists that value twice, the reader once.
        values = [text, "'other'"] if d.rarely(2) else [text]
    return Type(f"{d.use('typing.Literal')}[{', '.join(values)}]", "literal", (values[0],))


def _optional(d: Draft, depth: int) -> Type:
    inner = expression(d, depth)
    spellings = ["Optional[{}]", "Union[{}, None]", "Union[None, {}]"]
    if not inner.text.startswith(("'", '"', "None")):
        spellings[:0] = ["{} | None", "{} | None", "None | {}"]
    spelling = d.pick(spellings)
    head, bracket, _ = spelling.partition("[")
    text = d.use(f"typing.{head}") + spelling[len(head) :] if bracket else spelling
    return Type(text.format(inner.text), inner.kind, ("None", *inner.defaults))


def _united(d: Draft, depth: int) -> Type:
    members = [expression(d, depth) for _ in range(d.count(2, 3))]
    texts = [member.text for member in members]
    plain = not any(text.startswith(("'", '"', "None")) for text in texts)
    text = " | ".join(texts) if plain and d.rarely(2) else ""
    text = text or f"{d.use('typing.Union')}[{', '.join(texts)}]"
    return Type(text, members[0].kind, members[0].defaults)


def _listed(d: Draft, depth: int) -> Type:
    return Type(f"{d.use(d.pick(_LISTS))}[{expression(d, depth).text}]", "list")


def _gathered(d: Draft, depth: int) -> Type:
    if d.rarely(3):
        return Type(f"{d.use('collections.abc.Iterable')}[{expression(d, depth).text}]", "other")
    return Type(f"{d.use(d.pick(_SETS))}[{expression(d, depth).text}]", "set")


def _mapped(d: Draft, depth: int) -> Type:
    enums = [named.name for named in d.known if named.kind == "enum"]
    key = d.refer(d.pick(enums)) if enums and d.rarely(4) else d.use(d.pick(_KEYS))
    return Type(f"{d.use(d.pick(_DICTS))}[{key}, {expression(d, depth).text}]", "dict")


def _tupled(d: Draft, depth: int) -> Type:
    head = d.use(d.pick(("tuple", "typing.Tuple")))
    if d.rarely(3):
        return Type(f"{head}[{expression(d, depth).text}, ...]", "tuple")
    items = [expression(d, depth).text for _ in range(d.count(0, 3))]
    return Type(f"{head}[{', '.join(items) or '()'}]", "tuple")


def _annotated(d: Draft, depth: int) -> Type:
    inner = expression(d, depth)
    metadata = []
    # Odd constraints on names: pydantic moves them into copies of definitions in many ways.
    odd = not any(named.name in inner.text for named in [*d.known, *d.ahead])
    arguments = field_arguments(d, inner.kind, odd=odd)
    if arguments and d.rarely(2):
        key, _, value = arguments[0].partition("=")
        if key in _MARKS:
            metadata.append(f"{d.use(f'annotated_types.{_MARKS[key]}')}({value})")
            arguments = arguments[1:]
    if arguments or not metadata:
        metadata.append(f"{d.use('pydantic.Field')}({', '.join(arguments)})")
    return Type(
        f"{d.use('typing.Annotated')}[{', '.join([inner.text, *metadata])}]",
        inner.kind,
        inner.defaults,
    )
