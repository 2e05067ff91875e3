"""Tools that the scenarios call by name, and that ask something of whoever is at the client."""

from typing import Any

from toolkiln import Context, Filled, Form, Roots, Sample, tool

NAME = Form("What is your name?", {"name": str}, name="user_name")
CHOICES = ("option1", "option2", "option3")


@tool(needs_approval=True)
def test_streaming_elicitation() -> str:
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


@tool
def test_elicitation(message: str, ctx: Context) -> str:
    """Ask a person for their name and address.

    Args:
        message: What to ask.
    """
    return _told(ctx.ask(Form(message, {"username": str, "email": str})))


@tool
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default for every type."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    }
    return _told(ctx.ask(Form("Is this right?", fields)))


@tool
def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for choices of every kind."""
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    named = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]}
    fields = {
        "untitledSingle": {"type": "string", "enum": CHOICES},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", **named},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return _told(ctx.ask(Form("Which of these?", fields)))


@tool
def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask.
    """
    return f"LLM response: {ctx.ask(Sample(prompt, max_tokens=100))}"


@tool
def test_missing_capability(ctx: Context) -> str:
    """Ask the client's model, whether there is one or not."""
    return ctx.ask(Sample("Are you there?", max_tokens=10)).text


@tool
def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet a person by the name that they give."""
    return f"Hello, {ctx.ask(NAME)['name']}!"


@tool
def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    question = Sample("What is the capital of France?", max_tokens=100, name="capital_question")
    return ctx.ask(question).text


@tool
def test_input_required_result_list_roots(ctx: Context) -> str:
    """Tell which folders the client works in."""
    return ", ".join(root.uri for root in ctx.ask(Roots(name="client_roots")))


@tool
def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask a person, a model and the client at once."""
    greeting = Sample("Generate a greeting", max_tokens=50, name="greeting")
    person, said, roots = ctx.ask(NAME, greeting, Roots(name="client_roots"))
    return f"{said} {person['name']}, in {len(roots)} folder"


@tool
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, the second time for something else."""
    first = ctx.ask(Form("Step 1: What is your name?", {"name": str}, name="step1"))
    color = Form("Step 2: What is your favorite color?", {"color": str}, name="step2")
    return f"{first['name']} likes {ctx.ask(color)['color']}"


@tool
def test_input_required_result_capabilities(ctx: Context) -> list[str]:
    """Ask whoever can be asked."""
    questions: dict[type[Any], Any] = {Form: NAME, Sample: Sample("Who are you?", name="model")}
    return [str(ctx.ask(asked)) for kind, asked in questions.items() if ctx.can_ask(kind)]


def _told(given: Filled) -> str:
    return f"Elicitation completed: action={given.action}, content={dict(given.values)}"
