"""`/v1/tools` as clients use it: find, write, switch, remove, roll back, set."""

from collections.abc import Iterator

import pytest
from httpx2 import Client, Response

from tables import each_row
from toolkiln.model.identity import Privilege

from .served import until
from .serving import FAILING, FILES, TRIPLE, Serving, call, problem

BETTER = TRIPLE.replace("number * 3", "3 * number")
QUADRUPLE = TRIPLE.replace("triple", "quadruple").replace("number * 3", "number * FOUR")
QUADRUPLE = f"from _factors import FOUR\n\n{QUADRUPLE}"
EXAMPLE_THAT_FAILS = 'three.\n\n    Examples:\n        >>> triple(1)\n        4\n    """'


@pytest.fixture
def triple(operator: Client) -> Iterator[str]:
    """The digest of a tool that is there for one test."""
    yield put(operator, TRIPLE).json()["digest"]
    operator.delete("/v1/tools/triple")


def put(client: Client, source: str, name: str = "triple", **conditions: str) -> Response:
    headers = {header.replace("_", "-"): text for header, text in conditions.items()}
    return client.put(f"/v1/tools/{name}", json={"source": source}, headers=headers)


def names(answer: Response) -> list[str]:
    return [item["name"] for item in answer.json()["items"]]


class TestLooking:
    def test_parts_of_the_list_follow_each_other(self, operator: Client) -> None:
        part = operator.get("/v1/tools", params={"limit": 3})
        found = names(part)
        while cursor := part.json()["next_cursor"]:
            part = operator.get("/v1/tools", params={"limit": 3, "cursor": cursor})
            found += names(part)

        assert found == names(operator.get("/v1/tools"))
        assert {"double", "wait", "fail", "pay", "put_up"} <= {*found}

    @each_row("cursor", ["x", "W10", "", "ÿ", "WyJjYWxscyIsImEiLDFd", "AAAA" * 99])
    def test_a_made_up_cursor_is_refused(self, operator: Client, cursor: str) -> None:
        answer = operator.get("/v1/tools", params={"cursor": cursor})

        assert problem(answer) == (422, "invalid_request")
        assert answer.json()["errors"][0]["place"] == "query.cursor"

    def test_a_search_has_one_part_with_the_best_first(self, operator: Client) -> None:
        cursor = operator.get("/v1/tools", params={"limit": 2}).json()["next_cursor"]

        found = operator.get("/v1/tools", params={"q": "take it from the shelf", "limit": 1})
        further = operator.get("/v1/tools", params={"q": "wait for a while", "cursor": cursor})

        assert (names(found), found.json()["next_cursor"]) == (["take_down"], None)
        assert problem(further) == (422, "invalid_request")

    @each_row(
        "wanted, found",
        [
            ({"toolkit": "Shelf"}, ["put_up", "take_down"]),
            ({"read_only": "true"}, ["long_text"]),
            ({"core": "true"}, []),
        ],
    )
    def test_filters_choose(
        self, operator: Client, wanted: dict[str, str], found: list[str]
    ) -> None:
        assert names(operator.get("/v1/tools", params=wanted)) == found

    def test_prompts_are_listed_by_their_role_and_can_be_called(self, operator: Client) -> None:
        put(operator, TRIPLE.replace("def triple", "from toolkiln import prompt\n@prompt\ndef ask"),
            "ask")  # fmt: skip

        prompts, tools, wrong = (
            operator.get("/v1/tools", params={"role": role}) for role in ("prompt", "tool", "x")
        )
        found = operator.get("/v1/tools", params={"q": "multiply by three"})
        called = call(operator, "ask", number=2)
        operator.delete("/v1/tools/ask")

        assert [(one["name"], one["role"]) for one in prompts.json()["items"]] == [
            ("ask", "prompt")
        ]
        assert "ask" not in {*names(tools), *names(found)}
        assert called.json()["value"] == 6
        assert wrong.status_code == 422

    def test_callers_do_not_learn_of_a_tool_that_they_may_not_run(self, api: Serving) -> None:
        with api.client(api.session("eve", tools=["double"])) as eve:
            listed = eve.get("/v1/tools")
            hidden, absent = eve.get("/v1/tools/pay"), eve.get("/v1/tools/pbb")
            others = [
                eve.get(f"/v1/tools/{path}").status_code
                for path in ("pay/versions", "pay/presentation", "measure/settings?own=true")
            ]
            found = eve.get("/v1/search", params={"q": "pay an amount"})
            read = eve.get("/v1/docs/search", params={"q": "pay an amount"})

        assert names(listed) == ["double"]
        assert (listed.json()["hidden"], listed.json()["next_cursor"]) == (0, None)
        assert [hidden.status_code, *others] == [404] * 4
        assert hidden.text.replace("pay", "pbb") == absent.text
        assert {item["name"] for item in found.json()["items"]} <= {"double"}
        assert "pay" not in read.text


