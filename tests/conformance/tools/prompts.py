"""Prompts that the scenarios ask for by name."""

from typing import Any

from toolkiln import Context, Form, prompt


@prompt
def test_simple_prompt() -> str:
    """Say one sentence."""
    return "This is a simple prompt for testing."


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Say two arguments again.

    Args:
        arg1: The first one.
        arg2: The second one.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[dict[str, Any]]:
    """Show a document, and ask for it to be processed.

    Args:
        resourceUri: The address of the document.
    """
    document = {
        "uri": resourceUri,
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    }
    return [
        {"role": "user", "content": {"type": "resource", "resource": document}},
        {"role": "user", "content": "Please process the embedded resource above."},
    ]


@prompt
def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask the person at the client for the context of a prompt."""
    asked = Form("What context should the prompt use?", {"context": str}, name="user_context")
    return f"Use this context: {ctx.ask(asked)['context']}"
