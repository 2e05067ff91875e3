"""Which texts are colors, and what is painted for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkiln.appearance import color_problem, paint


@pytest.mark.parametrize(
    "color",
    [
        "#fff",
        "#3B82F6",
        "blue",
        "rebeccapurple",
        "blue-500",
        "slate-950",
        "bg-blue-100",
        "text-white",
        "bg-blue-100 dark:bg-blue-800/50",
    ],
)
def test_colors_have_no_problem(color: str) -> None:
    assert color_problem(color) is None


@pytest.mark.parametrize(
    ("color", "meant"),
    [("3b82f6", "#3b82f6"), ("0x3b82f6", "#3b82f6"), ("Blue", "blue"), ("turquiose", "turquoise")],
)
def test_color_problem_suggests_the_color_meant(color: str, meant: str) -> None:
    assert (color_problem(color) or "").endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize(
    "color", ["", " ", "#ff", "#gggggg", "blue-501", "url(x)", "x" * 10_000, "#fff\n"]
)
def test_what_is_no_color_is_a_problem(color: str) -> None:
    assert "is not a color" in (color_problem(color) or "")


@pytest.mark.parametrize(
    ("color", "painted"),
    [
        ("#3B82F6", "#3B82F6"),
        ("rebeccapurple", "rebeccapurple"),
        ("emerald", "#10b981"),
        ("blue-50", "#3b82f6"),
        ("bg-blue-100 dark:bg-blue-800/50", "#3b82f6"),
        ("text-white", "white"),
        ("transparent", None),
        ("text-current", None),
        ("blurple", None),
        ('red" onload="alert(1)', None),
    ],
)
def test_a_color_is_painted_by_its_hue(color: str, painted: str | None) -> None:
    assert paint(color) == painted


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    problem = color_problem(text)

    assert problem is None or problem.isprintable()
    assert set(paint(text) or "") <= set("#0123456789abcdefghijklmnopqrstuvwxyzABCDEF")
