"""Vectors kept on disk, so that documents are embedded once and not with every start.

One file for each embedder: its dimensions, then records of equal size that are only ever
added, each the SHA-256 of a text and its vector. Nothing here can fail a search: what cannot
be read or written is embedded again. It is meant for documents; queries differ every time.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from toolkiln.search.embedder import Embedder

_MAGIC = b"vectors1"
_HEADER = len(_MAGIC) + 4
_KEY = 32
_LARGEST = 2_000_000_000
"""Bytes at which a file is begun anew."""
_AT_ONCE = 1024
"""Texts embedded before they are kept: what a stop in the middle loses."""
_PATIENCE = 1.0
"""Seconds to wait for another process that is adding; then these vectors are not kept."""
_BLOCK = 4_000_000


class Cached:
    """An embedder that remembers what another one said; safe to be used by several threads."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        """Keep the vectors of `embedder` in a file of `folder`."""
        self._embedder = embedder
        digest = sha256(embedder.name.encode("utf-8", "replace")).hexdigest()
        self._file = VectorFile(folder / f"{digest[:32]}.vectors", embedder.dimensions)

    @property
    def name(self) -> str:
        """The name of the other embedder."""
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        return self._embedder.dimensions

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The rows of the other embedder, which is asked only for texts it has not seen.

        Raises:
            EmbeddingFailed: The other embedder fails; what it said before that is kept.
        """
        keys = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        rows = self._file.get(set(keys))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in rows}
        for some in _portions(missing):
            found = self._embedder.embed([missing[key] for key in some])
            self._file.add(some, found)
            rows.update(zip(some, found, strict=True))
        wanted = [rows[key] for key in keys]
        return np.stack(wanted) if wanted else np.zeros((0, self.dimensions), np.float32)


class VectorFile:
    """Vectors of length one by key, in a file that several processes read and add to."""

    def __init__(self, path: Path, dimensions: int) -> None:
        """Use a file; one of other dimensions is begun anew."""
        self._path = path
        self._header = _MAGIC + dimensions.to_bytes(4, "little")
        self._record = np.dtype([("key", f"V{_KEY}"), ("vector", "<f4", (dimensions,))])
        self._lock = Lock()
        self._positions: dict[bytes, int] = {}
        self._seen = 0
        """How far the file has been read for keys."""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors that are there and whole."""
        size = self._record.itemsize
        try:
            with self._lock, self._path.open("rb") as file:
                self._look_for_keys(file.fileno())
                wanted = [(key, self._positions[key]) for key in keys if key in self._positions]
                read = [(key, os.pread(file.fileno(), size, at)) for key, at in wanted]
        except OSError:
            return {}
        # A record may be another one by now, if the file was begun anew.
        whole = [data for key, data in read if len(data) == size and data[:_KEY] == key]
        vectors = np.frombuffer(b"".join(whole), self._record)["vector"]
        good = _is_unit(vectors).tolist()  # damage shows in the length
        kept = zip(whole, vectors, good, strict=True)
        return {data[:_KEY]: vector for data, vector, usable in kept if usable}

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Keep vectors, if that is possible."""
        records = np.empty(len(keys), self._record)
        records["key"] = np.frombuffer(b"".join(keys), f"V{_KEY}")
        records["vector"] = vectors
        added = records[_is_unit(vectors)].tobytes()
        # A full disk, a folder that is not ours: search goes on without a cache.
        with suppress(OSError), self._exclusively() as file:
            end = os.fstat(file).st_size
            if os.pread(file, _HEADER, 0) != self._header or end > _LARGEST:
                os.ftruncate(file, 0)
                _write(file, self._header, 0)
                end = _HEADER
            # What a process left that was killed while adding is written over.
            end -= (end - _HEADER) % records.itemsize
            os.ftruncate(file, end)
            _write(file, added, end)

    @contextmanager
    def _exclusively(self) -> Iterator[int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.01)
            yield file
        finally:
            os.close(file)

    def _look_for_keys(self, file: int) -> None:
        """Learn where the records are that were added since the last time."""
        end, size = os.fstat(file).st_size, self._record.itemsize
        usable = os.pread(file, _HEADER, 0) == self._header
        if not usable or not _HEADER <= self._seen <= end:
            self._positions.clear()
            self._seen = _HEADER
        while usable and (count := min((end - self._seen) // size, max(1, _BLOCK // size))) > 0:
            block = os.pread(file, count * size, self._seen)
            if len(block) < count * size:
                return
            keys = np.frombuffer(block, self._record)["key"].tolist()
            places = range(self._seen, self._seen + len(block), size)
            self._positions.update(zip(keys, places, strict=True))
            self._seen += len(block)


def _is_unit(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows have length one: neither zeros nor what damage or a power cut leaves."""
    lengths: NDArray[np.float32] = np.einsum("ij,ij->i", vectors, vectors)
    return np.abs(lengths - 1) < 1e-3


def _write(file: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written


def _portions(missing: Mapping[bytes, str]) -> Iterator[list[bytes]]:
    keys = list(missing)
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
