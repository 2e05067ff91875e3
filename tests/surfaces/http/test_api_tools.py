"""`/v1/tools` as clients use it: look, write, switch, remove, go back, set."""

from collections.abc import Iterator

import httpx2
import pytest

from toolkiln.model.identity import Privilege

from .served import until
from .serving import FAILING, FILES, TRIPLE, Serving

BETTER = TRIPLE.replace("number * 3", "3 * number")
QUADRUPLE = TRIPLE.replace("triple", "quadruple").replace("number * 3", "number * FOUR")
QUADRUPLE = f"from _factors import FOUR\n\n{QUADRUPLE}"
WRONG = "Examples:\n        >>> triple(1)\n        4"


@pytest.fixture
def triple(operator: httpx2.Client) -> Iterator[str]:
    """The digest of a tool that is there for one test."""
    made = operator.put("/v1/tools/triple", json={"source": TRIPLE})
    yield made.json()["digest"]
    operator.delete("/v1/tools/triple")


def names(answer: httpx2.Response) -> list[str]:
    return [item["name"] for item in answer.json()["items"]]


class TestLooking:
    def test_parts_of_the_list_follow_each_other(self, operator: httpx2.Client) -> None:
        found: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "3", **({"cursor": cursor} if cursor else {})}
            part = operator.get("/v1/tools", params=query)
            found += names(part)
            cursor = part.json()["next_cursor"]
            if cursor is None:
                break

        assert found == names(operator.get("/v1/tools"))
        assert {"double", "wait", "fail", "pay", "put_up"} <= {*found}

    def test_what_comes_between_two_parts_hides_nothing(self, operator: httpx2.Client) -> None:
        first = operator.get("/v1/tools", params={"limit": 2})

        operator.patch("/v1/tools/fail", json={"enabled": False})
        rest = operator.get("/v1/tools", params={"cursor": first.json()["next_cursor"]})
        operator.patch("/v1/tools/fail", json={"enabled": True})

        assert names(first) == ["double", "fail"]
        assert names(rest)[0] == "long_text"

    @pytest.mark.parametrize("cursor", ["x", "W10", "", "ÿ", "WyJjYWxscyIsImEiLDFd", "AAAA" * 99])
    def test_a_cursor_of_nobodys_making_is_refused(
        self, operator: httpx2.Client, cursor: str
    ) -> None:
        answer = operator.get("/v1/tools", params={"cursor": cursor})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert answer.json()["errors"][0]["place"] == "query.cursor"

    def test_a_search_has_one_part(self, operator: httpx2.Client) -> None:
        cursor = operator.get("/v1/tools", params={"limit": 2}).json()["next_cursor"]

        found = operator.get("/v1/tools", params={"q": "wait for a while", "limit": 1})
        further = operator.get("/v1/tools", params={"q": "wait for a while", "cursor": cursor})

        assert (names(found), found.json()["next_cursor"]) == (["wait"], None)
        assert (further.status_code, further.json()["code"]) == (422, "invalid_request")

    def test_filters_choose(self, operator: httpx2.Client) -> None:
        kit = operator.get("/v1/tools", params={"toolkit": "Shelf"})
        harmless = operator.get("/v1/tools", params={"read_only": "true"})
        core = operator.get("/v1/tools", params={"core": "true"})

        assert names(kit) == ["put_up", "take_down"]
        assert names(harmless) == ["long_text"]
        assert names(core) == []

    def test_prompts_are_listed_with_their_role_and_can_be_called(
        self, operator: httpx2.Client
    ) -> None:
        source = TRIPLE.replace("def triple", "from toolkiln import prompt\n\n@prompt\ndef ask")
        operator.put("/v1/tools/ask", json={"source": source})

        prompts = operator.get("/v1/tools", params={"role": "prompt"})
        tools = operator.get("/v1/tools", params={"role": "tool"})
        found = operator.get("/v1/tools", params={"q": "multiply by three"})
        called = operator.post("/v1/tools/ask/call", json={"arguments": {"number": 2}})
        wrong = operator.get("/v1/tools", params={"role": "x"})
        operator.delete("/v1/tools/ask")

        assert [(one["name"], one["role"]) for one in prompts.json()["items"]] == [
            ("ask", "prompt")
        ]
        assert "ask" not in {*names(tools), *names(found)}
        assert called.json()["value"] == 6
        assert wrong.status_code == 422

    def test_a_search_gives_the_best_first(self, operator: httpx2.Client) -> None:
        found = operator.get("/v1/tools", params={"q": "take it from the shelf", "limit": 1})

        assert names(found) == ["take_down"]

    def test_a_tool_is_told_whole_and_with_its_tag(self, operator: httpx2.Client) -> None:
        answer = operator.get("/v1/tools/pay")
        told = answer.json()

        assert answer.headers["etag"] == f'"{told["digest"]}"'
        assert told["rights"]["needs_approval"]
        assert told["hints"]["destructive"]
        assert told["parameters"]["required"] == ["amount"]
        assert (told["file"], told["version"], told["enabled"]) == ("risky.py", 1, True)
        assert str(FILES) not in answer.text

    def test_no_path_of_the_server_is_told(self, api: Serving, operator: httpx2.Client) -> None:
        told = [operator.get(f"/v1/tools{path}").text for path in ("", "/pay", "/pay/versions")]

        assert str(api.folder) not in "".join(told)

    def test_an_unknown_tool_is_told_with_the_nearest_name(self, operator: httpx2.Client) -> None:
        answer = operator.get("/v1/tools/doble")

        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "unknown_tool"
        assert "'double'" in answer.json()["hint"]

    def test_who_may_not_run_a_tool_does_not_learn_of_it(self, api: Serving) -> None:
        token = api.session("eve", tools=["double"])
        with api.client(token) as eve:
            listed = eve.get("/v1/tools")
            hidden, absent = eve.get("/v1/tools/pay"), eve.get("/v1/tools/pbb")
            versions = eve.get("/v1/tools/pay/versions")
            settings = eve.get("/v1/tools/measure/settings?own=true")
            found = eve.get("/v1/search", params={"q": "pay an amount"})
            read = eve.get("/v1/docs/search", params={"q": "pay an amount"})

        assert names(listed) == ["double"]
        assert (listed.json()["hidden"], listed.json()["next_cursor"]) == (0, None)
        assert hidden.status_code == versions.status_code == settings.status_code == 404
        assert hidden.text.replace("pay", "pbb") == absent.text
        assert {item["name"] for item in found.json()["items"]} <= {"double"}
        assert "pay" not in read.text


