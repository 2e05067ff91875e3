"""MCP: the catalog for clients of both protocol eras, over stdio and streamable HTTP."""