class TestWriting:
    def test_a_tool_can_be_called_as_soon_as_it_is_written(self, operator: Client) -> None:
        made = put(operator, TRIPLE)
        called = call(operator, "triple", number=5)
        gone = operator.delete("/v1/tools/triple")

        assert (made.status_code, made.headers["location"]) == (201, "/v1/tools/triple")
        assert made.json()["tools"] == gone.json()["tools"] == ["triple"]
        assert called.json()["value"] == 15

    def test_options_beside_the_source_are_written_into_it(self, operator: Client) -> None:
        schema = {"parameters": {"type": "object", "properties": {"number": {"type": "integer"}},
                                 "required": ["number"]}}  # fmt: skip
        beside = {"json_schema": schema, "enable_parallel_execution": True}
        body = {"source": TRIPLE, **beside, "return_char_limit": 700}

        made = operator.put("/v1/tools/triple", json=body)
        shown = operator.get("/v1/tools/triple").json()
        called = call(operator, "triple", number=5)
        gone = operator.delete("/v1/tools/triple")
        wrong = {"pip_requirements": [{"name": "no name"}]}
        refused = operator.put("/v1/tools/triple", json={"source": TRIPLE, **wrong})

        assert (made.status_code, gone.status_code, called.json()["value"]) == (201, 200, 15)
        assert shown["id"] == f"triple@{shown['digest'][:12]}"
        assert (shown["parallel"], shown["metadata"]) == (True, {})
        assert (shown["limits"]["return_char_limit"], shown["parameters"]) == (
            700,
            schema["parameters"],
        )
        assert "bad-requirement" in refused.text

    def test_only_the_expected_version_is_replaced(self, operator: Client, triple: str) -> None:
        refused = [
            put(operator, BETTER, if_none_match="*"),
            put(operator, BETTER, if_match='"0000"'),
        ]
        right = put(operator, BETTER, if_match=f'"{triple}"')
        refused.append(put(operator, TRIPLE, if_match=f'"{triple}"'))

        assert {problem(answer) for answer in refused} == {(412, "outdated")}
        assert right.status_code == 200
        assert operator.get("/v1/tools/triple").json()["digest"] == right.json()["digest"] != triple

    def test_a_tool_in_a_folder_stays_there_with_its_helpers(
        self, api: Serving, operator: Client
    ) -> None:
        helper = api.tools / "more" / "numbers" / "_factors.py"
        helper.parent.mkdir(parents=True)
        helper.write_text("FOUR = 4\n")
        api.write({"more/numbers/many.py": QUADRUPLE})
        until(lambda: operator.get("/v1/tools/quadruple").status_code == 200)
        better = QUADRUPLE.replace("* FOUR", "* FOUR * 10")

        tag = operator.get("/v1/tools/quadruple").headers["etag"]
        written = put(operator, better, "quadruple", if_match=tag)
        called = call(operator, "quadruple", number=1)
        source = (helper.parent / "many.py").read_text()
        gone = operator.delete("/v1/tools/quadruple").json()

        assert (written.status_code, written.json()["tools"]) == (200, ["quadruple"])
        assert (called.json()["value"], source) == (40, better)
        assert (gone["file"], gone["version"]) == ("more/numbers/many.py", 2)

    @each_row(
        "source, place",
        [
            ("def triple(:", "body.source:1"),
            (TRIPLE.replace('three."""', EXAMPLE_THAT_FAILS), "body.source:6"),
            ("x = 1", "body.source:1"),
        ],
    )
    def test_errors_of_a_source_are_shown_by_line(
        self, operator: Client, source: str, place: str
    ) -> None:
        answer = put(operator, source)

        assert problem(answer) == (422, "refused")
        assert place in {error["place"] for error in answer.json()["errors"]}
        assert operator.get("/v1/tools/triple").status_code == 404

    def test_a_source_declares_the_tool_that_it_is_written_as(self, operator: Client) -> None:
        answer = put(operator, TRIPLE, "quadruple")

        assert (answer.status_code, answer.json()["hint"]) == (422, "it declares triple")

    def test_a_file_of_several_tools_is_written_as_any_of_them(self, operator: Client) -> None:
        before = operator.get("/v1/tools/long_text").json()["digest"]
        changed = FILES["waiting.py"].replace('"x" * characters', '"y" * characters')

        answer = put(operator, changed, "long_text")
        file = operator.get("/v1/tools/wait").json()["file"]
        back = operator.post("/v1/tools/wait/rollback", json={"version": before[:12]})

        assert (answer.status_code, file, back.status_code) == (200, "waiting.py", 200)
        assert sorted(answer.json()["tools"]) == ["long_text", "wait"]

    @each_row("name", ["..%2Fescape", "a%2Fb", "os", "search_tools", "double", "_x"])
    def test_a_name_that_no_file_can_have_is_refused(self, operator: Client, name: str) -> None:
        declared = name if name.isidentifier() else "f"

        answer = put(operator, f'def {declared}() -> int:\n    """Do."""\n    return 1\n', name)

        assert answer.status_code in (400, 422)
        assert answer.headers["content-type"] == "application/problem+json"

    def test_writing_without_its_privilege_is_a_proposal(
        self, api: Serving, operator: Client, ann: Client
    ) -> None:
        proposed, unknown = put(ann, TRIPLE), ann.get("/v1/tools/triple")
        with api.client(api.session("eve", tools=["write_python_tool"])) as eve:
            hidden = put(eve, FAILING, "fail")
        with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
            made, removed = put(bob, TRIPLE), bob.delete("/v1/tools/triple")
        operator.delete("/v1/tools/triple")

        assert (proposed.status_code, proposed.json()["proposed"]) == (202, True)
        assert unknown.status_code == 404
        assert (hidden.status_code, "taken" in hidden.text) == (409, True)
        assert made.status_code == 201
        assert problem(removed) == (403, "not_allowed")


