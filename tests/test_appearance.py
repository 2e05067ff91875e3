"""The names of Lucide's icons, their drawings, and the colors of tools."""

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln import appearance
from toolkiln.appearance import color_problem, icon_name, icon_problem, paint, svg

DRAWN = {"svg", "path", "circle", "rect", "line", "ellipse", "polyline", "polygon"}


@pytest.fixture
def unread() -> Iterator[None]:
    """Clear the cache of drawings before and after."""
    appearance._drawings.cache_clear()
    yield
    appearance._drawings.cache_clear()


@each_row(
    "icon", ["x", "folder-open", "trash-2", "axis-3d", "grid-2x2", "a-large-small", "text", "home"]
)
def test_an_icon_has_a_drawing_by_its_present_and_its_former_names(icon: str) -> None:
    drawing = svg(icon)

    assert icon_problem(icon) is None
    assert drawing is not None
    assert ElementTree.fromstring(drawing).get("stroke") == "currentColor"


def test_a_drawing_is_made_of_lines_only() -> None:
    drawings = [ElementTree.fromstring(svg(name) or "") for name in appearance._drawings()]

    tags = {element.tag.rpartition("}")[2] for drawing in drawings for element in drawing.iter()}
    assert len(drawings) > 1_500
    assert tags <= DRAWN


def test_a_drawing_is_in_the_color_of_its_tool() -> None:
    drawing = svg("tag", "bg-red-100")

    assert drawing is not None
    assert drawing.count("#ef4444") == 2
    assert "currentColor" not in drawing


@each_row("color", [None, "", "current", 'x" onload="alert(1)'])
def test_without_a_color_a_drawing_has_that_of_the_text_around_it(color: str | None) -> None:
    assert svg("folder", color) == svg("folder")


@each_row(
    "icon, name",
    [
        ("folder-open", "folder-open"),
        ("FolderOpen", "folder-open"),
        ("FolderOpenIcon", "folder-open"),
        ("LucideFolder", "folder"),
        ("Trash2", "trash-2"),
        ("Grid2x2", "grid-2x2"),
        ("FOLDER", None),
        ("Nonesuch", None),
    ],
)
def test_an_icon_may_be_named_like_its_component(icon: str, name: str | None) -> None:
    assert icon_name(icon) == name
    assert (icon_problem(icon) is None) is (name is not None)


@each_row(
    "icon, meant",
    [
        ("lucide:folder-open", "folder-open"),
        ("folder_open", "folder-open"),
        ("Folder Open", "folder-open"),
        ("folder--open", "folder-open"),
        ("FOLDER", "folder"),
    ],
)
def test_icon_problem_suggests_the_name_meant(icon: str, meant: str) -> None:
    assert (icon_problem(icon) or "").endswith(f"did you mean {meant!r}?")


@each_row(
    "icon",
    ["", "📁", "-", "<svg/>", "2", "a\n", "https://example.org/i.png", "data:image/png;base64,AA"],
)
def test_what_cannot_be_an_icon_is_a_problem(icon: str) -> None:
    assert "not the name of a Lucide icon" in (icon_problem(icon) or "")
    assert svg(icon) is None


def test_names_that_are_like_it_are_suggested() -> None:
    assert "did you mean 'cloud-rain'" in (icon_problem("cloud-rian") or "")


@pytest.mark.parametrize("package", ["no_such_package", "toolkiln"])
def test_without_the_drawings_nothing_is_drawn_and_no_name_is_wrong(
    unread: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, package: str
) -> None:
    monkeypatch.setattr(appearance, "_PACKAGE", package)

    assert svg("folder") is None
    assert icon_problem("folderr") is None
    assert "python-lucide" in caplog.text


@each_row(
    "color",
    ["#fff", "#3B82F6", "blue", "rebeccapurple", "blue-500", "slate-950", "bg-blue-100",
     "text-white", "bg-blue-100 dark:bg-blue-800/50"],
)  # fmt: skip
def test_colors_have_no_problem(color: str) -> None:
    assert color_problem(color) is None


@each_row(
    "color, meant",
    [("3b82f6", "#3b82f6"), ("0x3b82f6", "#3b82f6"), ("Blue", "blue"), ("turquiose", "turquoise")],
)
def test_color_problem_suggests_the_color_meant(color: str, meant: str) -> None:
    assert (color_problem(color) or "").endswith(f"did you mean {meant!r}?")


@each_row("color", ["", " ", "#ff", "#gggggg", "blue-501", "url(x)", "x" * 10_000, "#fff\n"])
def test_what_is_no_color_is_a_problem(color: str) -> None:
    assert "is not a color" in (color_problem(color) or "")


@each_row(
    "color, painted",
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
    for problem in (color_problem(text), icon_problem(text)):
        assert problem is None or problem.isprintable()
    assert set(paint(text) or "") <= set("#0123456789abcdefghijklmnopqrstuvwxyzABCDEF")
