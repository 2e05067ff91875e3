"""Embedder protocol, implemented by `bundled_embedder`, `openai_embedder` and `vector_cache`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from toolkiln.errors import ToolkilnError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
