"""The project that every door opens, made once and copied for each door."""

import json

import pytest

from .doors import Project

SETTINGS = """
approval_seconds = 30

[[rules]]
effect = "deny"
tools = ["forbidden"]
reason = "not for anyone"

[[rules]]
effect = "ask"
tools = ["pay"]

[rates.limited]
caller = "1/hour"

[grants.keyed]
secrets = ["TOKEN"]

[grants.noted]
secrets = ["TOKEN"]
"""
SECRET = "s3cr3t-of-the-contract"
TOOLS = '''from toolkiln import Context, tool


@tool
def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello {name}"


@tool
def forbidden() -> str:
    """Do what the rules deny."""
    return "done"


@tool
def limited() -> str:
    """Do what may be done once an hour."""
    return "done"


@tool
def pay(amount: int) -> int:
    """Pay an amount, once a person has approved it."""
    return amount


@tool(requires_secrets=["TOKEN"])
def keyed(ctx: Context) -> str:
    """Use a secret that is granted."""
    return f"the key is {ctx.secrets['TOKEN']}"


@tool(requires_secrets=["TOKEN"])
def noted(ctx: Context, agent_state: "AgentState") -> str:
    """Note the room, and a secret, in the state of the agent."""
    agent_state.room = ctx.request["room"]
    agent_state["key"] = ctx.secrets["TOKEN"]
    return ctx.request["room"]


@tool(requires_secrets=["TOKEN"])
def ungranted(ctx: Context) -> str:
    """Use a secret that is not granted."""
    return f"the key is {ctx.secrets['TOKEN']}"


@tool
def broken() -> str:
    """Fail in words that callers are not shown."""
    raise ValueError("an internal detail")
'''


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with admitted tools, a secret, and keys for ann and bob."""
    folder = tmp_path_factory.mktemp("contract") / "project"
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "all.py").write_text(TOOLS)
    (folder / "toolkiln.toml").write_text(SETTINGS)
    project = Project(folder, "", "")
    admitted = project.run("admit", "--yes", "--no-probe")
    assert admitted.returncode == 0, admitted.stderr
    secrets = folder / ".toolkiln" / "secrets.toml"
    secrets.write_text(f'TOKEN = "{SECRET}"\n')
    secrets.chmod(0o600)
    users = {"ann": [], "bob": ["--privilege", "APPROVE"]}
    keys = [
        json.loads(project.run("keys", "create", name, "--user", name, *more, "--json").stdout)
        for name, more in users.items()
    ]
    return Project(folder, *(key["key"] for key in keys))
