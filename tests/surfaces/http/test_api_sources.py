"""Sources that are run or read over HTTP, and leave nothing behind; search and selection."""

from collections.abc import Iterator
from typing import get_args

import pytest
from httpx2 import Client, Response

from tables import each_row
from toolkiln.kiln import PROVIDERS
from toolkiln.model.identity import Privilege
from toolkiln.schema.providers import Provider

from .serving import EVENTS, FAILING, SETTABLE, TRIPLE, Serving, call, events, problem

TWO = TRIPLE + TRIPLE.replace("triple", "quadruple").replace("* 3", "* 4")


@pytest.fixture
def gil(api: Serving) -> Iterator[Client]:
    """A caller who writes tools."""
    with api.client(api.session("gil", Privilege.WRITE_TOOLS)) as client:
        yield client


def run(client: Client, source: str, **given: object) -> Response:
    return client.post("/v1/run", json={"source": source, **given})


class TestRunning:
    def test_a_source_runs_in_the_sandbox_and_nothing_is_kept(
        self, api: Serving, operator: Client
    ) -> None:
        before = set(api.tools.rglob("*"))

        answer = run(operator, TRIPLE, arguments={"number": 5})

        assert (answer.json()["value"], answer.json()["sandbox"]) == (15, "A")
        assert set(api.tools.rglob("*")) == before
        assert operator.get("/v1/tools/triple").status_code == 404
        assert operator.get("/v1/tools/triple/versions").status_code == 404

    def test_one_of_several_tools_is_named(self, operator: Client) -> None:
        named = run(operator, TWO, tool="quadruple", arguments={"number": 2})
        unnamed = run(operator, TWO, arguments={"number": 2})
        wrong = run(operator, TWO, tool="tripel", arguments={"number": 2})

        assert named.json()["value"] == 8
        assert (unnamed.status_code, wrong.status_code) == (400, 404)
        assert "'triple'" in wrong.json()["hint"]

    def test_it_calls_other_tools_and_its_events_can_be_followed(self, operator: Client) -> None:
        nested = 'print("here", flush=True)\n    return ctx.call("double", number=4)'
        source = TRIPLE.replace("return number * 3", nested)
        source = source.replace("number: int", "number: int, ctx: Context")
        source = f"from toolkiln import Context\n{source}"
        sent = {"source": source, "arguments": {"number": 1}}

        with operator.stream("POST", "/v1/run", json=sent, headers=EVENTS) as answer:
            received = list(events(answer))

        assert [name for name, _ in received] == ["stdout", "result"]
        assert received[-1][1]["value"] == 8

    def test_it_gets_no_settings_of_a_tool_with_the_same_name(self, operator: Client) -> None:
        place = "/v1/tools/measure/settings"
        operator.patch(place, json={"values": {"token": "open sesame"}})

        answer = run(operator, SETTABLE.replace('ctx.settings["unit"]', "repr(dict(ctx.settings))"))
        operator.patch(place, json={"unset": ["token"]})

        assert answer.json()["status"] == "ok"
        assert "sesame" not in answer.text

    def test_it_gets_no_permissions_that_are_granted_by_name(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        source = 'from toolkiln import tool\n@tool(workspace="write")\n' + TRIPLE.lstrip()
        serving = Serving(tmp_path_factory.mktemp("granted"), grants={"*": {"workspace": "write"}})
        serving.write({"triple.py": TRIPLE})
        with serving.running(), serving.client() as operator:
            answer = run(operator, source, arguments={"number": 1})

        assert answer.json()["error"]["code"] == "not_granted"

    @each_row("source", ["def (", "x = 1", "\x00"])
    def test_a_source_without_a_tool_is_refused(self, operator: Client, source: str) -> None:
        for headers in ({}, EVENTS):
            answer = operator.post("/v1/run", json={"source": source}, headers=headers)

            assert problem(answer) == (400, "bad_input")

    def test_with_a_key_it_runs_once(self, operator: Client) -> None:
        source = "import random\n" + TRIPLE.replace("number * 3", "random.getrandbits(60)")
        sent = {"source": source, "arguments": {"number": 1}}

        first, again = (
            operator.post("/v1/run", json=sent, headers={"idempotency-key": "dice"})
            for _ in range(2)
        )

        assert first.json()["value"] == again.json()["value"]

    def test_the_author_of_a_source_sees_its_exceptions(self, gil: Client) -> None:
        error = run(gil, FAILING, arguments={"message": "words"}).json()["error"]
        admitted = call(gil, "fail", message="words")

        assert error["message"] == "ValueError in line 4 of source.py: words"
        assert error["traceback"].splitlines()[1:] == [
            '  File "source.py", line 4, in fail',
            "    raise ValueError(message)",
            "ValueError: words",
        ]
        assert "words" not in admitted.text

    def test_rules_apply_to_it(self, api: Serving) -> None:
        token = api.session("gil", Privilege.WRITE_TOOLS, tools=["other_*"])
        with api.client(token) as limited:
            answer = run(limited, TRIPLE, arguments={"number": 1})

        assert problem(answer) == (403, "not_allowed")


class TestReading:
    def test_all_tools_of_a_source_are_shown_or_the_error(self, gil: Client) -> None:
        read, broken = (
            gil.post("/v1/schema", json={"source": source}).json() for source in (TWO, "def (")
        )

        assert [tool["name"] for tool in read["tools"]] == ["triple", "quadruple"]
        assert (broken["tools"], broken["findings"][0]["rule"]) == ([], "syntax-error")

    def test_no_module_of_the_server_is_read(self, api: Serving, operator: Client) -> None:
        source = "from waiting import wait\n" + TRIPLE

        answer = operator.post("/v1/schema", json={"source": source})

        assert str(api.folder) not in answer.text
        assert "Wait for a while" not in answer.text

    def test_all_that_an_editor_shows_comes_in_one_answer(self, operator: Client) -> None:
        source = TRIPLE.replace("number: int", "number").replace("triple", "double")

        read = operator.post("/v1/schema", json={"source": source, "provider": "gemini"}).json()

        (tool,) = read["tools"]
        finding = next(one for one in read["findings"] if one["rule"] == "missing-annotation")
        assert tool["page"].startswith("# Double\n")
        assert tool["is_taken"]
        assert (tool["form"]["provider"], tool["form"]["left_out"]) == ("gemini", [])
        assert tool["form"]["tool"]["name"] == "double"
        assert finding["repair"] == {"line": 2, "column": 18, "text": ": str", "select": [2, 5]}

    def test_it_says_whether_a_source_may_be_saved_and_run_and_records_nothing(
        self, operator: Client
    ) -> None:
        records = operator.get("/v1/audit").json()["items"]

        mine = operator.post("/v1/schema", json={"source": TRIPLE}).json()["prospects"]

        assert mine["saving"] == mine["running"] == {"allowed": True, "reason": None, "hint": None}
        assert not mine["is_proposal"]
        assert operator.get("/v1/audit").json()["items"] == records


def test_every_provider_can_be_named() -> None:
    assert get_args(Provider) == PROVIDERS
