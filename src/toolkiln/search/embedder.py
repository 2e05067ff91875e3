"""The embedder protocol: the boundary between the index and what turns text into vectors.

An embedder knows nothing of documents, ranking or caches. `vectors` holds the bundled one,
`embedding` the one that asks an endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from toolkiln.errors import ToolkilnError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EmbeddingFailed(ToolkilnError):
    """The embedder does not answer; search goes on by words alone."""

    code = "embedding_failed"


class Embedder(Protocol):
    """Turns texts into vectors whose dot product says how alike their meanings are."""

    @property
    def name(self) -> str:
        """What a cache is keyed by: another name, other vectors."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length one for each text; a text without a known word may be zero.

        Raises:
            EmbeddingFailed: It does not answer.
        """
        ...
