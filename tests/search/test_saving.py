"""The cache file: whole and of this version, or none."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolkiln.search import index as saving
from toolkiln.search.index import SearchIndex

from .bags import Bags, tool

TOOLS = [tool(f"tool_{n}", f"weather rain number{n}", "a", "b", "c") for n in range(30)]
QUERIES = ["weather", "tool_7", "rain and much more weather, then number3 and number4 please"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "index.npz"
    SearchIndex.build(TOOLS, Bags()).save(path)
    return path


def test_a_loaded_index_answers_like_the_saved_one(file: Path) -> None:
    loaded = SearchIndex.load(file, Bags())

    built = SearchIndex.build(TOOLS, Bags())
    assert len(loaded) == len(TOOLS)
    assert loaded.fingerprints == built.fingerprints
    assert [loaded.query(text, 9) for text in QUERIES] == [built.query(text, 9) for text in QUERIES]


def test_loading_embeds_nothing(file: Path) -> None:
    embedder = Bags()

    SearchIndex.load(file, embedder)

    assert embedder.texts == []


def test_a_loaded_index_can_be_changed_and_saved_again(file: Path) -> None:
    changed = SearchIndex.load(file, Bags()).apply([tool("fresh", "mail")], ["tool_1"])
    changed.save(file)

    loaded = SearchIndex.load(file, Bags())

    assert loaded.fingerprints == changed.fingerprints
    assert loaded.query("mail", 1).hits[0].key == "fresh"
    assert "tool_1" not in {hit.key for hit in loaded.query("weather", 99).hits}


def test_words_that_no_document_has_any_more_are_not_kept(tmp_path: Path) -> None:
    SearchIndex.build([tool("one", "rain")], Bags()).save(tmp_path / "small")
    changed = SearchIndex.build([*TOOLS, tool("one", "rain")], Bags())

    changed.apply([], [document.key for document in TOOLS]).save(tmp_path / "changed")

    assert (tmp_path / "changed").stat().st_size == (tmp_path / "small").stat().st_size


def test_an_empty_index_can_be_kept(tmp_path: Path) -> None:
    SearchIndex(Bags()).save(tmp_path / "empty")

    assert len(SearchIndex.load(tmp_path / "empty", Bags())) == 0


def test_odd_keys_survive(tmp_path: Path) -> None:
    names = ["a\nb", "\ud800", "名前", "a" * 5_000, ""]
    SearchIndex.build([tool(name, "rain") for name in names], Bags()).save(tmp_path / "odd")

    assert SearchIndex.load(tmp_path / "odd", Bags()).fingerprints.keys() == set(names)


def test_no_file_is_an_empty_index(tmp_path: Path) -> None:
    assert len(SearchIndex.load(tmp_path / "none", Bags())) == 0
    assert len(SearchIndex.load(tmp_path, Bags())) == 0


def test_a_file_of_another_embedder_is_not_used(file: Path) -> None:
    other = Bags()
    other.name = "others"

    assert len(SearchIndex.load(file, other)) == 0


def test_a_file_of_other_code_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_SOURCES", ("analysis.py",))

    assert len(SearchIndex.load(file, Bags())) == 0


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
def test_a_file_that_was_cut_off_is_an_empty_index(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])

    assert len(SearchIndex.load(file, Bags())) == 0


def test_a_file_with_a_flipped_byte_is_whole_or_not_used(file: Path) -> None:
    whole = file.read_bytes()
    expected = SearchIndex.load(file, Bags()).query("weather", 9)

    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        index = SearchIndex.load(file, Bags())
        assert not len(index) or index.query("weather", 9) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": np.zeros((3, 64), np.float32)},
        {"vectors": np.zeros((30, 5), np.float32)},
        {"numbers": np.full(10_000, 10**6, np.int32)},
        {"lengths": np.full(30, 10**6)},
        {"texts": np.frombuffer(b"[[], [], []]", np.uint8)},
        {"texts": np.frombuffer(b"{}", np.uint8)},
        {"vectors": np.array(["x"] * 30)},
    ],
)
def test_arrays_that_do_not_fit_together_are_not_used(
    file: Path, change: dict[str, np.ndarray]
) -> None:
    with np.load(file) as arrays:
        content = {**arrays, **change}
    with file.open("wb") as stream:
        np.savez(stream, **content)

    assert len(SearchIndex.load(file, Bags())) == 0


def test_saving_leaves_no_other_file_behind(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(np, "savez", full)

    with pytest.raises(OSError, match="No space"):
        SearchIndex.build(TOOLS[:1], Bags()).save(file)

    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == before


def test_importing_search_loads_no_numpy() -> None:
    code = (
        "import sys, toolkiln.operations.library, toolkiln.search.documents\n"
        "assert 'numpy' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
