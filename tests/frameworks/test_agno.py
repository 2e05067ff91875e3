"""agno files: toolkits by what their constructors register, `@tool`, media, the run's context."""

from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.spec.reader import read

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "garden.py": '''
        import json
        from os import getenv
        from pathlib import Path
        from typing import Any, Callable, Iterator, List, Optional

        from agno.agent import Agent
        from agno.exceptions import RetryAgentRun
        from agno.media import Image
        from agno.models.openai import OpenAIChat
        from agno.run import RunContext
        from agno.team.team import Team
        from agno.tools import Toolkit
        from agno.tools.function import ToolResult
        from agno.utils.log import log_debug, logger

        try:
            import json as seeds
        except ImportError:
            raise ImportError("`seeds` not installed. Please install using `pip install seeds`")


        class GardenTools(Toolkit):
            """Tools for a garden."""

            _requires_connect = False

            def __init__(
                self,
                api_key: Optional[str] = None,
                beds: int = 3,
                enable_plant: bool = True,
                enable_burn: bool = False,
                all: bool = False,
                **kwargs,
            ):
                self.api_key = api_key or getenv("GARDEN_KEY")
                if not self.api_key:
                    logger.debug("no key")
                self.beds = beds
                tools: List[Any] = [self.count_beds, self.tell_key]
                if all or enable_plant:
                    tools.append(self.plant)
                if all or enable_burn:
                    tools.append(self.burn)
                tools += [self.draw, self.remember, self.retry] if beds > 1 else []
                named = [("list_rows", self.rows)]
                tools.extend([function for _, function in named])
                super().__init__(
                    name="garden",
                    tools=tools,
                    async_tools=[(self.awater, "water"), (self.aplant, "plant")],
                    instructions="Be gentle.",
                    requires_confirmation_tools=["plant"],
                    **kwargs,
                )
                self.register(self.harvest, name="harvest_bed")
                self._register_more()

            def _register_more(self):
                for name in ("fence",):
                    self.register(getattr(self, "build_" + name))

            def count_beds(self) -> int:
                """Count the beds."""
                log_debug(f"{self.name} has {self.beds}")
                return self.beds if self.functions else 0

            def tell_key(self) -> str:
                """Tell the key."""
                return self.api_key

            def plant(self, seed: str) -> str:
                """Plant a seed.

                Args:
                    seed (str): What to plant.
                """
                return seed

            async def aplant(self, seed: str) -> str:
                """Plant a seed."""
                return seed

            async def awater(self, litres: float = 1.5) -> str:
                """Water the garden.

                Args:
                    litres (float): How much.
                """
                return json.dumps({"litres": litres})

            def burn(self) -> str:
                """Burn the leaves."""
                return "burnt"

            def draw(self, agent: Agent, title: str, images: Optional[List[Image]] = None):
                """Draw the garden."""
                drawn = Image(content=title.encode(), format="svg")
                return ToolResult(content="drawn", images=[drawn, Image(url="https://example.org/a")])

            def remember(self, run_context: RunContext, note: str) -> str:
                """Remember a note."""
                notes = run_context.session_state.get("notes", [])
                return ", ".join([*notes, note, run_context.user_id or "nobody"])

            def retry(self, team: Team) -> str:
                """Fail for a while."""
                raise RetryAgentRun("the soil is frozen")

            def rows(self, count: int) -> Iterator[str]:
                """List rows."""
                for row in range(count):
                    yield f"row {row}"

            def harvest(self, bed: int) -> str:
                """Harvest a bed."""
                return f"harvested {bed}"

            def build_fence(self, file: str) -> str:
                """Build a fence."""
                safe, path = self._check_path(file, Path("/srv"))
                return str(path) if safe else "outside"

            def _dig(self):
                return None


        agent = Agent(model=OpenAIChat(id="gpt"), tools=[GardenTools(all=True)], markdown=True)

        if __name__ == "__main__":
            agent.print_response("Plant a rose")
    ''',
    "decorated.py": '''
        from pathlib import Path

        from agno.agent import Agent
        from agno.tools import Toolkit, tool
        from agno.tools.google.gmail import GmailTools


        def log_call(function_name, function_call, arguments):
            return function_call(**arguments)


        @tool(
            name="weigh_crate",
            description="Weigh a crate.",
            show_result=True,
            tool_hooks=[log_call],
            requires_confirmation=True,
            cache_results=True,
        )
        def weigh(agent: Agent, crate: str, session_state: dict) -> str:
            """Weigh it."""
            return f"{crate} {session_state}"


        class ScaleTools(Toolkit):
            def __init__(self, precision: int, agent: Agent, root: Path = Path("/"), **kwargs):
                self.precision, self.agent, self.root = precision, agent, root
                super().__init__(name="scale", tools=[self.calibrate], **kwargs)

            @tool(stop_after_tool_call=True)
            def calibrate(self, weight: float) -> float:
                """Calibrate the scale."""
                return round(weight, self.precision)


        class MailTools(GmailTools):
            def __init__(self, **kwargs):
                super().__init__(name="mail", tools=[self.read_mail, self.own], **kwargs)

            def own(self) -> str:
                """Tell who it is."""
                return type(self).__name__

            def read_mail(self) -> str:
                """Read the mail."""
                return self.service.messages()


        def helper(agent_name: str) -> Agent:
            return Agent(name=agent_name)


        @tool
        def consult(question: str) -> str:
            """Ask an agent."""
            return helper("gardener").run(question)
    ''',
}

CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("count_beds", {}, 3),
    ("water", {}, '{"litres": 1.5}'),
    ("draw", {"title": "<svg/>"}, "drawn\nhttps://example.org/a"),
    ("remember", {"note": "frost"}, "sun, frost, ada"),
    ("rows", {"count": 2}, ["row 0", "row 1"]),
    ("harvest_bed", {"bed": 2}, "harvested 2"),
    ("own", {}, "MailTools"),
    ("build_fence", {"file": "../etc/passwd"}, "outside"),
]  # fmt: skip


