"""Objects that lie, raise, never end or run code: each becomes a value and a note."""

import collections
import json
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field, model_serializer

from tables import each_row
from toolkiln.runtime.serialise import to_json

from .test_serialise import strict


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def method(*_: object, **__: object) -> Any:
        raise error("boo")

    return method


def returning(value: object) -> Callable[..., Any]:
    return lambda *_: value


HOOKS = (
    "__repr__", "__str__", "__len__", "__iter__", "__next__", "__getitem__", "__contains__",
    "__hash__", "__eq__", "__lt__", "__bool__", "__int__", "__float__", "__index__", "__bytes__",
    "__format__", "__getattr__", "__dir__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__class__", "__dict__", "__instancecheck__", "__sizeof__", "__fspath__", "__iter__",
    "items", "keys", "values", "get", "encode", "isascii", "isoformat", "tolist", "item",
    "model_dump", "dict", "to_dict", "_asdict", "value", "name", "__pydantic_serializer__",
    "__dataclass_fields__", "__attrs_attrs__", "__array__", "__name__", "__qualname__",
)  # fmt: skip
MARKS = {"__pydantic_serializer__", "__dataclass_fields__", "__attrs_attrs__"}
BASES: tuple[tuple[type, object], ...] = (
    (object, None), (str, "text"), (int, 7), (float, 1.5), (dict, {"a": 1}), (list, [1, 2]),
    (tuple, (1, 2)), (set, {1, 2}), (frozenset, {1}), (bytes, b"b"), (bytearray, b"b"),
    (complex, 1j), (collections.OrderedDict, {"a": 1}), (collections.deque, [1]),
    (collections.UserDict, {"a": 1}), (collections.UserList, [1]), (Exception, "text"),
)  # fmt: skip


@given(
    st.sampled_from(BASES),
    st.dictionaries(
        st.sampled_from(HOOKS),
        st.sampled_from([ValueError, SystemExit, KeyboardInterrupt, MemoryError, RecursionError])
        | st.integers() | st.none(),
        max_size=12,
    ),
)  # fmt: skip
def test_a_class_with_any_hooks_broken_ends_in_a_value(
    base: tuple[type, object], hooks: dict[str, Any]
) -> None:
    kind, content = base
    namespace = {
        name: raising(how) if isinstance(how, type) else property(returning(how))
        for name, how in hooks.items()
    }
    try:
        cls = types.new_class("Broken", (kind,), {}, lambda ns: ns.update(namespace))
        value = cls() if content is None else cls(content)
    except BaseException:  # noqa: BLE001 - it cannot even be made
        return

    strict(value)
    strict({"a": [value]})
    if kind in {str, int, float}:
        assert to_json(value).value == content or MARKS & hooks.keys()


@each_row("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_a_repr_that_raises_anything_is_caught(error: type[BaseException]) -> None:
    foo = type("Foo", (), {"__repr__": raising(error)})()

    assert strict([foo]) == (
        ["<unprintable Foo>"],
        ("$[0]: neither Foo nor its repr can be sent as JSON",),
    )


def test_subclasses_are_read_with_the_methods_of_their_base() -> None:
    lie = {name: lambda *_: "lie" for name in ("__str__", "__repr__", "__format__")}
    text = type("Text", (str,), {**lie, "encode": raising(OSError), "isascii": lambda _: True})
    number = type("Number", (int,), {**lie, "__int__": lambda _: 9, "bit_length": lambda _: 1})
    real = type("Real", (float,), {**lie, "__float__": lambda _: 9.0})
    table = type("Table", (dict,), {"items": raising(OSError), "__iter__": raising(OSError)})
    array = type("Array", (list,), {"__iter__": raising(OSError), "__len__": lambda _: 10**9})

    value, notes = strict([text("a\ud800"), number(5), real(1.5), table(a=1), array([1])])

    assert value == ["a�", 5, 1.5, {"a": 1}, [1]]
    assert [type(item) for item in value] == [str, int, float, dict, list]
    assert len(notes) == 1


def test_a_class_that_lies_about_itself_is_seen_as_what_it_is() -> None:
    liar = type("Liar", (), {"__class__": property(lambda _: dict), "__repr__": lambda _: "liar"})

    assert strict(liar())[0] == "liar"


def test_a_metaclass_that_raises_for_everything_changes_nothing() -> None:
    class Meta(type):
        __getattribute__ = raising(SystemExit)
        __eq__ = raising(SystemExit)
        __hash__ = raising(SystemExit)
        __instancecheck__ = raising(SystemExit)
        __subclasscheck__ = raising(SystemExit)
        __repr__ = raising(SystemExit)

    odd = types.new_class("Odd", (dict,), {"metaclass": Meta})
    strange = types.new_class("Strange", (), {"metaclass": Meta})

    assert strict(dict.__new__(odd)) == ({}, ())
    assert strict(object.__new__(strange))[0].endswith("Strange object>")
    assert strict(strange)[0] == "<unprintable Meta>"


def test_an_object_that_answers_every_attribute_is_sent_as_its_repr() -> None:
    class Yes:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *_: object, **__: object) -> Any:
            return self

    value, notes = strict(Yes())

    assert value.endswith("Yes object>")
    assert notes == ("$: Yes cannot be sent as JSON; its repr was sent",)


def test_a_repr_contains_no_address_and_is_bounded() -> None:
    class Foo:
        pass

    class Long:
        def __repr__(self) -> str:
            return "x" * 50_000_000

    value, _ = strict([Foo(), [Foo, len, Foo().__repr__, lambda: 0], Long()])

    assert "0x" not in json.dumps(value)
    assert len(value[2]) == 1_000
    assert strict(Foo()) == strict(Foo())


