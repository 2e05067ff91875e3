"""Search: documents, embedders and the index; names (and numpy) are loaded on first use."""
