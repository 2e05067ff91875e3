"""Files written for Open WebUI are read as they are."""

from reading import names, one, properties, rules

from tables import each_row
from toolkiln.model.spec import Dialect
from toolkiln.spec.reader import read

WEATHER = '''
"""
title: Weather Station
author: someone
author_url: https://example.com
description: Tells the weather: today and tomorrow.
required_open_webui_version: 0.4.0
requirements: httpx>=0.27, pydantic
version: 0.3
license: MIT
"""

from typing import Any, Awaitable, Callable, Optional
from pydantic import BaseModel, Field
from open_webui.config import CONFIG
from open_webui.models.users import Users

LOADED = CONFIG.load()

class Tools:
    class Valves(BaseModel):
        api_url: str = Field(default="https://example.com", description="The service.")
        retries: int = 3

    class UserValves(BaseModel):
        units: str = Field("metric", description="The units.")

    def __init__(self):
        self.valves = self.Valves()

    async def get_weather(
        self,
        city: str,
        days: int = 1,
        __user__: dict = {},
        __event_emitter__: Callable[[dict], Awaitable[None]] = None,
        *,
        __request__: Optional[Request] = None,
        __metadata__: dict,
    ) -> str:
        """
        Tell the weather of a city.

        :param city: The city.
        :param days: How many days.
        :return: The weather.
        """

    def _helper(self): ...
'''


def test_public_methods_of_tools_are_tools() -> None:
    tool = one(WEATHER)

    assert tool.dialect is Dialect.OPEN_WEBUI
    assert (tool.name, tool.entry) == ("get_weather", "Tools.get_weather")
    assert tool.is_async
    assert tool.description == "Tell the weather of a city."


def test_double_underscore_parameters_are_injected_and_hidden() -> None:
    tool = one(WEATHER)

    assert tool.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "days": {"type": "integer", "default": 1, "description": "How many days."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert not rules(WEATHER) & {"unresolved-type", "missing-annotation", "undescribed-parameter"}
    assert tool.injected == {
        "__user__": "__user__",
        "__event_emitter__": "__event_emitter__",
        "__request__": "__request__",
        "__metadata__": "__metadata__",
    }


def test_the_frontmatter_describes_the_toolkit_and_lists_requirements() -> None:
    tool = one(WEATHER)

    assert tool.toolkit is not None
    assert tool.toolkit.display_name == "Weather Station"
    assert tool.toolkit.description == "Tells the weather: today and tomorrow."
    assert tool.requirements == ("httpx>=0.27", "pydantic")
    assert tool.documentation.module == ()


def test_valves_are_settings_of_operator_and_user() -> None:
    settings = one(WEATHER).settings

    operator = settings["operator"]["properties"]
    assert [*operator] == ["api_url", "retries"]
    assert {"title": "", **operator["api_url"]} == {
        "title": operator["api_url"].get("title", ""),
        "type": "string",
        "default": "https://example.com",
        "description": "The service.",
    }
    assert operator["retries"]["default"] == 3
    assert settings["user"]["properties"]["units"]["default"] == "metric"
    assert one("class Tools:\n    def f(self): ...").settings == {}


@each_row(
    "members, expected",
    [
        ("def a(self): ...\n    def b(self): ...", ["a", "b"]),
        ("def __init__(self): ...\n    def a(self): ...", ["a"]),
        ("def _a(self): ...\n    def __b(self): ...\n    def c(self): ...", ["c"]),
        ("async def a(self): ...", ["a"]),
        ("@staticmethod\n    def a(x: int): ...", ["a"]),
        ("@classmethod\n    def a(cls, x: int): ...", ["a"]),
        ("@cached(ttl=60)\n    def a(self): ...", ["a"]),
        ("@property\n    def p(self): ...\n    def a(self): ...", ["a"]),
        ("class Valves(BaseModel):\n        def x(self): ...\n    def a(self): ...", ["a"]),
        ("pass", []),
        ("def a(self): ...\ndef helper(): ...\nclass Emitter:\n    def emit(self): ...", ["a"]),
        ("def _run(self): ...\ndef helper(text: str) -> str: ...", []),
        ("def a(self): ...\nclass Tools:\n    def b(self): ...", ["b"]),
    ],
)
def test_which_members_are_tools(members: str, expected: list[str]) -> None:
    assert names(f"from pydantic import BaseModel\nclass Tools:\n    {members}") == expected


@each_row(
    "frontmatter, title, description",
    [
        (
            "title: First\ndescription: >\n  Plays\n  games.\n\n  More.\nversion: 1",
            "First",
            "Plays games.",
        ),
        ("    description: >\n      Plays.\n    title: Inside", "Inside", "Plays."),
        ("description: |-\n    One line.\ntitle: Last", "Last", "One line."),
        ("title: First\n\ntitle: a word in the text\ndescription: Plain.", "First", "Plain."),
        ("description: >", "Chess Club", ">"),
    ],
)
def test_frontmatter_has_lines_and_blocks_and_the_first_counts(
    frontmatter: str, title: str, description: str
) -> None:
    source = f'"""\n{frontmatter}\n"""\nclass Tools:\n    def f(self): ...'

    toolkit = read(source, "chess_club.py").tools[0].toolkit

    assert toolkit is not None
    assert toolkit.name == "chess_club.Tools"
    assert (toolkit.display_name, toolkit.description) == (title, description)


def test_without_frontmatter_the_toolkit_is_described_by_its_class() -> None:
    with_docs, without = (
        one(f"class Tools:\n    {docs}\n    def a(self): ...").toolkit
        for docs in ('"""Looks at things."""', "pass")
    )

    assert with_docs is not None
    assert with_docs.description == "Looks at things."
    assert without is not None
    assert without.description == "Tools functionality"


def test_double_underscores_are_special_at_both_ends_and_in_tools_only() -> None:
    source = "class Tools:\n    @staticmethod\n    def a(__x: int, y__: int, __z__: int): ..."

    assert one(source).injected == {"__z__": "__z__"}
    assert list(properties(source)) == ["__x", "y__"]
    assert properties("def f(__user__: str): ...") == {"__user__": {"type": "string"}}
