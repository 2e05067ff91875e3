"""Rows: the matrix of vectors that several generations of an index share.

A row that a generation uses is never written again, so that its readers need no lock. New
documents take rows that no generation on this matrix has ever used; when none are left, they
move with all living rows to a matrix of their own. Ranking is `index`'s business.
"""

from threading import Lock

import numpy as np
from numpy.typing import NDArray

_SPARE = 32
"""Rows that a small matrix has to spare, so that it is not moved with every change."""


class Rows:
    """Vectors by slot, with the slots that are still free."""

    __slots__ = ("_free", "_lock", "vectors")

    def __init__(self, vectors: NDArray[np.float32], free: list[int]) -> None:
        self.vectors = vectors
        self._free = sorted(free, reverse=True)
        self._lock = Lock()

    @classmethod
    def empty(cls, dimensions: int) -> "Rows":
        """No rows at all."""
        return cls(np.zeros((0, dimensions), np.float32), [])

    def placed(
        self, vectors: NDArray[np.float32], living: NDArray[np.bool_]
    ) -> tuple["Rows", list[int]]:
        """The matrix that holds the vectors too, and their slots in it."""
        rows, count = self, len(vectors)
        with self._lock:
            slots = [self._free.pop() for _ in range(count)] if count <= len(self._free) else []
        if len(slots) < count:
            rows = self._moved(count, living)
            slots = [rows._free.pop() for _ in range(count)]
        rows.vectors[slots] = vectors
        return rows, slots

    def _moved(self, count: int, living: NDArray[np.bool_]) -> "Rows":
        """A copy with room for `count` and a quarter more, its dead rows free."""
        kept = len(living)
        needed = int(living.sum()) + count + _SPARE
        vectors = np.zeros((max(kept, needed + needed // 4), self.vectors.shape[1]), np.float32)
        vectors[:kept] = self.vectors[:kept]
        free = [*np.flatnonzero(~living).tolist(), *range(kept, len(vectors))]
        return Rows(vectors, free)
