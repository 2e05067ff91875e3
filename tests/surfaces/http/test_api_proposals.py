"""Files that wait for a person: what is shown of them over HTTP, and what an answer binds."""

from collections.abc import Iterator
from typing import Any

import pytest
from httpx2 import Client, Response

from toolkiln.model.identity import Privilege

from .serving import FAILING, TRIPLE, Serving, call, problem

ASKING = '''
from toolkiln import tool


@tool(network=["example.com"], workspace="read", requires_secrets=["TOKEN"])
def fetch() -> str:
    """Fetch something."""
    return "nothing"
'''
LOOSE = '''
from toolkiln import tool


@tool(sandbox=False)
def loose() -> str:
    """Run anywhere."""
    return "free"
'''
EXAMPLE_THAT_FAILS = 'three.\n\n    Examples:\n        >>> triple(2)\n        7\n    """'


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Where what is written is only proposed."""
    folder = tmp_path_factory.mktemp("proposals")
    serving = Serving(folder, authoring="propose", refuse=("bad-icon",))
    serving.write({"failing.py": FAILING})
    with serving.running():
        yield serving


@pytest.fixture(autouse=True)
def _nothing_waits(api: Serving) -> Iterator[None]:
    yield
    for file in api.tools.glob("*.py"):
        if file.name != "failing.py":
            file.unlink()
    (api.tools / "failing.py").write_text(FAILING, "utf-8")


@pytest.fixture
def bob(api: Serving) -> Iterator[Client]:
    """A caller who writes tools."""
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as client:
        yield client


def put(api: Serving, file: str, source: str) -> None:
    """Have a file on disk that no person has decided about."""
    (api.tools / file).write_text(source, "utf-8")


def shown(client: Client, file: str) -> dict[str, Any]:
    """A file that waits."""
    items = client.get("/v1/proposals").json()["items"]
    (found,) = [item for item in items if item["file"] == file]
    return dict(found)


def decide(client: Client, how: str, item: dict[str, Any], **more: Any) -> Response:
    """An answer about exactly the version that was looked at."""
    looked_at = {key: item[key] for key in ("file", "digest", "base")}
    return client.post(f"/v1/proposals/{how}", json=looked_at | more)


def recorded(client: Client, act: str) -> Any:
    """The detail of the last record of an act."""
    return client.get("/v1/audit", params={"act": act}).json()["items"][0]["detail"]


def test_a_proposal_is_shown_with_its_author_and_admitted_with_a_reason(
    api: Serving, operator: Client, bob: Client
) -> None:
    sources = TRIPLE.replace("* 3", "* 2"), TRIPLE
    proposed = [bob.put("/v1/tools/triple", json={"source": source}) for source in sources]
    early = call(operator, "triple", number=5)
    run = bob.post("/v1/run", json={"source": TRIPLE})
    prospects = bob.post("/v1/schema", json={"source": TRIPLE}).json()["prospects"]
    put(api, "other.py", TRIPLE.replace("triple", "other"))
    item = shown(operator, "triple.py")

    everything, proposals = (
        operator.get("/v1/proposals", params={"state": state}).json()["total"]
        for state in ("all", "proposed")
    )
    admitted = decide(operator, "admit", item, reason="looks good")
    called = call(operator, "triple", number=5)

    assert [answer.status_code for answer in proposed] == [202, 202]
    assert proposed[1].json()["proposed"]
    assert problem(early) == (404, "not_admitted")
    assert problem(run) == (403, "not_allowed")
    assert (prospects["saving"]["allowed"], prospects["is_proposal"]) == (True, True)
    assert "a person has to admit" in prospects["running"]["reason"]
    assert prospects["refused_rules"] == ["bad-icon"]
    assert (item["state"], item["by"], item["names"]) == ("proposed", "bob", ["triple"])
    assert (item["source"], item["base"], item["base_source"]) == (TRIPLE, None, None)
    assert item["at"] > 1.7e9
    assert admitted.json()["tools"] == ["triple"]
    assert called.json()["value"] == 15
    assert recorded(operator, "admit") == "triple.py: looks good"
    assert (everything, proposals) == (2, 1)
    assert operator.get("/v1/proposals", params={"state": "proposed"}).json()["items"] == []


def test_only_people_with_admin_see_proposals_in_the_catalog(operator: Client, bob: Client) -> None:
    bob.put("/v1/tools/thrice", json={"source": TRIPLE.replace("triple", "thrice")})
    bob.put("/v1/tools/fail", json={"source": FAILING.replace("ValueError", "TypeError")})

    seen, unseen = (
        {card["name"]: card for card in client.get("/v1/catalog").json()["tools"]}
        for client in (operator, bob)
    )

    assert (seen["thrice"]["state"], seen["thrice"]["has_proposal"]) == ("proposed", True)
    assert (seen["fail"]["state"], seen["fail"]["has_proposal"]) == ("served", True)
    assert "thrice" not in unseen
    assert not unseen["fail"]["has_proposal"]
    for file in ("thrice.py", "failing.py"):
        decide(operator, "reject", shown(operator, file))


def test_a_changed_file_is_shown_against_the_served_version(api: Serving, operator: Client) -> None:
    put(api, "failing.py", FAILING.replace("ValueError", "OSError"))

    item = shown(operator, "failing.py")
    rejected = decide(operator, "reject", item, reason="worse")

    assert (item["state"], item["by"], item["at"]) == ("changed", None, None)
    assert item["base_source"] == FAILING
    assert "-    raise ValueError(message)\n+    raise OSError(message)\n" in item["diff"]
    assert rejected.json()["served"]
    assert recorded(operator, "reject") == "failing.py: worse"
    assert operator.get("/v1/tools/fail").json()["digest"] == item["base"]


def test_the_served_version_again_is_no_proposal(operator: Client, bob: Client) -> None:
    made = bob.put("/v1/tools/fail", json={"source": FAILING})

    assert made.is_success
    for state in ("all", "proposed"):
        found = operator.get("/v1/proposals", params={"state": state}).json()
        assert (found["total"], found["items"]) == (0, [])


@pytest.mark.parametrize("how", ["admit", "reject"])
def test_only_the_version_that_was_looked_at_is_decided(
    api: Serving, operator: Client, how: str
) -> None:
    put(api, "fresh.py", TRIPLE)
    item = shown(operator, "fresh.py")
    put(api, "fresh.py", TRIPLE.replace("* 3", "* 4"))

    late = decide(operator, how, item)
    other_base = decide(operator, how, {**shown(operator, "fresh.py"), "base": "0" * 64})

    assert problem(late) == problem(other_base) == (412, "outdated")
    assert shown(operator, "fresh.py")["state"] == "new"


def test_the_first_answer_counts(api: Serving, operator: Client) -> None:
    put(api, "once.py", TRIPLE)
    item = shown(operator, "once.py")

    first, *late = [decide(operator, how, item) for how in ("admit", "reject", "admit")]
    put(api, "twice.py", TRIPLE.replace("triple", "twice"))
    other = shown(operator, "twice.py")
    no = decide(operator, "reject", other)
    after = decide(operator, "admit", other)

    assert first.status_code == no.status_code == 200
    assert [one.status_code for one in (*late, after)] == [412, 412, 412]
    assert operator.get("/v1/tools/triple").status_code == 200


def test_permissions_are_shown_and_granted_only_on_request(api: Serving, operator: Client) -> None:
    put(api, "asking.py", ASKING)
    item = shown(operator, "asking.py")

    decide(operator, "admit", item)
    without = operator.get("/v1/tools/fetch").json()["granted"]
    put(api, "asking.py", ASKING + "\n")
    again = shown(operator, "asking.py")
    decide(operator, "admit", again, grant=True)
    granted = operator.get("/v1/tools/fetch").json()["granted"]

    (asked,) = item["rights"]
    assert (asked["network"], asked["workspace"]) == (["example.com"], "read")
    assert asked["secrets"] == ["TOKEN"]
    assert (again["rights"], again["grants"]) == ([], item["grants"])
    assert (without["network"], granted["network"]) == ([], ["example.com"])


def test_a_file_with_errors_is_refused_with_its_lines(api: Serving, operator: Client) -> None:
    put(api, "wrong.py", TRIPLE.replace('three."""', EXAMPLE_THAT_FAILS))
    put(api, "broken.py", "def (")

    wrong, broken = (
        decide(operator, "admit", shown(operator, file)) for file in ("wrong.py", "broken.py")
    )

    assert problem(wrong) == problem(broken) == (422, "refused")
    assert wrong.json()["errors"][0]["message"].startswith("example-fails")
    assert wrong.json()["errors"][0]["place"].startswith("wrong.py:")