async def test_tools_run_unchanged(kiln: Kiln) -> None:
    session = kiln.security.sessions.create("ada", agent_state={"notes": ["sun"]}).token

    for name, arguments, expected in CALLS:
        result = await kiln.call(name, arguments, session=session)

        assert result.value == expected, (name, result.error)
    (drawn,) = (await kiln.call("draw", {"title": "<svg/>"})).files
    assert (drawn.name, drawn.data) == ("image.svg", b"<svg/>")


async def test_what_a_constructor_registers_is_offered(kiln: Kiln) -> None:
    offered = {name: spec for name, spec in kiln.specs().items() if spec.toolkit}

    assert set(offered) == {
        "count_beds", "tell_key", "plant", "water", "draw", "remember", "retry", "rows",
        "harvest_bed", "build_fence", "own", "read_mail", "calibrate",
    }  # fmt: skip
    assert {spec.toolkit.name for spec in offered.values() if spec.toolkit} == {
        "GardenTools",
        "MailTools",
        "ScaleTools",
    }
    assert list(offered["draw"].parameters["properties"]) == ["title"]
    assert [name for name, spec in offered.items() if spec.rights.needs_approval] == ["plant"]
    weigh = kiln.tool("weigh_crate")
    assert (weigh.description, list(weigh.parameters["properties"])) == (
        "Weigh a crate.",
        ["crate"],
    )
    assert weigh.rights.needs_approval


async def test_the_constructor_takes_settings(kiln: Kiln) -> None:
    calibrate, tell, count = map(kiln.tool, ("calibrate", "tell_key", "count_beds"))
    missing = await kiln.call("calibrate", {"weight": 1.26})
    for spec, name, value in (
        (calibrate, "precision", 1),
        (count, "beds", 5),
        (tell, "api_key", "a key of the garden"),
    ):
        kiln.security.change_tool_settings(spec, {name: value})

    results = [
        await kiln.call("calibrate", {"weight": 1.26}),
        await kiln.call("count_beds"),
        await kiln.call("tell_key"),
    ]

    assert missing.error is not None
    assert "precision" in missing.error.message
    assert set(calibrate.settings["operator"]["properties"]) == {"precision", "root"}
    assert set(count.settings["operator"]["properties"]) == {"api_key", "beds"}
    assert [result.value for result in results[:2]] == [1.3, 5], results
    assert "a key of the garden" not in str(results[2].value)


async def test_errors_are_those_of_the_author(kiln: Kiln) -> None:
    frozen = await kiln.call("retry")
    consulted = await kiln.call("consult", {"question": "why"})
    read_mail = await kiln.call("read_mail")

    assert frozen.error is not None
    assert (frozen.error.message, frozen.error.retryable) == ("the soil is frozen", True)
    assert read_mail.error is not None
    assert "agno.tools.google.gmail.GmailTools.service is not" in read_mail.error.message
    assert consulted.error is not None
    assert consulted.error.message == (
        "agno.agent.Agent is not available in the sandbox: list 'agno' among its requirements"
    )


async def test_declarations_are_known_by_their_shape() -> None:
    toolkit = """
from phi.tools import Toolkit

class Light(Toolkit):
    def __init__(self, name):
        super().__init__(name=name)
        self.register(self.light)

class Lamp(Light):
    def __init__(self):
        super().__init__("lamp")

    def light(self, session_state: dict, level: int) -> str:
        '''Switch it on.'''
"""
    functions = """
from agno.agent import Agent

def add(session_state, item: str) -> str:
    '''Add an item.'''
"""

    (light,), (add,) = (read(source, "<memory>").tools for source in (toolkit, functions))

    assert (light.entry, list(light.parameters["properties"])) == ("Lamp.light", ["level"])
    assert list(add.parameters["properties"]) == ["item"]


@pytest.mark.parametrize(
    "body",
    [
        "\n        ".join(["x = [self.f]", *["x = x + x"] * 60]),
        "\n        ".join(["x = 'a'", *["x = x + x"] * 60]),
        "\n        ".join(["x = [1]", *["x += x"] * 60]),
        "x = [0] + [1] * 9\n        " + "".join(f"\n{' ' * (8 + n)}for _ in x:" for n in range(9))
        + f"\n{' ' * 17}self.f()",
        "self.f()\n        self.f()",
    ],
)  # fmt: skip
async def test_a_hostile_constructor_is_given_up(body: str) -> None:
    source = f"""
from agno.tools import Toolkit


class Endless(Toolkit):
    def __init__(self):
        self.f()
        {body}

    def f(self):
        self.f()
        self.f()
"""

    reading = read(source, "<memory>")

    assert not reading.tools


async def test_what_the_defaults_leave_out_is_reported() -> None:
    source = """
from agno.tools import Toolkit


class Shed(Toolkit):
    def __init__(self, enable_lock=False, names=("a",), **kwargs):
        tools = load_tools()
        if enable_lock:
            tools = [self.lock]
            self.register(self.lock)
        super().__init__(tools=tools, exclude_tools=["unlock"], **kwargs)
        self.register(self.unlock)

    def lock(self) -> str:
        '''Lock it.'''

    def unlock(self) -> str:
        '''Unlock it.'''
"""

    reading = read(source, "<memory>")

    assert [tool.name for tool in reading.tools] == ["unlock"]
    told = [(f.rule, f.message) for f in reading.findings]
    assert ("not-offered", "'lock' is not a tool: Shed leaves it out by default") in told
    assert ("unknown-value", "the tools of Shed are not known before the code runs") in told
