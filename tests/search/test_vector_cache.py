"""Vectors kept on disk: found again, shared by processes, and never in the way."""

import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tables import each_row
from toolkiln.search import embedder as embedder_module
from toolkiln.search.embedder import CachedEmbedder, EmbeddingFailed

from .bags import Counting

BOUND = 30.0
WRITER = """
import sys
from pathlib import Path
from tests.search.bags import Counting
from toolkiln.search import embedder as embedder_module
from toolkiln.search.embedder import CachedEmbedder

embedder_module._LOCK_TIMEOUT = 30.0
cached = CachedEmbedder(Counting(), Path(sys.argv[1]))
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    cached.embed([f"text {number}"])
print("done")
"""


def file_of(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def writer(folder: Path, first: int, last: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(last)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_text_is_embedded_once(tmp_path: Path) -> None:
    embedder = Counting()

    none = CachedEmbedder(embedder, tmp_path).embed([])
    first = CachedEmbedder(embedder, tmp_path).embed(["a", "b", "a"])
    second = CachedEmbedder(embedder, tmp_path).embed(["b", "c", "a"])
    embedder.fails_after = 0
    third = CachedEmbedder(embedder, tmp_path).embed(["a"])

    assert embedder.asked == ["a", "b", "c"]
    assert np.array_equal(first, [embedder.row(text) for text in "aba"])
    assert np.array_equal(second, [embedder.row(text) for text in "bca"])
    assert np.array_equal(third, [embedder.row("a")])
    assert second.dtype == np.float32
    assert none.shape == (0, 8)


def test_vectors_that_another_cache_adds_are_seen(tmp_path: Path) -> None:
    embedder = Counting()
    one, other = CachedEmbedder(embedder, tmp_path), CachedEmbedder(embedder, tmp_path)
    one.embed(["a"])

    other.embed(["a", "b"])
    one.embed(["b"])

    assert embedder.asked == ["a", "b"]


def test_embedders_do_not_share_vectors(tmp_path: Path) -> None:
    one, other = Counting("one"), Counting("../other\x00", 4)

    CachedEmbedder(one, tmp_path).embed(["a"])
    rows = CachedEmbedder(other, tmp_path).embed(["a"])

    assert rows.shape == (1, 4)
    assert other.asked == ["a"]
    assert len(list(tmp_path.iterdir())) == 2


def test_texts_that_are_odd_are_kept_apart(tmp_path: Path) -> None:
    cached = CachedEmbedder(Counting(), tmp_path)
    texts = ["\ud800", "\ud801", "?", " ", "x" * 1_000_000, "a\x00", "a"]

    cached.embed(texts)

    digests = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    assert len(cached._file.get(digests)) == len(texts)


def test_zeros_are_not_kept(tmp_path: Path) -> None:
    cached = CachedEmbedder(Counting(), tmp_path)
    cached.embed(["", "a"])
    size = file_of(tmp_path).stat().st_size

    rows = cached.embed(["", "a"])

    assert not rows[0].any()
    assert rows[1].any()
    assert file_of(tmp_path).stat().st_size == size


def test_what_was_embedded_before_a_failure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder_module, "_BATCH", 10)
    embedder = Counting()
    embedder.fails_after = 20
    texts = [f"text {n}" for n in range(35)]
    with pytest.raises(EmbeddingFailed):
        CachedEmbedder(embedder, tmp_path).embed(texts)
    embedder.fails_after = None

    rows = CachedEmbedder(embedder, tmp_path).embed(texts)

    assert embedder.asked == texts
    assert np.array_equal(rows, [embedder.row(text) for text in texts])


def test_a_cache_of_other_dimensions_is_started_again(tmp_path: Path) -> None:
    CachedEmbedder(Counting(), tmp_path).embed(["a", "b"])
    changed = Counting(dimensions=5)

    rows = CachedEmbedder(changed, tmp_path).embed(["a", "c"])
    CachedEmbedder(changed, tmp_path).embed(["c"])

    assert rows.shape == (2, 5)
    assert changed.asked == ["a", "c"]
    assert CachedEmbedder(changed, tmp_path).embed(["b"]).shape == (1, 5)


def test_a_file_that_is_too_large_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Counting()
    reader = CachedEmbedder(embedder, tmp_path)
    reader.embed([f"text {n}" for n in range(100)])
    monkeypatch.setattr(embedder_module, "_MAX_FILE_BYTES", 1000)

    CachedEmbedder(embedder, tmp_path).embed(["a", "b"])

    assert file_of(tmp_path).stat().st_size < 1000
    assert np.array_equal(reader.embed(["text 1"])[0], embedder.row("text 1"))


def test_threads_get_their_own_rows(tmp_path: Path) -> None:
    embedder = Counting()
    cached = CachedEmbedder(embedder, tmp_path)
    texts = [f"text {n % 30}" for n in range(300)]

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda text: cached.embed([text])[0], texts))

    assert np.array_equal(rows, [embedder.row(text) for text in texts])