class TestAdministration:
    def test_only_administrators_see_a_disabled_tool(self, operator: Client, ann: Client) -> None:
        off = operator.patch("/v1/tools/fail", json={"enabled": False})
        seen = operator.get("/v1/tools/fail")
        unseen, called = ann.get("/v1/tools/fail"), call(ann, "fail")
        listed = operator.get("/v1/tools", params={"enabled": "false"})
        on = operator.patch("/v1/tools/fail", json={"enabled": True})

        assert [one.json()["enabled"] for one in (off, seen, on)] == [False, False, True]
        assert problem(unseen) == problem(called) == (404, "unknown_tool")
        assert names(listed) == ["fail"]

    def test_requested_permissions_are_granted_on_request(self, operator: Client) -> None:
        decorated = 'from toolkiln import tool\n\n\n@tool(workspace="read")\ndef'
        made = put(operator, TRIPLE.replace("\ndef", decorated))
        before = operator.get("/v1/tools/triple").json()["granted"]
        after = operator.patch("/v1/tools/triple", json={"granted": True}).json()["granted"]
        operator.delete("/v1/tools/triple")

        assert made.status_code == 201
        assert (before["workspace"], after["workspace"]) == (None, "read")

    def test_versions_show_their_source_and_changes(self, operator: Client, triple: str) -> None:
        put(operator, BETTER)
        newest = operator.get("/v1/tools/triple/versions").json()["items"][0]["version"]

        shown = operator.get(f"/v1/tools/triple/versions/{newest}", params={"since": triple[:12]})
        missing = operator.get("/v1/tools/triple/versions/999")

        assert shown.json()["sources"] == {"triple.py": BETTER}
        assert "+    return 3 * number" in shown.json()["diff"]
        assert missing.json()["code"] == "not_found"

    def test_a_key_under_another_condition_is_no_repetition(
        self, operator: Client, triple: str
    ) -> None:
        answers = [
            operator.patch(
                "/v1/tools/triple",
                json={"enabled": True},
                headers={"Idempotency-Key": "condition", "If-Match": condition},
            )
            for condition in (f'"{triple}"', f'"{triple}"', '"else"', "")
        ]

        assert [one.status_code for one in answers[:2]] == [200, 200]
        assert [one.json()["code"] for one in answers[2:]] == ["key_reused"] * 2


class TestSettings:
    PLACE = "/v1/tools/measure/settings"

    def test_secrets_are_set_but_never_shown(self, operator: Client) -> None:
        values = {"unit": "kelvin", "token": "open sesame"}

        changed = operator.patch(self.PLACE, json={"values": values})
        shown = operator.get(self.PLACE)
        called = call(operator, "measure")
        back = operator.patch(self.PLACE, json={"unset": ["unit", "token"]})

        assert changed.json()["values"] == {"unit": "kelvin", "token": "(secret, set)"}
        assert "sesame" not in changed.text + shown.text
        assert called.json()["value"] == "kelvin"
        assert back.json()["values"] == {}
