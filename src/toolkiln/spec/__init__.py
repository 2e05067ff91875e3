"""Static reader: source text → `ToolSpec`s and findings, without running the source."""
