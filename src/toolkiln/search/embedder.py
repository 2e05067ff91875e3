"""Embedder protocol, and the cache of vectors on disk.

`bundled_embedder` and `openai_embedder` implement the protocol, and so does the cache. It has one
append-only file for each embedder: the dimensions, then records of equal size with the SHA-256 of a
text and its vector. The cache never fails a search: vectors it cannot read are embedded again.
Queries are not cached, because they rarely repeat.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from toolkiln.errors import ToolkilnError


class EmbeddingFailed(ToolkilnError):
    """The embedder failed; search falls back to words only."""

    code = "embedding_failed"


class Embedder(Protocol):
    """Turns texts into vectors whose dot product measures similarity."""

    @property
    def name(self) -> str:
        """Cache key: embedders with different vectors have different names."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector for each text, or zeros if no word is known.

        Raises:
            EmbeddingFailed: No vectors are available.
        """
        ...


_MAGIC = b"vectors1"
_HEADER = len(_MAGIC) + 4
_KEY = 32
_MAX_FILE_BYTES = 2_000_000_000
"""A larger file is truncated and started again."""
_BATCH = 1024
"""Texts embedded between two writes."""
_LOCK_TIMEOUT = 1.0
"""Seconds to wait for another writer; then these vectors are not cached."""
_READ_BYTES = 4_000_000


class CachedEmbedder:
    """Caches the vectors of another embedder; thread-safe."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        """Cache the vectors of `embedder` in a file in `folder`."""
        self._embedder = embedder
        self.name, self.dimensions = embedder.name, embedder.dimensions
        digest = sha256(embedder.name.encode("utf-8", "replace")).hexdigest()
        self._file = VectorFile(folder / f"{digest[:32]}.vectors", embedder.dimensions)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector for each text, embedding only texts that are not cached.

        Raises:
            EmbeddingFailed: The other embedder failed; vectors so far are cached.
        """
        keys = [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        rows = self._file.get(set(keys))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in rows}
        new_keys = list(missing)
        for start in range(0, len(new_keys), _BATCH):
            batch = new_keys[start : start + _BATCH]
            vectors = self._embedder.embed([missing[key] for key in batch])
            self._file.add(batch, vectors)
            rows.update(zip(batch, vectors, strict=True))
        if not keys:
            return np.zeros((0, self.dimensions), np.float32)
        return np.stack([rows[key] for key in keys])


class VectorFile:
    """Unit vectors by key, in a file shared by several processes."""

    def __init__(self, path: Path, dimensions: int) -> None:
        """Use a file; it is started again if its dimensions differ."""
        self._path = path
        self._header = _MAGIC + dimensions.to_bytes(4, "little")
        self._record = np.dtype([("key", f"V{_KEY}"), ("vector", "<f4", (dimensions,))])
        self._lock = Lock()
        self._positions: dict[bytes, int] = {}
        self._scanned = 0
        """Bytes of the file already scanned for keys."""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are present and undamaged."""
        size = self._record.itemsize
        try:
            with self._lock, self._path.open("rb") as file:
                self._scan_keys(file.fileno())
                known = [(key, self._positions[key]) for key in keys if key in self._positions]
                records = [(key, os.pread(file.fileno(), size, at)) for key, at in known]
        except OSError:
            return {}
        # Another process may have started the file again: compare the keys.
        whole = [data for key, data in records if len(data) == size and data[:_KEY] == key]
        vectors = np.frombuffer(b"".join(whole), self._record)["vector"]
        is_unit = _is_unit(vectors).tolist()  # the length reveals damage
        rows = zip(whole, vectors, is_unit, strict=True)
        return {data[:_KEY]: vector for data, vector, usable in rows if usable}

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Append vectors, if possible."""
        records = np.empty(len(keys), self._record)
        records["key"] = np.frombuffer(b"".join(keys), f"V{_KEY}")
        records["vector"] = vectors
        added = records[_is_unit(vectors)].tobytes()
        # A full disk or a read-only folder: search continues without a cache.
        with suppress(OSError), self._locked() as file:
            end = os.fstat(file).st_size
            if os.pread(file, _HEADER, 0) != self._header or end > _MAX_FILE_BYTES:
                os.ftruncate(file, 0)
                _write(file, self._header, 0)
                end = _HEADER
            # Overwrite a partial record of a process that was killed while writing.
            end -= (end - _HEADER) % records.itemsize
            os.ftruncate(file, end)
            _write(file, added, end)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _LOCK_TIMEOUT
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

    def _scan_keys(self, file: int) -> None:
        """Find the positions of records added since the last scan."""
        end, size = os.fstat(file).st_size, self._record.itemsize
        usable = os.pread(file, _HEADER, 0) == self._header
        if not usable or not _HEADER <= self._scanned <= end:
            self._positions.clear()
            self._scanned = _HEADER
        at_once = max(1, _READ_BYTES // size)
        while usable and (count := min((end - self._scanned) // size, at_once)) > 0:
            block = os.pread(file, count * size, self._scanned)
            if len(block) < count * size:
                return
            keys = np.frombuffer(block, self._record)["key"].tolist()
            positions = range(self._scanned, self._scanned + len(block), size)
            self._positions.update(zip(keys, positions, strict=True))
            self._scanned += len(block)


def _is_unit(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    # Neither zeros nor damaged by a power cut.
    lengths: NDArray[np.float32] = np.einsum("ij,ij->i", vectors, vectors)
    return np.abs(lengths - 1) < 1e-3


def _write(file: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
