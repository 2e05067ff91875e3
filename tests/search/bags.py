"""A small embedder for tests: a text is the bag of its words, and nothing is random."""

from collections.abc import Sequence
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


def tool(name: str, description: str = "", *usages: str, **fields: str) -> SearchDocument:
    """A document as tools make them."""
    return SearchDocument(name, {"name": name, "description": description, **fields}, usages)