def test_processes_that_add_at_once_lose_and_mix_nothing(tmp_path: Path) -> None:
    processes = [writer(tmp_path, 100 * n, 100 * n + 100) for n in range(4)]
    done = [process.communicate(timeout=BOUND)[0] for process in processes]
    embedder = Counting()
    texts = [f"text {n}" for n in range(400)]

    rows = CachedEmbedder(embedder, tmp_path).embed(texts)

    assert done == ["done\n"] * 4
    assert embedder.asked == []
    assert np.array_equal(rows, [embedder.row(text) for text in texts])


def test_a_process_killed_while_adding_does_no_harm(tmp_path: Path) -> None:
    process = writer(tmp_path, 0, 1_000_000)
    until = time.monotonic() + BOUND
    while not list(tmp_path.iterdir()) or file_of(tmp_path).stat().st_size < 5_000:
        assert time.monotonic() < until
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=BOUND)
    embedder = Counting()
    texts = [f"text {n}" for n in range(50)]

    rows = CachedEmbedder(embedder, tmp_path).embed(texts)

    assert embedder.asked == []
    assert np.array_equal(rows, [embedder.row(text) for text in texts])


def test_a_long_lock_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "_LOCK_TIMEOUT", 0.05)
    embedder = Counting()
    cached = CachedEmbedder(embedder, tmp_path)
    cached.embed(["a"])

    with cached._file._locked():
        rows = cached.embed(["a", "b"])

    assert np.array_equal(rows, [embedder.row("a"), embedder.row("b")])
    assert embedder.asked == ["a", "b"]


@each_row("cut", range(1, 120, 7))
def test_a_truncated_file_loses_only_its_end(tmp_path: Path, cut: int) -> None:
    embedder = Counting()
    CachedEmbedder(embedder, tmp_path).embed(["a", "b"])
    file = file_of(tmp_path)
    os.truncate(file, max(0, file.stat().st_size - cut))

    rows = CachedEmbedder(embedder, tmp_path).embed(["c", "b", "a"])
    embedder.asked.clear()
    again = CachedEmbedder(embedder, tmp_path).embed(["a", "b", "c"])

    assert np.array_equal(rows, [embedder.row(text) for text in "cba"])
    assert np.array_equal(again, [embedder.row(text) for text in "abc"])
    assert embedder.asked == []


@each_row(
    "content",
    [b"", b"x", b"\0" * 5000, b"vectors1", b"vectors1" + b"\xff" * 4000, os.urandom(3000)],
)
def test_a_file_of_something_else_is_started_again(tmp_path: Path, content: bytes) -> None:
    embedder = Counting()
    CachedEmbedder(embedder, tmp_path).embed(["a"])
    file_of(tmp_path).write_bytes(content)

    rows = CachedEmbedder(embedder, tmp_path).embed(["a"])
    CachedEmbedder(embedder, tmp_path).embed(["a"])

    assert np.array_equal(rows[0], embedder.row("a"))
    assert embedder.asked == ["a", "a"]


@each_row("fill", [b"\0", b"\xff", b"\x7f"])
def test_vectors_that_are_overwritten_are_embedded_again(tmp_path: Path, fill: bytes) -> None:
    embedder = Counting()
    texts = [f"text {n}" for n in range(20)]
    cached = CachedEmbedder(embedder, tmp_path)
    cached.embed(texts)
    file = file_of(tmp_path)
    data = file.read_bytes()
    file.write_bytes(data[:500] + fill * 300 + data[800:])

    for reader in (cached, CachedEmbedder(embedder, tmp_path)):
        rows = reader.embed(texts)

        assert np.array_equal(rows, [embedder.row(text) for text in texts])
    assert len(embedder.asked) < 2 * len(texts)


def test_a_file_that_disappears_is_made_again(tmp_path: Path) -> None:
    embedder = Counting()
    cached = CachedEmbedder(embedder, tmp_path)
    cached.embed(["a", "b"])
    file_of(tmp_path).unlink()

    cached.embed(["c"])
    rows = cached.embed(["a", "b", "c"])

    assert np.array_equal(rows, [embedder.row(text) for text in "abc"])
    assert embedder.asked == ["a", "b", "c", "a", "b"]


@each_row("is_folder_in_the_way", [False, True])
def test_a_file_that_cannot_be_made_does_not_matter(
    tmp_path: Path, is_folder_in_the_way: bool
) -> None:
    (tmp_path / "file").write_text("in the way")
    embedder = Counting()
    cached = CachedEmbedder(embedder, tmp_path if is_folder_in_the_way else tmp_path / "file")
    if is_folder_in_the_way:
        cached._file._path.mkdir()

    rows = cached.embed(["a"])

    assert np.array_equal(rows[0], embedder.row("a"))


def test_a_full_disk_does_not_matter(tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run(
        [sys.executable, "-B", "-c", WRITER, str(tmp_path), "0", "100"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        preexec_fn=little_room,
        timeout=BOUND,
        check=True,
    )
    embedder = Counting()
    texts = [f"text {n}" for n in range(100)]
    rows = CachedEmbedder(embedder, tmp_path).embed(texts)

    assert done.stdout == b"done\n"
    assert 0 < len(embedder.asked) < 100
    assert np.array_equal(rows, [embedder.row(text) for text in texts])
