"""Arguments reach the parameters they are meant for, whatever the signature looks like."""

import collections
import dataclasses
import functools
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypedDict, Unpack

import pytest

from tables import each_row
from toolkiln.runtime.binder import Binder
from toolkiln.runtime.conversion_scalars import BindingError

SOURCES = Path(__file__).parents[2] / "src"
_numbers = itertools.count()


def call(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    injected: dict[str, str] | None = None,
    injections: dict[str, Any] | None = None,
) -> Any:
    binder = Binder(function, injected=injected, pydantic=None)
    positional, keywords = binder.bind(arguments, injections or {})
    return function(*positional, **keywords)


@pytest.fixture
def written() -> Iterator[Callable[[str], ModuleType]]:
    """Modules made of source text, importable while the test runs."""
    made: list[str] = []

    def write(source: str) -> ModuleType:
        module = ModuleType(f"toolkiln_bound_{next(_numbers)}")
        sys.modules[module.__name__] = module
        made.append(module.__name__)
        code = compile(textwrap.dedent(source), "<tool>", "exec", dont_inherit=True)
        exec(code, vars(module))
        return module

    yield write
    for name in made:
        del sys.modules[name]


# Kinds of parameters


def test_every_kind_of_parameter_gets_its_argument() -> None:
    def tool(a: date, /, b: date, *rest: date, c: date, d: int = 4, **more: date) -> Any:
        return a, b, rest, c, d, more

    days = [date(1970, 1, n) for n in range(1, 7)]
    sent = {"a": 0, "b": 86400, "rest": [172800, 259200], "c": 345600, "x": 432000}

    assert call(tool, sent) == (
        *days[:2], tuple(days[2:4]), days[4], 4, {"x": days[5]}
    )  # fmt: skip


def test_positional_parameters_that_are_left_out_keep_their_defaults() -> None:
    def tool(a: int = 1, b: int = 2, /, c: int = 3, *rest: int) -> Any:
        return a, b, c, rest

    assert call(tool, {}) == (1, 2, 3, ())
    assert call(tool, {"b": 5}) == (1, 5, 3, ())
    assert call(tool, {"rest": [7]}) == (1, 2, 3, (7,))
    assert call(tool, {"c": 9, "rest": []}) == (1, 2, 9, ())


def test_a_positional_only_name_may_recur_among_the_keywords() -> None:
    def tool(a: int, /, rest: int = 0, **more: Any) -> Any:
        return a, more

    assert call(tool, {"a": 1, "b": {"a": 2}}) == (1, {"b": {"a": 2}})


class Options(TypedDict, total=False):
    day: date
    amount: Decimal


def test_unpacked_options_are_converted_one_by_one() -> None:
    def tool(a: int, **options: Unpack[Options]) -> Any:
        return a, options

    assert call(tool, {"a": 1, "day": 0}) == (1, {"day": date(1970, 1, 1)})
    with pytest.raises(BindingError, match=r"^amount: not a decimal number: 'x'$"):
        call(tool, {"a": 1, "amount": "x"})


def test_methods_are_bound_without_their_object() -> None:
    class Tools:
        def method(self, day: date) -> Any:
            return type(self), day

        @classmethod
        def of_class(cls, day: date) -> Any:
            return cls, day

        @staticmethod
        def static(day: date) -> Any:
            return day

    day = date(1970, 1, 1)
    assert call(Tools().method, {"day": 0}) == (Tools, day)
    assert call(Tools.of_class, {"day": 0}) == (Tools, day)
    assert call(Tools.static, {"day": 0}) == day


def test_decorated_functions_partials_and_callable_objects_are_bound() -> None:
    def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs), 2

        return wrapper

    @doubled
    @doubled
    def tool(day: date) -> date:
        return day

    class Callee:
        def __call__(self, day: date) -> date:
            return day

    assert call(tool, {"day": 0}) == ((date(1970, 1, 1), 2), 2)
    assert call(functools.partial(lambda a, b: (a, b), 1), {"b": 2}) == (1, 2)
    assert call(Callee(), {"day": 0}) == date(1970, 1, 1)


