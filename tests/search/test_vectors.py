"""The bundled embedder: pieces as their makers number them, vectors, and damaged files."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tables import each_row
from toolkiln.search import bundled_embedder
from toolkiln.search.bundled_embedder import BundledEmbedder, Tokenizer
from toolkiln.search.embedder import EmbeddingFailed

TABLE = "weights/l2_supercat_256.safetensors"
PIECES = "tokenizers/l2_supercat_tokenizer_config.json"


@pytest.fixture(scope="module")
def bundled() -> BundledEmbedder:
    return BundledEmbedder()


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    text = (bundled_embedder._installed_folder() / PIECES).read_text("utf-8")
    return Tokenizer(json.loads(text))


def description(**changes: Any) -> dict[str, Any]:
    """A tokeniser of all bytes, a space and three pieces."""
    vocabulary = [*(f"<0x{byte:02X}>" for byte in range(256)), "<s>", "\u2581", "a", "b", "ab"]
    model = {
        "type": "BPE",
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {piece: number for number, piece in enumerate(vocabulary)},
        "merges": ["a b"],
    }
    spelling = [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    ]
    return {
        "normalizer": {"type": "Sequence", "normalizers": spelling},
        "pre_tokenizer": None,
        "added_tokens": [{"id": 256, "content": "<s>"}],
        "model": {**model, **changes},
    }


def table(rows: int = 261, kind: str = "F16", columns: int = 256) -> bytes:
    """A safetensors file with different rows."""
    numbers = np.random.default_rng(1).normal(size=(rows, columns)).astype("<f2").tobytes()
    tensor = {"dtype": kind, "shape": [rows, columns], "data_offsets": [0, len(numbers)]}
    header = json.dumps({"embedding.weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + numbers


def write(folder: Path, pieces: object = None, weights: bytes | None = None) -> Path:
    for name in (TABLE, PIECES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / TABLE).write_bytes(table() if weights is None else weights)
    (folder / PIECES).write_text(json.dumps(description() if pieces is None else pieces), "utf-8")
    return folder


@each_row(
    "text, numbers",
    [
        ("", []),
        (
            "Convert 10 EUR to US dollars.",
            [14806, 29871, 29896, 29900, 382, 4574, 304, 3148, 17208, 29889],
        ),
        (" get_weatherForecast ", [29871, 679, 29918, 705, 1624, 29943, 487, 4384, 29871]),
        ("  two   spaces\tand a\nline", [259, 1023, 259, 8162, 12, 392, 263, 13, 1220]),
        (
            "na\xefve caf\xe9 \u6f22\u5b57 \U0001f642",
            [1055, 30085, 345, 274, 28059, 29871, 31652, 30578, 29871, 243, 162, 156, 133],
        ),
        ("a <s>b</s>c <unk>", [263, 29871, 1, 289, 2, 274, 29871, 0]),
        ("\u2581x\u2581 y", [29871, 921, 29871, 343]),
        ("\x00\u200b\ue000", [29871, 3, 30166, 241, 131, 131]),
        ("<0x41>", [529, 29900, 29916, 29946, 29896, 29958]),
        ("========", [1275, 2751, 1360]),
        ("\ud800", [29871, 3 + ord("?")]),
    ],
)
def test_pieces_have_the_numbers_of_the_tokeniser_that_the_vectors_were_made_with(
    pieces: Tokenizer, text: str, numbers: list[int]
) -> None:
    assert pieces.token_ids(text) == numbers


def test_merges_of_the_same_rank_go_from_the_left() -> None:
    known = description()["model"]["vocab"]
    small = Tokenizer(description(merges=["a a"], vocab={**known, "aa": 300}))

    found = small.token_ids("aaa")

    assert found == [known["\u2581"], 300, known["a"]]


def test_rows_have_length_one_or_are_zeros(bundled: BundledEmbedder) -> None:
    texts = ["book a flight", "\x00", "\u6f22\u5b57 \U0001f642", "\ud800", "q7x" * 20_000]

    rows = bundled.embed([*texts, ""])

    assert rows.dtype == np.float32
    assert rows.shape == (6, bundled.dimensions)
    assert np.linalg.norm(rows[:5], axis=1) == pytest.approx(1, abs=1e-5)
    assert not rows[5].any()
    assert bundled.embed([]).shape == (0, bundled.dimensions)


def test_texts_of_like_meaning_are_nearer_than_others(bundled: BundledEmbedder) -> None:
    query, near, far = bundled.embed(
        ["What will it be like outdoors, rain or sun?", "weather forecast", "delete a file"]
    )

    assert query @ near > query @ far


def test_a_text_has_the_same_row_alone_and_among_others(bundled: BundledEmbedder) -> None:
    texts = [f"text number {n} " + "word " * n for n in range(50)]

    together = bundled.embed(texts)

    assert all(
        np.array_equal(bundled.embed([t])[0], row) for t, row in zip(texts, together, strict=True)
    )


def test_a_huge_text_counts_in_full(bundled: BundledEmbedder) -> None:
    words = ["cat", "dog"] * 5_000

    row = bundled.embed([" ".join(words)])[0]

    assert row @ bundled.embed(["cat dog"])[0] == pytest.approx(1, abs=1e-3)


def test_threads_that_start_together_get_the_same_rows() -> None:
    fresh = BundledEmbedder()
    texts = [f"tool number {n}" for n in range(40)]

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda text: fresh.embed([text])[0], texts))

    assert np.array_equal(np.stack(rows), fresh.embed(texts))


def test_the_package_of_the_data_files_is_not_imported() -> None:
    code = (
        "import sys; from toolkiln.search.bundled_embedder import BundledEmbedder;"
        "BundledEmbedder().embed(['x']);"
        "print({'wordllama', 'tokenizers', 'requests', 'safetensors'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "set()\n"


def test_files_of_a_folder_serve(tmp_path: Path) -> None:
    rows = BundledEmbedder(write(tmp_path)).embed(["ab", "ba"])

    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-3)
    assert not np.array_equal(rows[0], rows[1])


DAMAGED_TABLES = [
    b"",
    b"\x10",
    b"\xff" * 100,
    (10).to_bytes(8, "little") + b"not json !",
    (2).to_bytes(8, "little") + b"[]",
    (2).to_bytes(8, "little") + b"{}",
    table()[:-1],
    table()[:1000],
    table(kind="F32"),
    table(columns=64),
    table(rows=10),
    table().replace(b"[0,", b"[-9"),
    table().replace(b"[261, 256]", b"[-61, 256]"),
    table().replace(b"[261, 256]", b'["6", 256]'),
]
DAMAGED_TOKENISERS = [
    [],
    {},
    "text",
    {**description(), "pre_tokenizer": {"type": "Whitespace"}},
    {**description(), "normalizer": None},
    {**description(), "added_tokens": [{}]},
    {**description(), "added_tokens": []},
    {**description(), "added_tokens": [{"content": "a word"}]},
    description(type="Unigram"),
    description(vocab={"a": 1}),
    description(vocab=[1, 2]),
    description(vocab={**description()["model"]["vocab"], "far": 9_999}),
    description(vocab={**description()["model"]["vocab"], "a": "1"}),
    description(vocab={**description()["model"]["vocab"], "a": -300}),
    description(merges=None),
]


@each_row(
    "pieces, weights",
    [(None, data) for data in DAMAGED_TABLES] + [(data, None) for data in DAMAGED_TOKENISERS],
)
def test_a_damaged_file_is_a_failure_with_a_hint(
    tmp_path: Path, pieces: object, weights: bytes | None
) -> None:
    damaged = BundledEmbedder(write(tmp_path, pieces, weights))

    with pytest.raises(EmbeddingFailed) as caught:
        damaged.embed(["ab"])

    assert "install" in (caught.value.hint or "")


def test_a_tokeniser_that_is_cut_off_is_a_failure(tmp_path: Path) -> None:
    file = write(tmp_path) / PIECES
    file.write_bytes(file.read_bytes()[:500])

    with pytest.raises(EmbeddingFailed, match="damaged"):
        BundledEmbedder(tmp_path).embed(["ab"])


def test_missing_files_are_a_failure_until_they_are_there(tmp_path: Path) -> None:
    embedder = BundledEmbedder(tmp_path)
    with pytest.raises(EmbeddingFailed):
        embedder.embed(["ab"])

    write(tmp_path)

    assert embedder.embed(["ab"]).any()


def test_a_missing_package_is_a_failure_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_embedder, "find_spec", lambda name: None)

    with pytest.raises(EmbeddingFailed, match="wordllama"):
        BundledEmbedder().embed(["ab"])


def test_numbers_that_are_none_give_zeros(tmp_path: Path) -> None:
    whole = table()
    nan = np.full(261 * 256, np.nan, "<f2").tobytes()

    rows = BundledEmbedder(write(tmp_path, weights=whole[: -len(nan)] + nan)).embed(["ab"])

    assert not rows.any()
