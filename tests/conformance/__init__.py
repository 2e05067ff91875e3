"""Outside checks of the MCP surface: other people's clients against our server."""
