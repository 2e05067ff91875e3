"""Enums, models, dataclasses, typed dictionaries, named tuples, aliases: as source text.

Each maker writes one statement into the draft and returns what expressions may then
refer to. Names are settled beforehand, so that a definition may name a later one.
"""

from .draft import Draft, Named
from .expressions import Type, annotation, default, expression, field_arguments

FIELDS = ("a", "b", "name", "title", "count", "type_", "items", "first_name")


def define(d: Draft, name: str, kind: str) -> Named:
    """Write the definition and say how to refer to it."""
    return _MAKERS[kind](d, name)


def _enum(d: Draft, name: str) -> Named:
    base, values = d.pick(
        (
            ("enum.Enum", ("'x'", "1", "None", "2.5", "'y'")),
            ("enum.Enum", ("'x'", "'y'", "'z'")),
            ("str, enum.Enum", ("'x'", "'y'", "'z' 'z'")),
            ("int, enum.Enum", ("1", "-2", "1 << 4")),
            ("enum.StrEnum", ("'x'", "enum.auto()", "'y'")),
            ("enum.IntEnum", ("3", "enum.auto()", "1")),
            ("enum.Enum", ("enum.auto()", "7", "enum.auto()")),
        )
    )
    mixin, _, enum = base.rpartition(", ")
    lines = [f"class {name}({', '.join(filter(None, [mixin, d.use(enum)]))}):"]
    lines += _docstring(d)
    members = "ABCDE"[: d.count(1, len(values))]
    for member, value in zip(members, values, strict=False):
        text = d.use("enum.auto") + "()" if value == "enum.auto()" else value
        lines.append(f"    {member} = {text}")
    if d.rarely(6):
        lines += ["", "    @property", "    def label(self): return self.name.lower()"]
    d.add(name, "\n".join(lines))
    return Named(name, "enum", (f"{name}.A", f"{name}.{members[-1]}"))


def _model(d: Draft, name: str) -> Named:
    bases = [named.name for named in d.known if named.kind == "model"]
    base = d.evaluate(d.pick(bases)) if bases and d.rarely(4) else d.use("pydantic.BaseModel")
    head = f"class {name}({base}{', frozen=True' if d.rarely(12) else ''}):"
    lines = [head, *_docstring(d)]
    if d.rarely(3):
        lines.append(f"    model_config = {_config(d)}")
    lines += [f"    {field}: {_model_field(d, name)}" for field in d.some(FIELDS, 0, 4)]
    if len(lines) == 1:
        lines.append("    pass")
    if d.rarely(12):
        computed = annotation(d, 1).text
        lines += [f"    @{d.use('pydantic.computed_field')}", "    @property"]
        lines += [f"    def computed(self) -> {computed}: ..."]
    d.add(name, "\n".join(lines))
    return Named(name, "model")


def _config(d: Draft) -> str:
    camel = "pydantic.alias_generators.to_camel"
    key, value = d.pick(
        (
            ("extra", "'forbid'"),
            ("extra", "'allow'"),
            ("extra", "'ignore'"),
            ("alias_generator", camel),
            ("populate_by_name", "True"),
            ("title", "'Other'"),
            ("json_schema_extra", "{'examples': [{'a': 1}]}"),
        )
    )
    value = d.use(value) if value == camel else value
    return (
        f"{{'{key}': {value}}}" if d.rarely(4) else f"{d.use('pydantic.ConfigDict')}({key}={value})"
    )


def _model_field(d: Draft, owner: str) -> str:
    if d.rarely(8):
        return _recursion(d, owner)
    type_ = annotation(d, 2)
    if d.rarely(2):
        return type_.text if d.rarely(2) else f"{type_.text} = {default(d, type_)}"
    arguments = field_arguments(d, type_.kind, odd=False)
    arguments += d.some(
        ("alias='other'", "validation_alias='in'", "serialization_alias='out'"), 0, 1
    )
    head = d.pick(("", "...", "default", "default_factory=list"))
    head = default(d, type_) if head == "default" else head
    return (
        f"{type_.text} = {d.use('pydantic.Field')}({', '.join(filter(None, [head, *arguments]))})"
    )


