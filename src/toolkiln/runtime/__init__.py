"""Code that runs inside the sandbox. It uses the standard library, and pydantic if a tool imports
it."""
