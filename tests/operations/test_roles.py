"""Prompts and resources in a catalog: called like tools, and no tools to a model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkiln.catalog.reports import check
from toolkiln.config import Settings
from toolkiln.errors import UnknownTool
from toolkiln.kiln import PROVIDERS, Kiln
from toolkiln.model.call import Status
from toolkiln.model.spec import Role
from toolkiln.operations.library import listed_tools
from toolkiln.security.sessions import LOCAL_OPERATOR

SOURCE = '''
from toolkiln import prompt, resource, tool


@tool
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())


@prompt
def review_words(text: str, times: int = 1) -> str:
    """Ask for a review of the words of a text.

    Args:
        text: The text.
        times: How often.
    """
    return f"Review {text}" * times


@resource("words://{letter}", mime_type="image/png")
def words_of(letter: str) -> bytes:
    """The words of a text that begin with a letter.

    Args:
        letter: The letter.
    """
    return letter.encode()
'''
OTHERS = {"review_words", "words_of"}


@pytest.fixture(scope="module")
def kiln(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiln]:
    folder = tmp_path_factory.mktemp("roles")
    (folder / "tools").mkdir()
    (folder / "tools" / "words.py").write_text(SOURCE)
    settings = Settings(state=folder / "state")
    with Kiln(folder / "tools", settings=settings, dev=True) as kiln:
        yield kiln


def test_what_is_for_models_has_tools_only(kiln: Kiln) -> None:
    shown = [
        {spec.name for spec in listed_tools(kiln.services, LOCAL_OPERATOR)},
        {spec.name for spec in kiln.select("words of a text", 10)},
        {hit.key for hit in kiln.search("review the words of a text", 10)},
        {hit.passage.tool for hit in kiln.library.search_docs("review the words of a text", 10)},
        set(kiln.specs()),
    ]

    assert all("count_words" in names and not names & OTHERS for names in shown)
    assert not any(name in kiln.library.prompt_index() for name in OTHERS)
    for provider in PROVIDERS:
        assert not any(name in str(kiln.tools(provider)) for name in OTHERS)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_model_is_given_and_calls_tools_only(kiln: Kiln, name: str) -> None:
    arguments = {"text": "a"} if name == "review_words" else {"letter": "a"}
    content = [
        {"type": "tool_use", "id": "1", "name": name, "input": arguments},
        {"type": "tool_use", "id": "2", "name": "count_words", "input": {"text": "a b"}},
    ]
    unknown = f"there is no tool named {name!r}"

    with pytest.raises(UnknownTool):
        kiln.tools("openai", names=[name])
    (handled,) = kiln.handle_sync({"role": "assistant", "content": content})
    found = kiln.call_sync("call_tool", {"name": name, "arguments": arguments})
    described = kiln.call_sync("describe_tool", {"name": name})

    refused, counted = handled["content"]
    assert (refused["content"], refused["is_error"]) == (f"error: {unknown}", True)
    assert counted["content"] == "2"
    for result in (found, described):
        assert result.status is Status.FAILED
        assert unknown in result.text


def test_an_operator_sees_all(kiln: Kiln) -> None:
    assert (
        {"count_words", *OTHERS} == set(kiln.services.registry.specs) == set(kiln.specs(role=None))
    )
    assert set(kiln.specs(role=Role.PROMPT)) == {"review_words"}
    assert kiln.tool("words_of").uri == "words://{letter}"


def test_a_prompt_is_called_like_a_tool_and_not_cut(kiln: Kiln) -> None:
    result = kiln.call_sync("review_words", {"text": "a", "times": "2"})
    long = kiln.call_sync("review_words", {"text": "a" * 1_000, "times": 200})

    assert (result.status, result.value) == (Status.OK, "Review aReview a")
    assert long.truncation is None
    assert len(long.text) > 200_000


def test_bytes_of_a_resource_are_a_file_even_if_they_are_text(kiln: Kiln) -> None:
    result = kiln.call_sync("words_of", {"letter": "a"})

    assert (result.status, result.value) == (Status.OK, None)
    assert [(file.name, file.data) for file in result.files] == [("content", b"a")]


def test_one_address_in_two_files_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        source = SOURCE.replace("words_of", f"{name}_of").replace("_words", f"_{name}")
        (tmp_path / f"{name}.py").write_text(source)

    found = [finding for report in check([tmp_path]) for finding in report.reading.findings]

    assert [(one.rule, one.tool) for one in found if one.rule.startswith("duplicate")] == [
        ("duplicate-uri", "b_of")
    ]
