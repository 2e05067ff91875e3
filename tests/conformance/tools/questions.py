"""Tools that the scenarios call by name, and that wait for the person at the client."""

from toolkiln import tool


@tool(needs_approval=True)
def test_streaming_elicitation() -> str:
    """Run once a person has said yes."""
    return "A person said yes."


@tool(needs_approval=True)
def test_elicitation(message: str) -> str:
    """Run once a person has said yes.

    Args:
        message: What to ask.
    """
    return f"User response: yes {message}"


@tool(needs_approval=True)
def test_input_required_result_elicitation() -> str:
    """Run once a person has said yes."""
    return "A person said yes."


@tool(needs_approval=True)
def test_input_required_result_request_state() -> str:
    """Run once a person has said yes."""
    return "A person said yes: state-ok."


@tool(needs_approval=True)
def test_input_required_result_tampered_state() -> str:
    """Run once a person has said yes."""
    return "A person said yes."
