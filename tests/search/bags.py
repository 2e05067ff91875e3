"""Small embedders for tests: bags of words, and vectors of their own for each text."""

from collections.abc import Sequence
from hashlib import sha256
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from toolkiln.search.documents import SearchDocument
from toolkiln.search.embedder import EmbeddingFailed

MEANINGS = {"forecast": "weather", "climate": "weather", "money": "currency", "cash": "currency"}
"""Words that mean the same to it."""


class Bags:
    """Embeds; while `broken` it does not answer."""

    name = "bags"
    dimensions = 64

    def __init__(self) -> None:
        self.broken = False
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken:
            raise EmbeddingFailed("the embeddings endpoint does not answer")
        self.texts += texts
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row[crc32(MEANINGS.get(word, word).encode()) % self.dimensions] += 1
            row /= max(float(np.linalg.norm(row)), 1.0)
        return rows


class Counting:
    """An embedder that records what it was asked, and fails on demand."""

    def __init__(self, name: str = "counting", dimensions: int = 8) -> None:
        self.name = name
        self.dimensions = dimensions
        self.asked: list[str] = []
        self.fails_after: int | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            raise EmbeddingFailed("it is down")
        self.asked += texts
        return np.array([self.row(text) for text in texts], np.float32).reshape(
            len(texts), self.dimensions
        )

    def row(self, text: str) -> NDArray[np.float32]:
        if not text:
            return np.zeros(self.dimensions, np.float32)
        seed = int.from_bytes(sha256(text.encode("utf-8", "replace")).digest()[:4], "little")
        row = np.random.default_rng(seed).normal(size=self.dimensions)
        return (row / np.linalg.norm(row)).astype(np.float32)


def tool(name: str, description: str = "", *usages: str, **fields: str) -> SearchDocument:
    """A document as tools make them."""
    return SearchDocument(name, {"name": name, "description": description, **fields}, usages)
