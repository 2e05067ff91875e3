"""Stand-in for LangChain's copies of pydantic's first version, which pydantic still contains."""

from pydantic.v1 import *  # noqa: F403