class TestWriting:
    def test_a_tool_can_be_called_as_soon_as_it_is_written(self, operator: httpx2.Client) -> None:
        made = operator.put("/v1/tools/triple", json={"source": TRIPLE})
        called = operator.post("/v1/tools/triple/call", json={"arguments": {"number": 5}})
        gone = operator.delete("/v1/tools/triple")

        assert (made.status_code, made.headers["location"]) == (201, "/v1/tools/triple")
        assert made.json()["tools"] == ["triple"]
        assert called.json()["value"] == 15
        assert gone.json()["tools"] == ["triple"]

    def test_another_version_takes_the_place_of_the_one_looked_at(
        self, operator: httpx2.Client, triple: str
    ) -> None:
        wrong = operator.put(
            "/v1/tools/triple", json={"source": BETTER}, headers={"if-match": '"0000"'}
        )
        right = operator.put(
            "/v1/tools/triple", json={"source": BETTER}, headers={"if-match": f'"{triple}"'}
        )
        late = operator.put(
            "/v1/tools/triple", json={"source": TRIPLE}, headers={"if-match": f'"{triple}"'}
        )

        assert (wrong.status_code, wrong.json()["code"]) == (412, "outdated")
        assert right.status_code == 200
        assert right.json()["digest"] != triple
        assert late.status_code == 412

    def test_only_a_new_one_is_created_if_that_is_said(
        self, operator: httpx2.Client, triple: str
    ) -> None:
        answer = operator.put(
            "/v1/tools/triple", json={"source": BETTER}, headers={"if-none-match": "*"}
        )

        assert (answer.status_code, answer.json()["code"]) == (412, "outdated")
        assert operator.get("/v1/tools/triple").json()["digest"] == triple

    def test_a_tool_in_a_folder_stays_there_with_its_helpers(
        self, api: Serving, operator: httpx2.Client
    ) -> None:
        place = "/v1/tools/quadruple"
        helper = api.tools / "more" / "numbers" / "_factors.py"
        helper.parent.mkdir(parents=True)
        helper.write_text("FOUR = 4\n")
        api.write({"more/numbers/many.py": QUADRUPLE})
        until(lambda: operator.get(place).status_code == 200)

        better = QUADRUPLE.replace("* FOUR", "* FOUR * 10")
        tag = operator.get(place).headers["etag"]
        put = operator.put(place, json={"source": better}, headers={"if-match": tag})
        called = operator.post(f"{place}/call", json={"arguments": {"number": 1}})
        written = (helper.parent / "many.py").read_text()
        gone = operator.delete(place)

        assert (put.status_code, put.json()["tools"]) == (200, ["quadruple"])
        assert called.json()["value"] == 40
        assert written == better
        assert gone.json() == {**gone.json(), "file": "more/numbers/many.py", "version": 2}

    @pytest.mark.parametrize(
        ("source", "place"),
        [
            ("def triple(:", "body.source:1"),
            (TRIPLE.replace("Args:", WRONG), "body.source:6"),
            ("x = 1", "body.source:1"),
        ],
    )
    def test_what_is_wrong_with_a_source_is_told_by_line(
        self, operator: httpx2.Client, source: str, place: str
    ) -> None:
        answer = operator.put("/v1/tools/triple", json={"source": source})

        assert (answer.status_code, answer.json()["code"]) == (422, "refused")
        assert place in {error["place"] for error in answer.json()["errors"]}
        assert operator.get("/v1/tools/triple").status_code == 404

    def test_a_source_declares_the_tool_that_it_is_written_as(
        self, operator: httpx2.Client
    ) -> None:
        answer = operator.put("/v1/tools/quadruple", json={"source": TRIPLE})

        assert answer.status_code == 422
        assert answer.json()["hint"] == "it declares triple"

    def test_a_file_of_several_tools_is_written_as_any_of_them(
        self, operator: httpx2.Client
    ) -> None:
        before = operator.get("/v1/tools/long_text").json()["digest"]
        changed = FILES["waiting.py"].replace('"x" * characters', '"y" * characters')

        answer = operator.put("/v1/tools/long_text", json={"source": changed})
        file = operator.get("/v1/tools/wait").json()["file"]
        back = operator.post("/v1/tools/wait/rollback", json={"version": before[:12]})

        assert (answer.status_code, file, back.status_code) == (200, "waiting.py", 200)
        assert sorted(answer.json()["tools"]) == ["long_text", "wait"]

    @pytest.mark.parametrize("name", ["..%2Fescape", "a%2Fb", "os", "search_tools", "double", "_x"])
    def test_a_name_that_no_file_can_have_is_refused(
        self, operator: httpx2.Client, name: str
    ) -> None:
        source = (
            f'def {name if name.isidentifier() else "f"}() -> int:\n    """Do."""\n    return 1\n'
        )

        answer = operator.put(f"/v1/tools/{name}", json={"source": source})

        assert answer.status_code in (400, 422)
        assert answer.headers["content-type"] == "application/problem+json"

    def test_writing_without_its_privilege_is_a_proposal(
        self, api: Serving, ann: httpx2.Client
    ) -> None:
        proposed = ann.put("/v1/tools/triple", json={"source": TRIPLE})
        unknown = ann.get("/v1/tools/triple")
        with api.client(api.session("eve", tools=["write_python_tool"])) as eve:
            hidden = eve.put("/v1/tools/fail", json={"source": FAILING})
        with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
            made = bob.put("/v1/tools/triple", json={"source": TRIPLE})
            removed = bob.delete("/v1/tools/triple")
        with api.client() as operator:
            operator.delete("/v1/tools/triple")

        assert (proposed.status_code, proposed.json()["proposed"]) == (202, True)
        assert unknown.status_code == 404
        assert (hidden.status_code, "taken" in hidden.text) == (409, True)
        assert made.status_code == 201
        assert (removed.status_code, removed.json()["code"]) == (403, "not_allowed")


