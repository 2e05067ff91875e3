"""Tool schemas at work: health, provider formats, argument checks.

`health` rates a schema, `compile_tool` translates it for a provider and back, `check`
validates arguments, `signature_mismatches` compares it with the imported function,
`secret_fields` lists the secrets of a settings schema, `result_structurer` shapes results
for MCP. Generating a schema from source is up to `spec`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkiln.schema.argument_problems import ArgumentProblem, unknown_tool
from toolkiln.schema.arguments import (
    ArgumentChecker,
    Checked,
    Problems,
    check,
    is_quick,
    parse_texts,
)
from toolkiln.schema.document import JsonLimits, secret_fields
from toolkiln.schema.health import health
from toolkiln.schema.providers import (
    PROVIDERS,
    Compiled,
    Loss,
    Provider,
    compile_tool,
    deferred_request_tools,
    request_tools,
)
from toolkiln.schema.providers.mcp import result_structurer
from toolkiln.schema.signature_match import RuntimeParameter, RuntimeSignature, signature_mismatches

if TYPE_CHECKING:
    from toolkiln.schema.examples import example_calls
    from toolkiln.schema.providers.messages import Message, MessageFormat, ToolCall, ToolReply, read

__all__ = [
    "PROVIDERS",
    "ArgumentChecker",
    "ArgumentProblem",
    "Checked",
    "Compiled",
    "JsonLimits",
    "Loss",
    "Message",
    "MessageFormat",
    "Problems",
    "Provider",
    "RuntimeParameter",
    "RuntimeSignature",
    "ToolCall",
    "ToolReply",
    "check",
    "compile_tool",
    "deferred_request_tools",
    "example_calls",
    "health",
    "is_quick",
    "parse_texts",
    "read",
    "request_tools",
    "result_structurer",
    "secret_fields",
    "signature_mismatches",
    "unknown_tool",
]


_HOMES = {
    "Message": "toolkiln.schema.providers.messages",
    "ToolCall": "toolkiln.schema.providers.messages",
    "ToolReply": "toolkiln.schema.providers.messages",
    "MessageFormat": "toolkiln.schema.providers.messages",
    "read": "toolkiln.schema.providers.messages",
    "example_calls": "toolkiln.schema.examples",
}


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
