"""Names of the modules that have stand-ins.

Reading a file needs the names only; `finder` imports the stand-ins, in the sandbox.
"""

_MODULES = {
    "agno": (
        "agno.agent", "agno.agent.agent", "agno.exceptions", "agno.media", "agno.run",
        "agno.run.base", "agno.team", "agno.team.team", "agno.tools", "agno.tools.decorator",
        "agno.tools.function", "agno.tools.toolkit", "agno.utils.log", "agno.utils.path_safety",
    ),
    "agent_state": ("letta.schemas.agent",),
    "atloop": ("atloop.tools", "atloop.tools.base", "atloop.tools.output_semantic_type"),
    "fastmcp": (
        "fastmcp", "fastmcp.dependencies", "fastmcp.exceptions", "fastmcp.prompts",
        "fastmcp.prompts.prompt", "fastmcp.resources", "fastmcp.server", "fastmcp.server.context",
        "fastmcp.server.dependencies", "fastmcp.server.elicitation", "fastmcp.tools",
        "fastmcp.tools.tool", "fastmcp.types", "fastmcp.utilities.logging",
        "fastmcp.utilities.types",
        "mcp.server", "mcp.server.elicitation", "mcp.server.fastmcp",
        "mcp.server.fastmcp.exceptions", "mcp.server.fastmcp.prompts",
        "mcp.server.fastmcp.prompts.base", "mcp.server.fastmcp.utilities.logging",
        "mcp.server.mcpserver", "mcp.types",
    ),
    "langchain": (
        "crewai.tools", "crewai.tools.base_tool", "crewai.tools.structured_tool",
        "langchain.agents", "langchain.agents.tools", "langchain.callbacks.manager",
        "langchain.messages", "langchain.schema", "langchain.tools", "langchain.tools.base",
        "langchain_core.callbacks", "langchain_core.callbacks.manager",
        "langchain_core.documents", "langchain_core.messages", "langchain_core.runnables",
        "langchain_core.runnables.config", "langchain_core.tools", "langchain_core.tools.base",
        "langchain_core.tools.convert", "langchain_core.tools.simple",
        "langchain_core.tools.structured", "langgraph.prebuilt", "langgraph.types",
    ),
    "open_webui.env": ("open_webui.env",),
    "open_webui.messages": ("open_webui.utils.misc",),
    "open_webui.models": (
        "open_webui.apps.webui.models.users",
        "open_webui.models.users",
        "open_webui.routers.files",
    ),
    "pydantic_v1": ("langchain.pydantic_v1", "langchain_core.pydantic_v1"),
    "responses": (
        "fastapi", "fastapi.concurrency", "fastapi.exceptions", "fastapi.responses",
        "starlette.concurrency", "starlette.datastructures", "starlette.exceptions",
        "starlette.requests", "starlette.responses",
    ),
    "smolagents": ("smolagents", "smolagents.tools"),
    "tool_context": ("tool_context",),
    "suna": (
        "agentpress.tool", "core.agentpress.tool", "core.sandbox.tool_base", "core.utils.config",
        "core.utils.logger",
    ),
}  # fmt: skip
"""Modules of the frameworks, by the stand-in in this package that has their names."""

STAND_INS = {name: stand_in for stand_in, names in _MODULES.items() for name in names}
"""Stand-in in this package, by the name under which tools import it."""

_SUNA = (
    "agentpress", "agents", "ai_models", "billing", "cache", "composio_integration", "config",
    "config_helper", "credentials", "files", "google", "jit", "knowledge_base", "mcp_module",
    "memory", "notifications", "resources", "runtime_cache", "sandbox", "services", "templates",
    "threads", "tools", "triggers", "utils", "vapi_config", "versioning",
)  # fmt: skip
INSTALLABLE = frozenset(
    {
        "agno",
        "atloop",
        "crewai",
        "fastmcp",
        "langchain",
        "langchain_core",
        "langgraph",
        "mcp",
        "smolagents",
    }
)
"""Packages that a tool can require, to get the framework itself."""
ANY_MODULE = frozenset(
    {*INSTALLABLE, "agentpress", "open_webui", *(f"core.{name}" for name in _SUNA)}
)
"""Packages of which all modules can be imported. Of `core`, a name that others use too, only
Suna's packages."""