class TestAuthoringSettings:
    def test_proposals_wait_for_a_person_and_can_be_revised(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        serving = Serving(tmp_path_factory.mktemp("propose"), authoring="propose")
        serving.write({"failing.py": FAILING})
        with serving.running(), serving.client() as operator:
            first = operator.put("/v1/tools/triple", json={"source": TRIPLE})
            second = operator.put("/v1/tools/triple", json={"source": BETTER})
            called = operator.post("/v1/tools/triple/call", json={"arguments": {"number": 5}})
            with serving.client(serving.session("bob", Privilege.WRITE_TOOLS)) as bob:
                run = bob.post("/v1/run", json={"source": TRIPLE})

        assert (first.status_code, second.status_code) == (202, 202)
        assert second.json()["proposed"]
        assert (called.status_code, called.json()["code"]) == (404, "not_admitted")
        assert (run.status_code, run.json()["code"]) == (403, "not_allowed")


class TestCaring:
    def test_a_tool_that_is_switched_off_is_gone_for_all_but_who_may_switch_it_on(
        self, operator: httpx2.Client, ann: httpx2.Client
    ) -> None:
        off = operator.patch("/v1/tools/fail", json={"enabled": False})
        seen = operator.get("/v1/tools/fail")
        unseen, called = ann.get("/v1/tools/fail"), ann.post("/v1/tools/fail/call", json={})
        listed = operator.get("/v1/tools", params={"enabled": "false"})
        on = operator.patch("/v1/tools/fail", json={"enabled": True})

        assert (off.json()["enabled"], seen.json()["enabled"], on.json()["enabled"]) == (
            False,
            False,
            True,
        )
        assert (unseen.status_code, unseen.json()["code"]) == (404, "unknown_tool")
        assert (called.status_code, called.json()["code"]) == (404, "unknown_tool")
        assert names(listed) == ["fail"]

    def test_methods_of_a_toolkit_are_switched_one_by_one(self, operator: httpx2.Client) -> None:
        some = operator.patch("/v1/toolkits/Shelf", json={"methods": {"put_up": False}})
        wrong = operator.patch("/v1/toolkits/Shelf", json={"methods": {"nope": False}})
        every = operator.patch("/v1/toolkits/Shelf", json={})

        assert some.json()["tools"] == {"put_up": False, "take_down": True}
        assert wrong.status_code == 404
        assert every.json()["tools"] == {"put_up": True, "take_down": True}

    def test_what_a_tool_asks_for_is_granted_on_request(self, operator: httpx2.Client) -> None:
        source = TRIPLE.replace(
            "\ndef", 'from toolkiln import tool\n\n\n@tool(workspace="read")\ndef'
        )
        made = operator.put("/v1/tools/triple", json={"source": source})
        before = operator.get("/v1/tools/triple").json()["granted"]
        after = operator.patch("/v1/tools/triple", json={"granted": True}).json()["granted"]
        operator.delete("/v1/tools/triple")

        assert made.status_code == 201
        assert (before["workspace"], after["workspace"]) == (None, "read")

    def test_a_removed_tool_comes_back_by_its_version(
        self, operator: httpx2.Client, triple: str
    ) -> None:
        stale = operator.delete("/v1/tools/triple", headers={"if-match": '"00"'})
        gone = operator.delete("/v1/tools/triple", headers={"if-match": f'"{triple}"'})
        missing = operator.get("/v1/tools/triple")
        versions = operator.get("/v1/tools/triple/versions").json()["items"]
        back = operator.post("/v1/tools/triple/rollback", json={"version": gone.json()["version"]})

        assert (stale.status_code, gone.status_code, missing.status_code) == (412, 200, 404)
        assert versions[0]["served"] is False
        assert (back.status_code, back.json()["digest"]) == (200, triple)

    def test_others_of_the_same_file_are_not_taken_along_unasked(
        self, operator: httpx2.Client
    ) -> None:
        answer = operator.delete("/v1/tools/wait")

        assert (answer.status_code, answer.json()["code"]) == (409, "takes_others")
        assert "long_text" in answer.json()["detail"]

    def test_versions_show_their_source_and_what_changed(
        self, operator: httpx2.Client, ann: httpx2.Client, triple: str
    ) -> None:
        operator.put("/v1/tools/triple", json={"source": BETTER})
        newest = operator.get("/v1/tools/triple/versions").json()["items"][0]["version"]

        shown = operator.get(f"/v1/tools/triple/versions/{newest}", params={"since": triple[:12]})
        refused = ann.get(f"/v1/tools/triple/versions/{newest}")
        missing = operator.get("/v1/tools/triple/versions/999")

        assert shown.json()["sources"] == {"triple.py": BETTER}
        assert "+    return 3 * number" in shown.json()["diff"]
        assert refused.status_code == 403
        assert missing.json()["code"] == "not_found"


class TestSettings:
    def test_secrets_are_set_but_never_shown(self, operator: httpx2.Client) -> None:
        changed = operator.patch(
            "/v1/tools/measure/settings",
            json={"values": {"unit": "kelvin", "token": "open sesame"}},
        )
        shown = operator.get("/v1/tools/measure/settings")
        called = operator.post("/v1/tools/measure/call")
        back = operator.patch("/v1/tools/measure/settings", json={"unset": ["unit", "token"]})

        assert changed.json()["values"] == {"unit": "kelvin", "token": "(secret, set)"}
        assert "sesame" not in changed.text + shown.text
        assert called.json()["value"] == "kelvin"
        assert back.json()["values"] == {}

    @pytest.mark.parametrize(
        "values", [{"unit": 5}, {"nope": 1}, {"token": "a"}, {"unit": "secret:KEY"}]
    )
    def test_values_that_do_not_fit_change_nothing(
        self, operator: httpx2.Client, values: dict[str, object]
    ) -> None:
        answer = operator.patch("/v1/tools/measure/settings", json={"values": values})

        assert answer.status_code == 400
        assert operator.get("/v1/tools/measure/settings").json()["values"] == {}

    def test_the_operators_settings_are_for_people_with_admin(self, ann: httpx2.Client) -> None:
        shown = ann.get("/v1/tools/measure/settings")
        changed = ann.patch("/v1/tools/measure/settings", json={"values": {"unit": "x"}})
        none = ann.get("/v1/tools/measure/settings", params={"own": "true"})

        assert (shown.status_code, changed.status_code) == (403, 403)
        assert none.status_code == 400


def test_a_key_that_came_under_another_condition_is_no_repetition(
    operator: httpx2.Client, triple: str
) -> None:
    key = {"Idempotency-Key": "condition"}
    body = {"enabled": True}

    first = operator.patch(
        "/v1/tools/triple", json=body, headers={**key, "If-Match": f'"{triple}"'}
    )
    again = operator.patch(
        "/v1/tools/triple", json=body, headers={**key, "If-Match": f'"{triple}"'}
    )
    other = operator.patch("/v1/tools/triple", json=body, headers={**key, "If-Match": '"else"'})
    empty = operator.patch("/v1/tools/triple", json=body, headers={**key, "If-Match": ""})

    assert (first.status_code, again.status_code) == (200, 200)
    assert [one.json()["code"] for one in (other, empty)] == ["key_reused"] * 2


class TestPresentation:
    def test_it_has_the_page_the_form_of_each_provider_and_findings(
        self, operator: httpx2.Client
    ) -> None:
        told = operator.get("/v1/tools/fail/presentation").json()

        assert told["page"].startswith("# ")
        assert "Fail in its own words" in told["page"]
        forms = {form["provider"]: form for form in told["forms"]}
        assert forms["openai-strict"]["tool"]["function"]["strict"] is True
        assert forms["anthropic"]["tool"]["input_schema"]["type"] == "object"
        assert all(form["left_out"] == [] for form in forms.values())
        assert isinstance(told["findings"], list)
        assert (told["color"], told["examples"]) == (None, [])

    def test_of_a_tool_that_nobody_may_know_of_there_is_none(self, api: Serving) -> None:
        with api.client(api.session("ann")) as ann:
            assert ann.get("/v1/tools/no_such_tool/presentation").status_code == 404