# What is injected


def test_injected_parameters_get_the_injected_values() -> None:
    def tool(ctx: Any, /, x: int, *, agent_state: Any, __user__: Any = "nobody") -> Any:
        return ctx, x, agent_state, __user__

    injected = {"ctx": "context", "agent_state": "agent_state", "__user__": "__user__"}
    context = object()

    given = {"context": context, "agent_state": {"a": 1}, "__user__": {"id": 1}}
    assert call(tool, {"x": 1}, injected, given) == (context, 1, {"a": 1}, {"id": 1})
    assert call(tool, {"x": 1}, injected, {}) == (None, 1, None, "nobody")


@each_row("name", ["ctx", "self"])
def test_no_argument_replaces_an_injected_value(name: str) -> None:
    class Tools:
        def by_position(self, ctx: Any, /, **more: Any) -> Any: ...

        def by_name(self, ctx: Any, **more: Any) -> Any: ...

    for function in (Tools().by_position, Tools().by_name):
        with pytest.raises(BindingError, match=f"{name}: no such parameter"):
            call(function, {"day": 1, name: 1}, {"ctx": "context"}, {"context": "real"})


def test_an_injected_name_that_the_function_lacks_is_no_argument() -> None:
    def tool(**more: Any) -> Any:
        return more

    assert call(tool, {"a": 1}, {"ctx": "context"}, {"context": 1}) == {"a": 1}
    with pytest.raises(BindingError, match="ctx: no such parameter"):
        call(tool, {"ctx": 1}, {"ctx": "context"}, {"context": 1})


# What does not fit the signature


def test_missing_unknown_and_wrong_arguments_are_named_at_once() -> None:
    def tool(a: int, b: date, c: int = 1) -> None: ...

    with pytest.raises(BindingError) as raised:
        call(tool, {"b": "x", "e": 1})

    assert str(raised.value) == "a: missing; b: not a date: 'x'; e: no such parameter"


def test_rest_arguments_must_be_an_array() -> None:
    def tool(*rest: date) -> Any:
        return rest

    with pytest.raises(BindingError, match=r"^rest: not an array: 'a'$"):
        call(tool, {"rest": "a"})
    with pytest.raises(BindingError, match=r"^rest\[1\]: not a date: 'a'$"):
        call(tool, {"rest": [0, "a"]})


# Defaults


@dataclasses.dataclass
class Settings:
    seen: list[int] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    left: list[int]
    right: int


@each_row(
    "default",
    [
        *([1], {"a": [1]}, {1}, bytearray(b"a"), collections.deque([1]), Settings([1])),
        *(([1], 2), Pair([1], 2), collections.defaultdict(list, a=[1]), collections.Counter("a")),
        [threading.Lock()],
    ],
)
@each_row("positional", [False, True])
def test_a_mutable_default_is_copied_for_each_call(default: Any, positional: bool) -> None:
    def by_position(x: Any = default, /) -> Any:
        return x

    def by_name(x: Any = default) -> Any:
        return x

    tool: Callable[..., Any] = by_position if positional else by_name
    binder = Binder(tool, pydantic=None)
    first, second = (
        tool(*args, **kwargs) for args, kwargs in (binder.bind({}, {}) for _ in range(2))
    )

    assert first == default
    assert type(first) is type(default)
    assert len({id(first), id(second), id(default)}) == 3


@dataclasses.dataclass(frozen=True)
class Missing:
    pass


@each_row("default", [object(), Missing(), None, "a", (1, 2), date(2024, 1, 1), int])
def test_a_default_known_by_identity_stays_itself(default: Any) -> None:
    def tool(x: Any = default) -> Any:
        return x

    assert call(tool, {}) is default


