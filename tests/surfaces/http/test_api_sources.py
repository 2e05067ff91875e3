"""Sources that are run or read over HTTP, and leave nothing behind; search and selection."""

from typing import get_args

import httpx2
import pytest

from toolkiln.kiln import PROVIDERS
from toolkiln.model.identity import Privilege
from toolkiln.schema.providers import Provider

from .serving import FAILING, SETTABLE, TRIPLE, Serving
from .test_api_calls import EVENTS, events

TWO = TRIPLE + TRIPLE.replace("triple", "quadruple").replace("* 3", "* 4")


def run(client: httpx2.Client, source: str, **given: object) -> httpx2.Response:
    return client.post("/v1/run", json={"source": source, **given})


class TestRunning:
    def test_a_source_runs_in_the_sandbox_and_nothing_is_kept(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        before = set(api.tools.rglob("*"))

        answer = run(operator, TRIPLE, arguments={"number": 5})

        assert (answer.json()["value"], answer.json()["sandbox"]) == (15, "A")
        assert set(api.tools.rglob("*")) == before
        assert operator.get("/v1/tools/triple").status_code == 404
        assert operator.get("/v1/tools/triple/versions").status_code == 404

    def test_one_of_several_tools_is_named(self, operator: httpx2.Client) -> None:
        named = run(operator, TWO, tool="quadruple", arguments={"number": 2})
        unnamed = run(operator, TWO, arguments={"number": 2})
        wrong = run(operator, TWO, tool="tripel", arguments={"number": 2})

        assert named.json()["value"] == 8
        assert (unnamed.status_code, wrong.status_code) == (400, 404)
        assert "'triple'" in wrong.json()["hint"]

    def test_it_can_call_other_tools(self, operator: httpx2.Client) -> None:
        source = TRIPLE.replace("(number: int)", "(number: int, ctx: Context)").replace(
            "number * 3", 'ctx.call("double", number=number)'
        )

        answer = run(operator, f"from toolkiln import Context\n{source}", arguments={"number": 4})

        assert answer.json()["value"] == 8

    def test_it_gets_no_settings_of_the_tool_whose_name_it_has(
        self, operator: httpx2.Client
    ) -> None:
        operator.patch("/v1/tools/measure/settings", json={"values": {"token": "open sesame"}})
        source = SETTABLE.replace('ctx.settings["unit"]', "repr(dict(ctx.settings))")

        answer = run(operator, source)
        operator.patch("/v1/tools/measure/settings", json={"unset": ["token"]})

        assert answer.json()["status"] == "ok"
        assert "sesame" not in answer.text

    def test_it_gets_no_rights_that_are_granted_by_name(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        source = 'from toolkiln import tool\n@tool(workspace="write")\n' + TRIPLE.lstrip()
        serving = Serving(tmp_path_factory.mktemp("granted"), grants={"*": {"workspace": "write"}})
        serving.write({"triple.py": TRIPLE})
        with serving.running(), serving.client() as operator:
            answer = run(operator, source, arguments={"number": 1})

        assert answer.json()["error"]["code"] == "not_granted"

    def test_its_events_can_be_followed(self, operator: httpx2.Client) -> None:
        source = TRIPLE.replace("    return", '    print("here", flush=True)\n    return')
        body = {"source": source, "arguments": {"number": 1}}
        with operator.stream("POST", "/v1/run", json=body, headers=EVENTS) as answer:
            told = list(events(answer))

        assert [name for name, _ in told] == ["stdout", "result"]

    @pytest.mark.parametrize("source", ["def (", "x = 1", "\x00"])
    def test_what_cannot_be_run_is_told_before_anything_is(
        self, operator: httpx2.Client, source: str
    ) -> None:
        for headers in ({}, EVENTS):
            answer = operator.post("/v1/run", json={"source": source}, headers=headers)

            assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")

    def test_with_a_key_it_runs_once(self, operator: httpx2.Client) -> None:
        source = "import random\n" + TRIPLE.replace("number * 3", "random.getrandbits(60)")
        sent = {"source": source, "arguments": {"number": 1}}

        first, again = (
            operator.post("/v1/run", json=sent, headers={"idempotency-key": "dice"})
            for _ in range(2)
        )

        assert first.json()["value"] == again.json()["value"]

    def test_who_wrote_a_source_sees_its_exceptions(self, api: Serving) -> None:
        with api.client(api.session("gil", Privilege.WRITE_TOOLS)) as gil:
            error = run(gil, FAILING, arguments={"message": "words"}).json()["error"]
            admitted = gil.post("/v1/tools/fail/call", json={"arguments": {"message": "words"}})

        assert error["message"] == "ValueError in line 8 of source.py: words"
        assert error["traceback"].splitlines()[1:] == [
            '  File "source.py", line 8, in fail',
            "    raise ValueError(message)",
            "ValueError: words",
        ]
        assert "words" not in admitted.text

    def test_rules_hold_for_it(self, api: Serving) -> None:
        token = api.session("gil", Privilege.WRITE_TOOLS, tools=["other_*"])
        with api.client(token) as gil:
            answer = run(gil, TRIPLE, arguments={"number": 1})

        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


class TestReading:
    def test_schemas_and_findings_are_shown_to_callers_who_may_write_tools(
        self, api: Serving, ann: httpx2.Client
    ) -> None:
        refused = ann.post("/v1/schema", json={"source": TWO})
        with api.client(api.session("gil", Privilege.WRITE_TOOLS)) as gil:
            told = gil.post("/v1/schema", json={"source": TWO}).json()
            broken = gil.post("/v1/schema", json={"source": "def ("}).json()

        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")

        assert [item["name"] for item in told["tools"]] == ["triple", "quadruple"]
        assert told["tools"][0]["parameters"]["required"] == ["number"]
        assert told["tools"][0]["health"]["level"] == "STRICT_COMPLIANT"
        assert (broken["tools"], broken["findings"][0]["rule"]) == ([], "syntax-error")

    def test_no_module_of_the_server_is_looked_at(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        source = "from waiting import wait\n" + TRIPLE

        told = operator.post("/v1/schema", json={"source": source})

        assert str(api.folder) not in told.text
        assert "Wait for a while" not in told.text

    def test_what_an_editor_shows_comes_in_one_answer(self, operator: httpx2.Client) -> None:
        source = TRIPLE.replace("number: int", "number").replace("triple", "double")

        told = operator.post("/v1/schema", json={"source": source, "provider": "gemini"}).json()

        (tool,) = told["tools"]
        finding = next(one for one in told["findings"] if one["rule"] == "missing-annotation")
        assert tool["page"].startswith("# Double\n")
        assert tool["is_taken"]
        assert (tool["form"]["provider"], tool["form"]["left_out"]) == ("gemini", [])
        assert tool["form"]["tool"]["name"] == "double"
        assert finding["repair"] == {"line": 2, "column": 18, "text": ": str", "select": [2, 5]}

    def test_what_may_become_of_a_source_is_told_and_not_recorded(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        records = operator.get("/v1/audit").json()["items"]

        mine = operator.post("/v1/schema", json={"source": TRIPLE}).json()["prospects"]

        assert mine["saving"] == mine["running"] == {"allowed": True, "reason": None, "hint": None}
        assert not mine["is_proposal"]
        assert operator.get("/v1/audit").json()["items"] == records

    def test_where_tools_are_proposed_only_people_with_admin_run_them_before(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        serving = Serving(
            tmp_path_factory.mktemp("proposed"), authoring="propose", refuse=("bad-icon",)
        )
        with (
            serving.running(),
            serving.client(serving.session("gil", Privilege.WRITE_TOOLS)) as gil,
        ):
            told = gil.post("/v1/schema", json={"source": TRIPLE}).json()["prospects"]

        assert told["saving"]["allowed"]
        assert told["is_proposal"]
        assert "a person has to admit" in told["running"]["reason"]
        assert told["refused_rules"] == ["bad-icon"]


class TestFinding:
    def test_a_search_tells_what_fits_and_why(self, operator: httpx2.Client) -> None:
        told = operator.get("/v1/search", params={"q": "double a number", "k": 1}).json()

        (best,) = told["items"]
        assert best["name"] == "double"
        assert "double" in best["words"]
        assert 0 < told["confidence"] <= 1

    def test_passages_are_cited(self, operator: httpx2.Client) -> None:
        told = operator.get("/v1/docs/search", params={"q": "how long to wait", "k": 3}).json()

        assert told["items"][0]["citation"].startswith("wait.md#")

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_a_selection_is_ready_to_be_sent(self, operator: httpx2.Client, provider: str) -> None:
        body = {"prompt": "double a number", "k": 2, "provider": provider}

        told = operator.post("/v1/select", json=body).json()

        assert told["names"][0] == "double"
        assert len(told["names"]) == 2
        assert "double" in str(told["tools"])

    def test_every_provider_can_be_named(self) -> None:
        assert get_args(Provider) == PROVIDERS
