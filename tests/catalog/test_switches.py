"""Switches: tools, toolkits and methods that are offered or not, stored and applied live."""

from typing import Any

import pytest

from tables import each_row
from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.manifest import MANIFEST
from toolkiln.errors import InputError, UnknownTool

from .conftest import Workshop, tool

KIT = '''
from agentpress.tool import Tool, method_metadata, tool_metadata

@tool_metadata(display_name="Files", description="Works with files.", is_core=False)
class Files(Tool):
    @method_metadata()
    def read_it(self, path: str) -> str:
        """Read."""
        return path

    @method_metadata()
    def write_it(self, path: str) -> str:
        """Write."""
        return path

    @method_metadata()
    def drop_it(self, path: str) -> str:
        """Drop."""
        return path
'''
CORE = '''
from toolkiln import tool

@tool(is_core=True)
def vital() -> int:
    """Needed."""
    return 1
'''
ALL = {"read_it", "write_it", "drop_it"}


@pytest.fixture
def admissions(shop: Workshop) -> Admissions:
    shop.add("files.py", KIT)
    shop.add("core.py", CORE)
    shop.add("single.py")
    return shop.admissions()


def offered(catalog: Catalog) -> set[str]:
    return set(catalog.snapshot.tools) - {"vital"}


def kit_name(catalog: Catalog) -> str:
    kit = catalog.snapshot.served["read_it"].reading.tools[0].toolkit
    assert kit
    return kit.name


KIT_NAME = "the toolkit"
PARTLY_OFF = {"enabled": False, "methods": {"drop_it": False}}


@each_row(
    "steps, left",
    [
        ([("single", False)], ALL),
        ([("single", False), ("single", True)], {*ALL, "single"}),
        ([(KIT_NAME, True)], {*ALL, "single"}),
        ([(KIT_NAME, False)], {"single"}),
        ([(KIT_NAME, {})], {*ALL, "single"}),
        ([(KIT_NAME, {"enabled": True})], {*ALL, "single"}),
        ([(KIT_NAME, {"enabled": False})], {"single"}),
        ([(KIT_NAME, {"methods": {"read_it": False}})], {"write_it", "drop_it", "single"}),
        ([(KIT_NAME, {"methods": {"read_it": True}})], {*ALL, "single"}),
        ([(KIT_NAME, {"enabled": False, "methods": {"read_it": True}})], {"single"}),
        ([(KIT_NAME, {"enabled": True, "methods": dict.fromkeys(ALL, False)})], {"single"}),
        ([(method, False) for method in sorted(ALL)], {"single"}),
        # Enabling a method of a disabled toolkit enables that one alone.
        ([(KIT_NAME, False), ("drop_it", True)], {"drop_it", "single"}),
        ([(KIT_NAME, PARTLY_OFF), ("drop_it", True)], {"drop_it", "single"}),
        ([(KIT_NAME, PARTLY_OFF), ("read_it", False)], {"single"}),
        ([("read_it", False), (KIT_NAME, True)], {*ALL, "single"}),
        ([("Files.read_it", False)], {"write_it", "drop_it", "single"}),
    ],
)
def test_tools_toolkits_and_methods_are_switched_off_and_on(
    shop: Workshop, admissions: Admissions, steps: list[tuple[str, Any]], left: set[str]
) -> None:
    kit = kit_name(shop.catalog())
    for name in (kit, "single"):
        admissions.switch(name, True)
    assert shop.catalog().manifest.enabled == {}

    for name, wanted in steps:
        admissions.switch(kit if name == KIT_NAME else name, wanted)

    catalog = shop.catalog()
    assert offered(catalog) == left
    if not left & ALL:
        entry = catalog.manifest.enabled[kit]
        assert not (entry if isinstance(entry, bool) else entry.enabled)
    if left == {*ALL, "single"}:
        assert catalog.manifest.enabled == {}


def test_name_of_a_tool_comes_before_the_function_behind_another(shop: Workshop) -> None:
    marked = 'from toolkiln import tool\n\n@tool(name="z_tool")\ndef convert_it() -> int:\n'
    shop.add("a.py", marked + '    """One."""\n    return 1\n')
    shop.add("b.py", tool("convert_it"))

    shop.admissions().switch("convert_it", False)

    assert set(shop.served()) == {"z_tool"}


def test_switch_is_about_the_tool_that_has_the_name(shop: Workshop) -> None:
    shop.add("a.py", tool("vital"))
    shop.add("b.py", CORE + CORE.replace("vital", "zealous"))

    shop.admissions().switch("vital", False)

    assert set(shop.served()) == {"zealous"}


def test_switch_of_a_method_that_is_gone_does_no_harm(shop: Workshop) -> None:
    shop.add("files.py", KIT)
    shop.admissions().switch("drop_it", False)
    shop.add("files.py", KIT.replace("drop_it", "move_it"))

    shop.admissions().switch("read_it", False)

    assert set(shop.served()) == {"write_it", "move_it"}


def test_core_tool_refuses_to_be_disabled(shop: Workshop, admissions: Admissions) -> None:
    with pytest.raises(InputError, match="core tool"):
        admissions.switch("vital", False)
    admissions.switch("vital", True)

    assert "vital" in shop.catalog().snapshot.tools


@pytest.mark.parametrize("wanted", [False, {"enabled": False}, {"methods": {"read_it": False}}])
def test_core_toolkit_refuses_to_lose_a_method(shop: Workshop, wanted: Any) -> None:
    shop.add("files.py", KIT.replace("is_core=False", "is_core=True"))
    catalog = shop.catalog()
    kit = catalog.snapshot.tools["read_it"].toolkit
    assert kit
    assert kit.is_core

    with pytest.raises(InputError, match="core tool"):
        Admissions(catalog).switch(kit.name, wanted)
    with pytest.raises(InputError, match="core tool"):
        Admissions(catalog).switch("read_it", False)

    assert set(shop.served()) == ALL


@each_row(
    "name, wanted, hint",
    [
        ("singel", False, "single"),
        ("raed_it", True, "read_it"),
        (KIT_NAME, {"methods": {"raed_it": False}}, "read_it"),
        ("", False, None),
    ],
)
def test_the_hint_for_an_unknown_name_is_the_nearest(
    shop: Workshop, admissions: Admissions, name: str, wanted: Any, hint: str | None
) -> None:
    with pytest.raises(UnknownTool) as caught:
        admissions.switch(kit_name(shop.catalog()) if name == KIT_NAME else name, wanted)

    assert (hint or "") in (caught.value.hint or "")


@each_row(
    "wanted",
    [None, 0, "no", [], {"enabeld": False}, {"methods": ["read_it"]}, {"enabled": "no"},
     {"methods": {"read_it": "off"}}, {"methods": None}],
)  # fmt: skip
def test_what_is_no_switch_is_refused_and_changes_nothing(
    shop: Workshop, admissions: Admissions, wanted: Any
) -> None:
    for name in (kit_name(shop.catalog()), "single"):
        with pytest.raises(InputError):
            admissions.switch(name, wanted)

    assert offered(shop.catalog()) == {*ALL, "single"}


def test_switch_applies_to_another_catalog_at_once_and_survives_the_next_version(
    shop: Workshop, admissions: Admissions
) -> None:
    other = shop.catalog()
    before = other.snapshot

    admissions.switch("single", False)
    other.refresh([shop.tools / MANIFEST])
    shop.add("single.py", tool("single", 2))

    assert "single" not in shop.served()
    assert "single" in before.tools
    assert "single" not in other.snapshot.tools
    assert "single" in other.snapshot.served
