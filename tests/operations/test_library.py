"""Finding tools and reading about them: search follows what is served, whatever changes it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision, ToolDraft
from toolkiln.model.spec import ToolSpec
from toolkiln.operations import library
from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.search.openai_embedder import OpenAIEmbedder
from written_tools import write_tool

from .conftest import FIRST, NAME, Forge, write

NOWHERE = "http://127.0.0.1:1/v1"


def tool(name: str, says: str, *, core: bool = False) -> str:
    """The source of a tool that does nothing but say what it is for."""
    mark = "from toolkiln import tool\n\n@tool(is_core=True)\n" if core else ""
    return f'{mark}def {name}() -> int:\n    """{says}"""\n    return 1\n'


KITCHEN = {
    "bake_bread": "Bake a loaf of bread in the oven.",
    "boil_eggs": "Boil eggs for breakfast, soft or hard.",
    "send_mail": "Send an e-mail message to a colleague.",
    "book_flight": "Book a flight between two airports.",
}


async def filled(forge: Forge, *core: str) -> Kiln:
    kiln = forge.kiln()
    for name, says in KITCHEN.items():
        await write(kiln, tool(name, says, core=name in core), name)
    return kiln


def found(kiln: Kiln, query: str, k: int = 2) -> list[str]:
    return [hit.key for hit in kiln.search(query, k).hits]


async def test_search_follows_writing_going_back_and_switching(forge: Forge) -> None:
    kiln = await filled(forge)
    other = tool("bake_bread", "Repair a bicycle with a flat tyre.")

    fresh = found(kiln, "loaf from the oven")
    await write(kiln, other, "bake_bread", overwrite=True)
    replaced = found(kiln, "repair my bicycle"), kiln.search("loaf of bread", 4)
    kiln.services.admissions.rollback("bake_bread", "1", AdmissionDecision("ann"))
    back = found(kiln, "loaf from the oven"), kiln.search("bicycle tyre", 4)
    kiln.services.admissions.switch("bake_bread", wanted=False)
    disabled = found(kiln, "loaf from the oven", 4)
    kiln.services.admissions.switch("bake_bread", wanted=True)
    (forge.tools / "bake_bread.py").unlink()
    kiln.catalog.refresh([forge.tools / "bake_bread.py"])
    deleted = found(kiln, "loaf from the oven", 4)

    assert fresh[0] == "bake_bread"
    assert replaced[0][0] == "bake_bread"
    assert all("loaf" not in hit.words for hit in replaced[1].hits)
    assert back[0][0] == "bake_bread"
    assert all("bicycle" not in hit.words for hit in back[1].hits)
    assert "bake_bread" not in disabled
    assert "bake_bread" not in deleted


async def test_refused_version_is_not_searched_and_permission_is_asked_before_the_cut(
    forge: Forge,
) -> None:
    kiln = await filled(forge)

    await write(kiln, "raise 1 +\n", "bake_bread", overwrite=True)
    await write(kiln, tool("send_mail", "Paint a fence."), "painting")
    answer = kiln.library.search("bake bread", 1, lambda spec: spec.name != "bake_bread")

    assert found(kiln, "loaf from the oven")[0] == "bake_bread"
    assert all("fence" not in hit.words for hit in kiln.search("paint a fence", 4).hits)
    assert len(answer.hits) == 1
    assert answer.hits[0].key != "bake_bread"
    assert kiln.library.search("bake bread", 4, lambda _: False).hits == ()


async def test_selection_has_core_tools_and_the_most_relevant_of_the_others(forge: Forge) -> None:
    kiln = await filled(forge, "send_mail", "boil_eggs")

    def names(k: int, *denied: str) -> list[str]:
        def allow(spec: ToolSpec) -> bool:
            return spec.name not in denied

        return [spec.name for spec in kiln.library.select("bake bread", k, allow)]

    assert names(2, "boil_eggs") == ["send_mail", "bake_bread"]
    assert "bake_bread" not in names(4, "bake_bread")
    assert sorted(names(1)) == sorted(names(0)) == ["boil_eggs", "send_mail"]
    assert names(2, "send_mail", "boil_eggs")[0] == "bake_bread"
    assert sorted(names(100)) == sorted(KITCHEN)


async def test_passages_are_of_pages_that_exist(forge: Forge) -> None:
    kiln = await filled(forge)
    await write(kiln, FIRST)

    hits = kiln.library.search_docs("temperature in degrees Celsius", 3)
    denied = kiln.library.search_docs("temperature", 3, lambda spec: spec.name != NAME)

    assert hits[0].passage.page == f"{NAME}.md"
    assert "Parameters" in {hit.passage.heading for hit in hits}
    assert all(hit.passage.page != f"{NAME}.md" for hit in denied)
    assert "**Parameters**" in kiln.library.guide(NAME)
    assert "Version" in kiln.library.page(NAME)


async def test_nothing_is_found_where_nothing_is_served(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)
    kiln.services.admissions.switch(NAME, wanted=False)

    assert kiln.search("temperature").hits == ()
    assert kiln.select("temperature") == []
    assert kiln.library.search_docs("temperature", 3) == []
    assert kiln.library.refresh() is None


async def test_endpoint_that_is_down_costs_quality_only(forge: Forge) -> None:
    kiln = forge.kiln(embeddings=NOWHERE, embeddings_model="m", embeddings_dimensions=8)

    written = await write_tool(kiln, ToolDraft(FIRST, NAME))
    found = (await kiln.call("search_tools", {"query": "temperature Fahrenheit"})).value

    assert written.reload_success
    assert not written.embedding_success
    assert "ranked by words only" in written.stages[-1].message
    assert [tool["name"] for tool in found["tools"]] == [NAME]
    assert "ranked by words only" in found["note"]


async def test_vectors_that_could_not_be_had_are_asked_for_again(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_down = True

    def embed(_: OpenAIEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        if is_down:
            raise EmbeddingFailed("the endpoint is down")
        return np.eye(8, dtype=np.float32)[: len(texts)]

    monkeypatch.setattr(OpenAIEmbedder, "embed", embed)
    monkeypatch.setattr(library, "_RETRY_SECONDS", 0.0)
    kiln = forge.kiln(embeddings=NOWHERE, embeddings_model="m", embeddings_dimensions=8)
    written = await write_tool(kiln, ToolDraft(FIRST, NAME))

    is_down = False
    note = kiln.search("temperature").note

    assert not written.embedding_success
    assert note is None


async def test_endpoint_that_makes_no_sense_does_not_undo_what_is_written(forge: Forge) -> None:
    kiln = forge.kiln(embeddings="gopher://nowhere", embeddings_model="m")

    written = await write_tool(kiln, ToolDraft(FIRST, NAME))
    result = await kiln.call("search_tools", {"query": "temperature"})

    assert written.reload_success
    assert not written.embedding_success
    assert result.error is not None
    assert "the embeddings endpoint" in result.error.message


async def test_a_saved_index_that_is_damaged_or_out_of_date_is_made_anew(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_FEWEST_CHANGES", 20)
    many = "".join(tool(f"wash_{n}", f"Wash dish number {n}.") for n in range(25))
    kiln = forge.kiln()
    await write(kiln, many + tool("bake_bread", KITCHEN["bake_bread"]), "many")
    whole = found(kiln, "loaf from the oven")
    (index,) = Path(forge.state, "search").glob("*.index")
    data = index.read_bytes()

    kept = found(forge.kiln(), "loaf from the oven")
    for damage in (b"", b"nonsense", data[: len(data) // 2], data[:-40] + b"\0" * 40):
        index.write_bytes(damage)

        assert found(forge.kiln(), "loaf from the oven") == whole
    await write(kiln, many, "many", overwrite=True)

    assert kept == whole
    assert "bake_bread" not in found(forge.kiln(), "loaf of bread from the oven", 20)


async def test_searches_while_tools_change_find_what_is_served(forge: Forge) -> None:
    kiln = await filled(forge)

    async def change() -> None:
        for n in range(10):
            code = tool("bake_bread", f"Bake a loaf of bread, recipe {n}.")
            assert (await write(kiln, code, "bake_bread", overwrite=True)).success
            kiln.services.admissions.switch("bake_bread", wanted=n % 2 == 0)

    def search() -> None:
        for _ in range(40):
            kiln.library.search("loaf of bread", 4, lambda spec: bool(spec.description))
            kiln.library.search_docs("loaf of bread", 4)
            kiln.select("loaf of bread", 2)

    await asyncio.gather(change(), *(asyncio.to_thread(search) for _ in range(3)))

    assert "bake_bread" not in found(kiln, "loaf of bread", 4)


async def test_odd_queries_are_answered(forge: Forge) -> None:
    kiln = await filled(forge)

    for query in ("", " ", "\0", "🍞" * 1000, "x " * 10_000, "\ud800"):
        for k in (-1, 0, 1, 1000):
            assert len(kiln.search(query, k).hits) <= max(k, 0)
            assert len(kiln.library.search_docs(query, k)) <= max(k, 0)
            assert len(kiln.select(query, k)) <= max(k, 0)