def test_null_is_passed_where_the_default_is_none() -> None:
    def tool(day: date = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return day

    assert call(tool, {"day": None}) is None


# Annotations


def test_annotations_as_text_are_resolved_where_they_were_written(
    written: Callable[[str], ModuleType],
) -> None:
    module = written(
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from datetime import date
        from enum import Enum
        from typing import Literal, NamedTuple, NotRequired, Optional, TypedDict

        def tool(
            later: Later, days: Optional[list[date]] = None, *rest: tuple[date, Later | None],
            kind: Literal["a", "date"] = "a", **more: Spread,
        ):
            return later, days, rest, kind, more

        @dataclass
        class Later:
            date: date = None
            next: Later | None = None

        class Spread(TypedDict):
            day: date
            pair: NotRequired[Pair]

        class Pair(NamedTuple):
            one: date
            two: Later

        class Tools:
            class Mode(Enum):
                A = "a"

            def run(self, mode: Mode, modes: "list[Mode]"):
                return mode, modes
        """
    )
    later, day = module.Later, date(1970, 1, 1)

    assert call(module.tool, {
        "later": {"date": 0, "next": {"date": 0}}, "days": [0], "rest": [[0, {"date": 0}]],
        "kind": "date", "x": {"day": 0, "pair": [0, {}]},
    }) == (
        later(day, later(day)), [day], ((day, later(day)),), "date",
        {"x": {"day": day, "pair": module.Pair(day, later())}},
    )  # fmt: skip
    mode = module.Tools.Mode.A
    assert call(module.Tools().run, {"mode": "a", "modes": ["a"]}) == (mode, [mode])
    assert Binder(module.Tools.run, pydantic=None).bind(
        {"self": 1, "mode": "a", "modes": []}, {}
    ) == ((), {"self": 1, "mode": mode, "modes": []})


def test_names_that_exist_for_the_type_checker_only_stand_for_anything(
    written: Callable[[str], ModuleType],
) -> None:
    module = written(
        """
        from __future__ import annotations
        from datetime import date
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from somewhere import Thing
            import far

        def tool(a: Thing, b: list[Thing | None], c: dict[str, date] | Thing, d: far.Thing,
                 e: dict[date, Thing], f: broken syntax if False else 1):
            return a, b, c, d, e, f
        """.replace("broken syntax if False else 1", "'not an ( expression'")
    )

    assert call(module.tool, {
        "a": {"x": 1}, "b": ["x", None], "c": {"a": 0}, "d": "d", "e": {"1970-01-01": "e"}, "f": 1,
    }) == ({"x": 1}, ["x", None], {"a": 0}, "d", {date(1970, 1, 1): "e"}, 1)  # fmt: skip


def test_an_annotation_of_any_kind_is_survived() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("eq")

        __hash__ = None  # type: ignore[assignment]

    def tool(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a, b, c, d

    recursive: list[Any] = []
    recursive.append(recursive)
    tool.__annotations__ = {"a": Hostile(), "b": recursive, "c": "c", "d": list[Hostile()]}  # type: ignore[misc]

    assert call(tool, {"a": 1, "b": 2, "c": 3, "d": [4]}) == (1, 2, 3, [4])


# What it costs


def test_a_tool_of_plain_types_needs_none_of_the_costly_modules() -> None:
    script = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})
from toolkiln.runtime.binder import Binder
def tool(a: str, b: "int" = 1, c: float | None = None, d: list[str] = (), *e: int, **f): ...
found = Binder(tool, injected={{"a": "context"}}).bind({{"b": 1.0, "c": 2, "e": [1], "x": 3}}, {{}})
assert found == ((None, 1, 2.0, (), 1), {{"x": 3}}), found
costly = {{"typing", "inspect", "dataclasses", "enum", "re", "datetime", "decimal", "pydantic"}}
print(sorted(costly & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )

    assert (run.stdout, run.stderr) == ("[]\n", "")
