"""What is done with a tool's schema: judging it, compiling it for providers, checking calls.

`health` judges, `compile_tool` translates for a provider and back, `check` holds
arguments against it, `disagreements` the function that was imported, `secret_fields` tells
what of a settings schema nobody is shown, `structuring` puts results into the form that was
promised. How a schema comes about is `spec`'s business.
"""

from toolkiln.schema.agreement import RuntimeParameter, RuntimeSignature, disagreements
from toolkiln.schema.arguments import ArgumentChecker, Checked, Problems, check, is_quick
from toolkiln.schema.health import health
from toolkiln.schema.problems import Problem, unknown_tool
from toolkiln.schema.providers import (
    PROVIDERS,
    Compiled,
    Loss,
    compile_tool,
    deferring_request,
    request_tools,
)
from toolkiln.schema.returned import structuring
from toolkiln.schema.secret_fields import secret_fields
from toolkiln.schema.structure import Sizes

__all__ = [
    "PROVIDERS",
    "ArgumentChecker",
    "Checked",
    "Compiled",
    "Loss",
    "Problem",
    "Problems",
    "RuntimeParameter",
    "RuntimeSignature",
    "Sizes",
    "check",
    "compile_tool",
    "deferring_request",
    "disagreements",
    "health",
    "is_quick",
    "request_tools",
    "secret_fields",
    "structuring",
    "unknown_tool",
]
