"""Search: documents, an index of them, and what ranks them for a text.

Names are loaded on first use: numpy is, with the first index.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.search.documents import Document, document
    from toolkiln.search.embedder import Embedder, EmbeddingFailed
    from toolkiln.search.endpoint import Endpoint
    from toolkiln.search.index import Index
    from toolkiln.search.vector_cache import Cached
    from toolkiln.search.vectors import Bundled

_HOMES = {
    "Bundled": "vectors",
    "Cached": "vector_cache",
    "Document": "documents",
    "Embedder": "embedder",
    "EmbeddingFailed": "embedder",
    "Endpoint": "endpoint",
    "Index": "index",
    "document": "documents",
}

__all__ = [
    "Bundled",
    "Cached",
    "Document",
    "Embedder",
    "EmbeddingFailed",
    "Endpoint",
    "Index",
    "document",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
