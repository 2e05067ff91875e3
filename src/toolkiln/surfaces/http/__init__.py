"""The HTTP API: `/v1`, its description, health and metrics, and `/mcp` beside it.

Each operation is a value (`operations.Operation`): the routes, the checks of what comes in
and the OpenAPI description are made from the same ones, so that none can differ.
"""
