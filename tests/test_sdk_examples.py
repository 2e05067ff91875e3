"""The examples for SDKs: run as they stand, against a scripted model over real HTTP."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.model_server import Model, Step, Turn, serving

FOLDER = Path(__file__).parent.parent / "examples"
WRITTEN = '''
def is_leap_year(year: int) -> bool:
    """Say whether a year has 366 days.

    Args:
        year: A year of the Gregorian calendar.

    Examples:
        >>> is_leap_year(1900)
        False
    """
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
'''


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """The folder of examples, for this test alone: state and written tools stay in it."""
    copied = tmp_path / "examples"
    shutil.copytree(FOLDER, copied, ignore=shutil.ignore_patterns(".toolkiln", "__pycache__"))
    return copied


def run(example: Path, model: Model, *arguments: str) -> str:
    """What an example prints that talks to this model."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLKILN_", "GOOGLE_"))}
    variables = {
        "OPENAI_BASE_URL": f"{model.url}/v1",
        "ANTHROPIC_BASE_URL": model.url,
        "GOOGLE_GEMINI_BASE_URL": model.url,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "none")
    done = subprocess.run(
        [sys.executable, example.name, *arguments],
        cwd=example.parent, env=clean | variables | keys, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def converting(arguments: dict[str, object]) -> Callable[[Turn], Step]:
    """A model that converts miles, first into a unit that does not exist."""

    def play(turn: Turn) -> Step:
        if not turn.results:
            return Step(tool="convert_units", arguments=arguments | {"target": "kilometers"})
        if len(turn.results) == 1:
            return Step(tool="convert_units", arguments=arguments)
        return Step(text=f"It is {turn.results[-1]} km.")

    return play


LOOSE = {"value": 26.2, "source": "mi", "target": "km"}


@pytest.mark.parametrize(
    ("example", "arguments", "answer"),
    [
        ("openai_responses", LOOSE | {"digits": None}, "It is 42.164813 km."),
        ("openai_chat", LOOSE | {"digits": None}, "It is 42.164813 km."),
        ("anthropic_messages", LOOSE, "It is 42.164813 km."),
        ("gemini_contents", LOOSE, 'It is {"output": "42.164813"} km.'),
    ],
)
def test_a_model_finds_a_tool_and_mends_its_call(
    examples: Path, example: str, arguments: dict[str, object], answer: str
) -> None:
    with serving(converting(arguments)) as model:
        printed = run(examples / f"{example}.py", model)

    assert printed == answer
    assert "kilometers" in model.turns[1].results[0]
    assert len(model.turns[0].tools) == 8
    assert model.unknown == []


def test_the_agent_searches_calls_writes_a_tool_and_calls_it(examples: Path) -> None:
    def play(turn: Turn) -> Step:
        convert = {"name": "convert_units", "arguments": LOOSE}
        ask = {"name": "is_leap_year", "arguments": {"year": 2028}}
        steps = [
            Step(tool=name, arguments=arguments)
            for name, arguments in (
                ("search_tools", {"query": "convert miles to kilometres"}),
                ("describe_tool", {"name": "convert_units"}),
                ("call_tool", convert),
                ("search_tools", {"query": "is a year a leap year?"}),
                ("call_tool", ask),
                ("write_python_tool", {"tool_code": WRITTEN, "tool_name": "is_leap_year"}),
                ("call_tool", ask),
            )
        ]
        return steps[len(turn.results)] if len(turn.results) < len(steps) else Step(text="It is.")

    with serving(play) as model:
        printed = run(examples / "agent.py", model, "Is 2028 a leap year?")

    found, described, converted, _, missing, written, called = model.turns[-1].results
    assert printed == "It is."
    assert json.loads(found)["tools"][0]["name"] == "convert_units"
    assert set(json.loads(described)["parameters"]["properties"]) == {*LOOSE, "digits"}
    assert converted == "42.164813"
    assert "there is no tool named 'is_leap_year'" in missing
    assert json.loads(written)["success"] is True
    assert called == "true"
    assert (examples / "tools" / "is_leap_year.py").is_file()
