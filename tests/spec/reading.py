"""Reading a source text in a test: the parts of a reading that tests compare."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import ToolSpec
from toolkiln.spec.reader import read


def reading(source: str, path: str | Path = "<memory>") -> Reading:
    """All that a source says, its indentation taken off."""
    return read(dedent(source), path)


def one(source: str, path: str | Path = "<memory>") -> ToolSpec:
    """The only tool of a source."""
    tools = reading(source, path).tools

    assert len(tools) == 1, [tool.name for tool in tools]
    return tools[0]


def names(source: str) -> list[str]:
    """The names of the tools, in source order."""
    return [tool.name for tool in reading(source).tools]


def properties(source: str, path: str | Path = "<memory>") -> dict[str, Any]:
    """The properties of the only tool's schema."""
    found: dict[str, Any] = one(source, path).parameters["properties"]
    return found


def findings(source: str, rule: str, path: str | Path = "<memory>") -> list[Finding]:
    """The findings of one rule."""
    return [finding for finding in reading(source, path).findings if finding.rule == rule]


def rules(source: str, path: str | Path = "<memory>") -> set[str]:
    """The rules that a source breaks."""
    return {finding.rule for finding in reading(source, path).findings}


def files(folder: Path, **sources: str) -> None:
    """Write modules below a folder: `pkg__mod` is `pkg/mod.py`, `pkg__` is `pkg/__init__.py`."""
    for name, source in sources.items():
        *packages, module = name.split("__")
        file = folder.joinpath(*packages, f"{module or '__init__'}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source), "utf-8")