def _recursion(d: Draft, owner: str) -> str:
    quoted = owner if d.lazy else repr(owner)
    optional, listed = d.use("typing.Optional"), d.pick(("list[{}]", "dict[str, {}]"))
    return d.pick((f"{optional}[{quoted}] = None", listed.format(quoted)))


def _dataclass(d: Draft, name: str) -> Named:
    path = d.pick(("dataclasses.dataclass",) * 3 + ("pydantic.dataclasses.dataclass",))
    keyword = d.rarely(5)
    decorator = f"@{d.use(path)}{'(kw_only=True)' if keyword else ''}"
    # Inheriting puts the base's fields first, and those may have defaults.
    bases = [named.name for named in d.known if named.kind == "dataclass"] if keyword else []
    base = f"({d.evaluate(d.pick(bases))})" if bases and d.rarely(2) else ""
    lines = [decorator, f"class {name}{base}:", *_docstring(d)]
    defaulted = False
    for field in d.some(FIELDS, 1, 4):
        if d.rarely(8):
            lines.append(f"    {field}: {d.use('typing.Optional')}[{name!r}] = None")
            defaulted = True
            continue
        type_ = annotation(d, 2)
        value = _immutable(d, type_) if (defaulted and not keyword) or d.rarely(3) else ""
        defaulted = defaulted or bool(value)
        lines.append(f"    {field}: {type_.text}{value and f' = {value}'}")
    d.add(name, "\n".join(lines))
    return Named(name, "dataclass")


def _immutable(d: Draft, type_: Type) -> str:
    """A default that `dataclass` takes; mutable ones go through a factory."""
    value = default(d, type_)
    if value.startswith(("[", "{", "set(")):
        return f"{d.use('dataclasses.field')}(default_factory=lambda: {value})"
    return value if d.rarely(2) else f"{d.use('dataclasses.field')}(default={value})"


def _typed_dict(d: Draft, name: str) -> Named:
    bases = [named.name for named in d.known if named.kind == "typed_dict"]
    base = d.use("typing_extensions.TypedDict")
    base = d.evaluate(d.pick(bases)) if bases and d.rarely(3) else base
    lines = [f"class {name}({base}{d.pick(('', ', total=False'))}):", *_docstring(d)]
    for field in d.some(FIELDS, 1, 4):
        text = annotation(d, 2).text if not d.rarely(8) else f"list[{name!r}]"
        wrapper = d.pick(("", "", "", "Required", "NotRequired"))
        text = f"{d.use(f'typing_extensions.{wrapper}')}[{text}]" if wrapper else text
        lines.append(f"    {field}: {text}")
    d.add(name, "\n".join(lines))
    return Named(name, "typed_dict", ("{'a': 1}", "{}"))


def _named_tuple(d: Draft, name: str) -> Named:
    lines = [f"class {name}({d.use('typing.NamedTuple')}):", *_docstring(d)]
    defaulted = False
    for field in d.some(FIELDS, 1, 3):
        type_ = annotation(d, 2)
        defaulted = defaulted or d.rarely(3)
        lines.append(f"    {field}: {type_.text}{f' = {default(d, type_)}' if defaulted else ''}")
    d.add(name, "\n".join(lines))
    return Named(name, "named_tuple")


def _alias(d: Draft, name: str) -> Named:
    type_ = expression(d, 3)
    if type_.text[0] in "'\"":
        type_ = Type("int", "int")
    style = d.pick((f"{name} = {{}}", f"{name}: {{alias}} = {{}}"))
    alias = d.use("typing.TypeAlias") if "{alias}" in style else ""
    d.add(name, style.replace("{alias}", alias).replace("{}", type_.text))
    return Named(name, type_.kind.removeprefix("quoted ") + " alias", type_.defaults)