def test_a_repr_of_a_lying_text_type_is_taken_as_plain_text() -> None:
    lying = type("Lying", (str,), {"__len__": lambda _: 0, "__getitem__": raising(OSError)})
    foo = type("Foo", (), {"__repr__": lambda _: lying("é\udc00")})

    assert strict(foo())[0] == "é�"


def test_a_type_whose_name_is_hostile_is_named_all_the_same() -> None:
    foo = type("Foo", (), {})
    hooks = {"__str__": raising(SystemExit), "__format__": raising(SystemExit)}
    foo.__name__ = type("Name", (str,), hooks)("N" * 10_000)

    assert len(strict(foo())[1][0]) < 200


def test_pickling_hooks_are_never_called(tmp_path: Any) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "gone off"),)

        __reduce_ex__ = __getstate__ = __deepcopy__ = __copy__ = __reduce__  # type: ignore[assignment]

    strict([Bomb(), {"a": Bomb()}, (Bomb(),)])

    assert list(tmp_path.iterdir()) == []


def test_a_generator_that_raises_sends_what_came_before() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise SystemExit

    assert strict({"n": numbers(), "after": 1}) == (
        {"n": [1, 2], "after": 1},
        ("$.n: reading failed with SystemExit; the items before it were sent",),
    )


def test_endless_and_ever_deeper_containers_are_cut() -> None:
    class Endless(Sequence[int]):
        def __getitem__(self, at: Any) -> Any:
            return at

        def __len__(self) -> int:
            return 0

    class Deeper(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return Deeper()

        def __iter__(self) -> Iterator[str]:
            while True:
                yield "k"

        def __len__(self) -> int:
            raise KeyboardInterrupt

    assert "larger than" in strict(Endless(), characters=1000)[1][0]
    assert "nested deeper" in strict(Deeper(), characters=1000)[1][0]


def test_a_mapping_with_a_value_that_cannot_be_read_keeps_the_others() -> None:
    class Half(collections.UserDict[str, int]):
        def __getitem__(self, key: str) -> int:
            if key == "b":
                raise KeyboardInterrupt
            return super().__getitem__(key)

    value, notes = strict(Half(a=1, b=2, c=3))

    assert value == {"a": 1, "b": None, "c": 3}
    assert notes == ("$.b: could not be read (KeyboardInterrupt); sent as null",)


def test_a_dataclass_with_a_field_that_cannot_be_read_keeps_the_others() -> None:
    @dataclass
    class Record:
        good: int = 1
        never: int = field(init=False)

        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                raise SystemExit
            return object.__getattribute__(self, name)

    assert strict(Record()) == (
        {"good": 1, "never": None},
        ("$.never: could not be read (AttributeError); sent as null",),
    )


def test_an_enum_that_is_its_own_value_ends() -> None:
    class Loop(Enum):
        A = 1

    Loop.A._value_ = Loop.A  # type: ignore[assignment]

    assert strict(Loop.A)[1]
    assert strict({Loop.A: 1})[1]


def test_keys_that_are_hostile_become_text() -> None:
    class Key:
        __repr__ = raising(SystemExit)

    class Unequal:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            raise KeyboardInterrupt

    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)

    laughs: Any = "ha" * 1_000
    for _ in range(4):
        laughs = (laughs,) * 10

    keys = [Key(), Unequal(), (Key(), "\ud800"), deep, laughs, tuple(range(100_000)), 10**5000]
    for key in keys:
        value, _ = strict({key: 1})
        assert len(next(iter(value))) < 5_000


def test_a_model_whose_serialiser_raises_is_sent_field_by_field() -> None:
    class Raises(BaseModel):
        a: int = 1

        @computed_field  # type: ignore[prop-decorator]
        @property
        def b(self) -> int:
            raise SystemExit

    value, notes = strict([Raises()])

    assert value == [{"a": 1}]
    assert notes == ("$[0]: Raises could not be serialised (SystemExit); fields were sent",)


def test_a_model_that_serialises_to_garbage_is_walked() -> None:
    class Garbage(BaseModel):
        @model_serializer(mode="plain")
        def dump(self) -> Any:
            return [float("nan"), "\ud800", {object(): object}]

        def model_dump(self, **_: Any) -> Any:
            raise SystemExit

    value, notes = strict(Garbage())

    assert value == [None, "�", {"<object object>": "<class 'object'>"}]
    assert len(notes) == 4


def test_a_model_that_contains_itself_is_cut() -> None:
    class Node(BaseModel):
        name: str
        next: Any = None

    node = Node(name="n")
    node.next = [node]

    assert strict(node)[1] == ("$.next[0].next[0]: contains itself; sent as null",)


def test_a_chain_of_thousands_of_models_is_cut_at_the_depth() -> None:
    class Node(BaseModel):
        next: Any = None

    node = Node()
    for _ in range(20_000):
        node = Node.model_construct(next=node)

    assert any("nested deeper" in note for note in strict(node)[1])


def test_a_released_memoryview_and_a_closed_file_end_in_notes(tmp_path: Any) -> None:
    view = memoryview(b"abc")
    view.release()
    file = (tmp_path / "f").open("w")
    file.close()

    value, notes = strict([view, file])

    assert len(value) == len(notes) == 2


def test_modules_replaced_by_hostile_objects_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hostile = type("Hostile", (), {"__getattr__": raising(SystemExit)})()
    pretender = types.SimpleNamespace(Decimal=hostile, UUID=int, generic=object)
    for name in ("decimal", "uuid", "numpy", "pandas", "fractions"):
        monkeypatch.setitem(sys.modules, name, pretender if name < "n" else hostile)

    strict([object(), {1, "a"}, 1j])
