"""The part that lives inside the sandbox: standard library only, pydantic if the environment
has it."""
