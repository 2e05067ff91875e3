"""Stand-in for the tools of LangChain and CrewAI: `BaseTool`, `tool` and `StructuredTool`.

What these frameworks inject comes from the call's context. Models, chains, agents and stores
are unavailable.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from pydantic import BaseModel, ConfigDict

from toolkiln.define import Context, ToolError
from toolkiln.frameworks.reply import Reply
from toolkiln.frameworks.unavailable import Unavailable


class ToolException(ToolError):
    """Raised by a tool that cannot do what it was asked."""


class _Invocable:
    """What code that calls a tool of the same file uses."""

    def invoke(self, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002 - LangChain's name
        """Run the tool with arguments as a dict, or with a single one."""
        function: Any = self
        while not inspect.isroutine(function):
            function = getattr(function, "func", None) or function._run
        if isinstance(input, dict):
            return function(**input)
        return function(input)

    async def ainvoke(self, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002
        """Run the tool, also one that has only a coroutine."""
        function: Any = getattr(self, "coroutine", None) or getattr(self, "_arun", None)
        if function is None:
            return await asyncio.to_thread(self.invoke, input)
        return await (function(**input) if isinstance(input, dict) else function(input))

    def run(self, *arguments: Any, **named: Any) -> Any:
        """Run the tool, as `invoke` does."""
        return self.invoke(*arguments) if arguments else self.invoke(named)

    arun = ainvoke


class BaseTool(_Invocable, BaseModel):
    """Base class of a tool; subclasses implement `_run` or `_arun`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = ""
    description: str = ""
    args_schema: Any = None
    return_direct: bool = False
    response_format: str = "content"
    verbose: bool = False
    callbacks: Any = None
    tags: Any = None
    metadata: Any = None
    handle_tool_error: Any = False
    handle_validation_error: Any = False
    result_as_answer: bool = False
    env_vars: Any = None
    package_dependencies: Any = None
    cache_function: Any = None
    max_usage_count: Any = None


class StructuredTool(_Invocable):
    """A tool made of a function."""

    __module__ = "langchain_core.tools"

    def __init__(
        self,
        name: str = "",
        func: Any = None,
        description: str = "",
        coroutine: Any = None,
        args_schema: Any = None,
        **options: Any,
    ) -> None:
        self.response_format = "content"
        self.__dict__.update(options)
        self.func, self.coroutine, self.args_schema = func, coroutine, args_schema
        function = func or coroutine
        self.name = name or function.__name__
        self.description = description or inspect.getdoc(function) or ""

    @classmethod
    def from_function(
        cls,
        func: Any = None,
        coroutine: Any = None,
        name: str | None = None,
        description: str | None = None,
        **options: Any,
    ) -> StructuredTool:
        """Return a tool that runs a function."""
        return cls(name or "", func, description or "", coroutine, **options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the function of the tool."""
        return (self.func or self.coroutine)(*arguments, **named)


class Tool(StructuredTool):
    """A tool that takes one text."""

    __module__ = "langchain_core.tools"

    @classmethod
    def from_function(  # type: ignore[override]
        cls, func: Any = None, name: str = "", description: str = "", **options: Any
    ) -> Tool:
        """Return a tool that runs a function."""
        return cls(name, func, description, **options)


def tool(name_or_function: Any = None, function: Any = None, *_: Any, **options: Any) -> Any:
    """Make a tool of a function, or return a decorator that does."""
    name = name_or_function if isinstance(name_or_function, str) else ""

    def decorate(function: Any) -> StructuredTool:
        kind = "coroutine" if inspect.iscoroutinefunction(function) else "func"
        return StructuredTool(**{"name": name, kind: function, **options})

    if callable(name_or_function):
        return decorate(name_or_function)
    return decorate if function is None else decorate(function)


class BaseToolkit(BaseModel):
    """Base class of a group of tools."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


class CallbackManagerForToolRun:
    """Type of the callbacks of a run, of which there are none."""


class AsyncCallbackManagerForToolRun(CallbackManagerForToolRun):
    """Type of the callbacks of an asynchronous run."""


class RunnableConfig(dict[str, Any]):
    """Type of a run's configuration."""


class InjectedToolArg:
    """Mark of a parameter that no model passes."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the name of a field of the state."""


InjectedToolCallId = InjectedState = InjectedStore = InjectedToolArg


class ToolRuntime:
    """State, configuration and identity of a call."""

    def __init__(self, ctx: Context) -> None:
        self.state = state(ctx)
        self.config = config(ctx)
        self.context = dict(self.config["configurable"])
        self.tool_call_id = call_id(ctx)
        self.store = store(ctx)
        self.stream_writer = ctx.send_message

    def __class_getitem__(cls, _: Any) -> type:
        return cls


def config(ctx: Context) -> RunnableConfig:
    """Return the configuration of a call; its thread is the caller."""
    thread = ctx.channel_id or ctx.agent_id or ctx.user_id
    configurable = {"thread_id": thread, "user_id": ctx.user_id}
    return RunnableConfig(configurable=configurable, tags=[], metadata={}, callbacks=None)


def state(ctx: Context, field: str = "") -> Any:
    """Return the state of the agent, or one field of it."""
    return ctx.agent_state.get(field) if field else ctx.agent_state


def store(_: Context) -> Unavailable:
    """Return a placeholder of LangGraph's store."""
    return Unavailable("langgraph.store", "keep data in agent_state or in the workspace")


def call_id(_: Context) -> str:
    """Return no id: the caller matches results with calls."""
    return ""


class Message(Reply):
    """A message, which a tool may return instead of its text."""

    def __init__(self, content: Any = "", **fields: Any) -> None:
        self.__dict__.update(fields)
        self.content = self.reply_value = content


HumanMessage = AIMessage = SystemMessage = ToolMessage = BaseMessage = Message


class Command(Reply):
    """A change of the graph's state; the model gets the messages in it."""

    def __init__(self, *, update: Any = None, goto: Any = (), **_: Any) -> None:
        self.update, self.goto = update, goto
        messages = update.get("messages") if isinstance(update, dict) else None
        contents = [getattr(message, "content", message) for message in messages or ()]
        self.reply_value = contents[0] if len(contents) == 1 else contents or update


class Document(BaseModel):
    """A text with metadata."""

    page_content: str
    metadata: dict[str, Any] = {}
    id: str | None = None

    def __init__(self, page_content: str = "", **fields: Any) -> None:
        super().__init__(page_content=page_content, **fields)