OLD_MODULES = {
    "core": frozenset(
        {"agent", "mcp_module", "pipedream", "sandbox", "services", "triggers", "utils"}
    ),
    "open_webui": frozenset({"apps", "config", "constants", "main", "utils"}),
}
"""Modules that first versions of Suna and Open WebUI had at the top, by the package that has them
since; only their tool files mean these."""

_INJECTED = {
    "agno": {
        "Agent": "agno:CallingAgent",
        "RunContext": "agno:RunContext",
        "Team": "agno:CallingAgent",
    },
    "fastmcp": {"Context": "fastmcp:Context", "Progress": "fastmcp:Progress"},
    "langchain": {
        "AsyncCallbackManagerForToolRun": "default",
        "CallbackManagerForToolRun": "default",
        "InjectedState": "langchain:state",
        "InjectedStore": "langchain:store",
        "InjectedToolArg": "default",
        "InjectedToolCallId": "langchain:call_id",
        "RunnableConfig": "langchain:config",
        "ToolRuntime": "langchain:ToolRuntime",
    },
    "tool_context": {"ToolContext": "context"},
}
INJECTED_TYPES: dict[str, str] = {
    f"{module}.{name}": kind
    for stand_in, kinds in _INJECTED.items()
    for module in _MODULES[stand_in]
    for name, kind in kinds.items()
    if module != "mcp.server"
} | {"tool_context.ToolContext": "context"}
"""Parameter types that the runtime fills in, by dotted name: the stand-in that a call creates from
its context, as `module:name` in this package, or `default` for the parameter's default."""

INJECTED_DEFAULTS = frozenset(
    f"fastmcp.{module}.{name}"
    for module in ("dependencies", "server.dependencies")
    for name in ("Depends", "CurrentAccessToken", "CurrentFastMCP", "CurrentHeaders",
                 "CurrentRequest")
)  # fmt: skip
"""Functions whose call, as a default, says that the framework fills a parameter in."""

TOOL_OBJECTS: dict[str, tuple[str, ...]] = {
    "agno": ("entrypoint",),
    "crewai": ("func",),
    "fastmcp": ("fn",),
    "langchain_core": ("func", "coroutine"),
    "mcp": ("fn",),
    "smolagents": ("forward.__wrapped__",),
}
"""Where the tool objects of installed frameworks keep their function, by top-level package."""

RESULTS = {"agno": "agno", "fastmcp": "fastmcp", "mcp": "fastmcp", "mcp_types": "fastmcp"}
"""Stand-ins that know the results of installed frameworks, by top-level package."""

TOOL_ERRORS = {
    "agno": "AgentRunException",
    "fastmcp": "ToolError",
    "langchain_core": "ToolException",
    "mcp": "ToolError",
}
"""Exceptions of installed frameworks whose message is for the model, by top-level package."""

PACKAGES = frozenset(
    name[:at]
    for name in (*STAND_INS, *ANY_MODULE)
    for at, character in enumerate(name)
    if character == "."
)
"""Packages with stand-ins or such packages in them."""


def is_provided(module: str, *, framework: str = "") -> bool:
    """Return whether the sandbox provides a module to a file, by its dotted name.

    `framework` is the package in `OLD_MODULES` that the file is written for, if it is any.
    """
    if module in STAND_INS or module in PACKAGES:
        return True
    if module.partition(".")[0] in OLD_MODULES.get(framework, ()):
        return True
    parts = module.split(".")
    return any(".".join(parts[:count]) in ANY_MODULE for count in range(1, len(parts) + 1))
