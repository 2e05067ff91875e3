"""The command for MCP clients that start a process: `toolkiln mcp`."""

import gc

import typer

from toolkiln.surfaces.cli.shell import DevOption, RedisOption, ToolsOption, app, errors


@app.command()
def mcp(
    tools: ToolsOption = None,
    dev: DevOption = False,
    redis: RedisOption = None,
) -> None:
    """Speak MCP over stdin and stdout, until the client closes them."""
    gc.disable()  # a client waits, and nothing is thrown away yet; `mcp_serving` turns it on
    from toolkiln.surfaces.cli import mcp_serving

    with errors():
        raise typer.Exit(mcp_serving.serve(tools, redis, dev=dev))
