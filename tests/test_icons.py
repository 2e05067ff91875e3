"""The names of Lucide's icons, and their drawings."""

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkiln import appearance
from toolkiln.appearance import icon_problem, svg

DRAWN = {"svg", "path", "circle", "rect", "line", "ellipse", "polyline", "polygon"}


@pytest.fixture
def unread() -> Iterator[None]:
    """Have the drawings read anew, before and after."""
    appearance._drawings.cache_clear()
    yield
    appearance._drawings.cache_clear()


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("color", [None, "", "current", 'x" onload="alert(1)'])
def test_without_a_color_a_drawing_has_that_of_the_text_around_it(color: str | None) -> None:
    assert svg("folder", color) == svg("folder")


@pytest.mark.parametrize(
    ("icon", "meant"),
    [
        ("FolderOpen", "folder-open"),
        ("FolderOpenIcon", "folder-open"),
        ("LucideFolder", "folder"),
        ("lucide:folder-open", "folder-open"),
        ("folder_open", "folder-open"),
        ("Folder Open", "folder-open"),
        ("Trash2", "trash-2"),
        ("Grid2x2", "grid-2x2"),
        ("folder--open", "folder-open"),
        ("FOLDER", "folder"),
    ],
)
def test_icon_problem_suggests_the_name_meant(icon: str, meant: str) -> None:
    assert (icon_problem(icon) or "").endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize("icon", ["", "📁", "-", "<svg/>", "2", "a\n"])
def test_what_cannot_be_an_icon_is_a_problem(icon: str) -> None:
    assert "not the name of a Lucide icon" in (icon_problem(icon) or "")


def test_names_that_are_like_it_are_suggested() -> None:
    problem = icon_problem("cloud-rian")

    assert problem is not None
    assert "did you mean 'cloud-rain'" in problem


@pytest.mark.parametrize("icon", ["https://example.org/i.png", "data:image/png;base64,AAAA"])
def test_an_address_is_no_icon(icon: str) -> None:
    assert icon_problem(icon)
    assert svg(icon) is None


@pytest.mark.parametrize("package", ["no_such_package", "toolkiln"])
def test_without_the_drawings_nothing_is_drawn_and_no_name_is_wrong(
    unread: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, package: str
) -> None:
    monkeypatch.setattr(appearance, "_PACKAGE", package)

    assert svg("folder") is None
    assert icon_problem("folderr") is None
    assert "python-lucide" in caplog.text


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    problem = icon_problem(text)

    assert problem is None or problem.isprintable()