def test_only_people_with_admin_look_and_decide(
    api: Serving, operator: Client, ann: Client
) -> None:
    put(api, "loose.py", LOOSE)
    item = shown(operator, "loose.py")

    answers = [ann.get("/v1/proposals"), *(decide(ann, how, item) for how in ("admit", "reject"))]
    with api.client(api.session("carl", Privilege.ADMIN)) as carl:
        unsandboxed = decide(carl, "admit", item)

    assert {answer.status_code for answer in answers} == {403}
    assert item["rights"][0]["without_sandbox"]
    assert problem(unsandboxed) == (403, "not_allowed")
    assert shown(operator, "loose.py")["state"] == "new"


def test_a_path_that_is_no_file_of_the_folder_is_not_found(api: Serving, operator: Client) -> None:
    (api.folder / "outside.py").write_text(TRIPLE)
    put(api, "here.py", TRIPLE)
    item = {**shown(operator, "here.py"), "base": None}
    paths = [
        "nope.py", "../outside.py", "/etc/passwd", "a\0b.py", "x" * 4000, "./here.py",
        "_manifest.json",
    ]  # fmt: skip

    answers = {path: problem(decide(operator, "admit", {**item, "file": path})) for path in paths}

    assert answers == dict.fromkeys(paths, (404, "not_found"))


def test_a_long_list_comes_in_parts(api: Serving, operator: Client) -> None:
    for number in range(5):
        put(api, f"many_{number}.py", TRIPLE.replace("triple", f"many_{number}"))

    first = operator.get("/v1/proposals", params={"limit": 3}).json()
    (api.tools / "many_2.py").unlink()
    rest = operator.get("/v1/proposals", params={"cursor": first["next_cursor"]}).json()

    files = [item["file"] for item in first["items"] + rest["items"]]
    assert files == [f"many_{number}.py" for number in range(5)]
    assert (first["total"], rest["total"], rest["next_cursor"]) == (5, 4, None)
