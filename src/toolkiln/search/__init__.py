"""Search: documents, embedders and the index."""
