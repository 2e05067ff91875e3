"""Search: documents, embedders and the index; names (and numpy) are loaded on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.search.bundled_embedder import BundledEmbedder
    from toolkiln.search.documents import SearchDocument, document
    from toolkiln.search.embedder import Embedder, EmbeddingFailed
    from toolkiln.search.evaluation import (
        Comparison,
        Evaluation,
        QueryOutcome,
        SearchFunction,
        compare,
        evaluate,
        read_cases,
        read_evaluation,
    )
    from toolkiln.search.index import SearchIndex
    from toolkiln.search.openai_embedder import OpenAIEmbedder
    from toolkiln.search.vector_cache import CachedEmbedder

_HOMES = {
    "BundledEmbedder": "bundled_embedder",
    "CachedEmbedder": "vector_cache",
    "Comparison": "evaluation",
    "Embedder": "embedder",
    "EmbeddingFailed": "embedder",
    "Evaluation": "evaluation",
    "OpenAIEmbedder": "openai_embedder",
    "QueryOutcome": "evaluation",
    "SearchDocument": "documents",
    "SearchFunction": "evaluation",
    "SearchIndex": "index",
    "compare": "evaluation",
    "document": "documents",
    "evaluate": "evaluation",
    "read_cases": "evaluation",
    "read_evaluation": "evaluation",
}

__all__ = [
    "BundledEmbedder",
    "CachedEmbedder",
    "Comparison",
    "Embedder",
    "EmbeddingFailed",
    "Evaluation",
    "OpenAIEmbedder",
    "QueryOutcome",
    "SearchDocument",
    "SearchFunction",
    "SearchIndex",
    "compare",
    "document",
    "evaluate",
    "read_cases",
    "read_evaluation",
]


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