def _alias_type(d: Draft, name: str) -> Named:
    type_ = expression(d, 2)
    d.add(name, f"{name} = {d.use('typing_extensions.TypeAliasType')}({name!r}, {type_.text})")
    return Named(name, "alias_type")


def _new_type(d: Draft, name: str) -> Named:
    type_ = expression(d, 1)
    if type_.text[0] in "'\"":
        type_ = Type("int", "int")
    d.add(name, f"{name} = {d.use('typing.NewType')}({name!r}, {type_.text})")
    return Named(name, type_.kind.removeprefix("quoted ") + " alias", type_.defaults)


def _generic(d: Draft, name: str) -> Named:
    """A generic model; its variable is defined beside it."""
    variable = f"{name}T"
    bound = d.pick(("", "", ", bound=int", ", int, str"))
    lines = [f"{variable} = {d.use('typing.TypeVar')}({variable!r}{bound})", ""]
    base, generic = d.use("pydantic.BaseModel"), d.use("typing.Generic")
    lines += [f"class {name}({base}, {generic}[{variable}]):", *_docstring(d)]
    shapes = (variable, f"list[{variable}]", f"{variable} | None = None", f"dict[str, {variable}]")
    for field in d.some(FIELDS, 1, 3):
        text = d.pick((*shapes, "int")) if not d.rarely(4) else annotation(d, 1).text
        lines.append(f"    {field}: {text}")
    d.add(name, "\n".join(lines))
    return Named(name, "generic")


def _tagged(d: Draft, name: str) -> Named:
    """A union of models with a discriminator field, under one name."""
    model, literal, field = (
        d.use("pydantic.BaseModel"),
        d.use("typing.Literal"),
        d.use("pydantic.Field"),
    )
    value = d.pick(("", " = {}"))
    lines = []
    for number, tag in enumerate(d.some(("'one'", "'two'", "3", "'four', 'five'"), 2, 3)):
        text = value.format(tag.split(",")[0])
        lines += [f"class {name}{number}({model}):", f"    kind: {literal}[{tag}]{text}"]
        lines += [f"    {extra}: {annotation(d, 1).text}" for extra in d.some(FIELDS, 0, 1)]
        lines += [""]
    members = ", ".join(
        f"{name}{number}" for number in range(sum("kind" in line for line in lines))
    )
    union = f"{d.use('typing.Union')}[{members}]"
    key = d.pick((f"{field}(discriminator='kind')", f"{d.use('pydantic.Discriminator')}('kind')"))
    lines.append(f"{name} = {d.use('typing.Annotated')}[{union}, {key}]")
    d.add(name, "\n".join(lines))
    return Named(name, "tagged")


def _root(d: Draft, name: str) -> Named:
    inner = expression(d, 2).text
    d.add(name, f"class {name}({d.use('pydantic.RootModel')}[{inner}]):\n    pass")
    return Named(name, "root")


def _variable(d: Draft, name: str) -> Named:
    bound = d.pick(("", ", bound={}", ", {}, str"))
    inner = expression(d, 1).text if bound else ""
    d.add(name, f"{name} = {d.use('typing.TypeVar')}({name!r}{bound.format(inner)})")
    return Named(name, "variable")


def _docstring(d: Draft) -> list[str]:
    return ['    """What it means.\n\n    At length.\n    """\n'] if d.rarely(5) else []


_MAKERS = {
    "enum": _enum,
    "model": _model,
    "dataclass": _dataclass,
    "typed_dict": _typed_dict,
    "named_tuple": _named_tuple,
    "alias": _alias,
    "alias_type": _alias_type,
    "new_type": _new_type,
    "generic": _generic,
    "tagged": _tagged,
    "root": _root,
    "variable": _variable,
}
KINDS = (
    *("enum", "model", "model", "dataclass", "typed_dict", "named_tuple", "alias", "alias"),
    *("alias_type", "new_type", "generic", "tagged", "root", "variable"),
)
