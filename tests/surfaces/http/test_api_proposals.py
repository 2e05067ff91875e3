"""Files that wait for a person: what is shown of them over HTTP, and what an answer binds."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from toolkiln.model.identity import Privilege

from .serving import FAILING, TRIPLE, Serving

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


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Where what is written is only proposed."""
    serving = Serving(tmp_path_factory.mktemp("proposals"), authoring="propose")
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


def put(api: Serving, file: str, source: str) -> None:
    """Have a file on disk that nobody decided about."""
    (api.tools / file).write_text(source, "utf-8")


def shown(client: httpx2.Client, file: str) -> dict[str, Any]:
    """A file that waits."""
    items = client.get("/v1/proposals").json()["items"]
    (found,) = [item for item in items if item["file"] == file]
    return dict(found)


def looked(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An answer about exactly that."""
    return {key: item[key] for key in ("file", "digest", "base")} | more


def decide(client: httpx2.Client, how: str, item: dict[str, Any], **more: Any) -> httpx2.Response:
    return client.post(f"/v1/proposals/{how}", json=looked(item, **more))


def recorded(client: httpx2.Client, act: str) -> dict[str, Any]:
    """The last record of an act."""
    return dict(client.get("/v1/audit", params={"act": act}).json()["items"][0])


def test_a_proposal_is_shown_with_who_made_it_and_admitted_with_a_reason(
    api: Serving, operator: httpx2.Client
) -> None:
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
        bob.put("/v1/tools/triple", json={"source": TRIPLE})
    put(api, "other.py", TRIPLE.replace("triple", "other"))
    item = shown(operator, "triple.py")

    all_of_them, proposed = (
        operator.get("/v1/proposals", params={"state": state}).json()["total"]
        for state in ("all", "proposed")
    )
    admitted = decide(operator, "admit", item, reason="looks good")
    called = operator.post("/v1/tools/triple/call", json={"arguments": {"number": 5}})

    assert (item["state"], item["by"], item["names"]) == ("proposed", "bob", ["triple"])
    assert (item["source"], item["base"], item["base_source"]) == (TRIPLE, None, None)
    assert item["at"] > 1.7e9
    assert admitted.json()["tools"] == ["triple"]
    assert called.json()["value"] == 15
    assert recorded(operator, "admit")["detail"] == "triple.py: looks good"
    assert (all_of_them, proposed) == (2, 1)
    assert operator.get("/v1/proposals", params={"state": "proposed"}).json()["items"] == []


def test_a_changed_file_is_shown_against_what_is_served(
    api: Serving, operator: httpx2.Client
) -> None:
    put(api, "failing.py", FAILING.replace("ValueError", "OSError"))

    item = shown(operator, "failing.py")
    rejected = decide(operator, "reject", item, reason="worse")

    assert (item["state"], item["by"], item["at"]) == ("changed", None, None)
    assert item["base_source"] == FAILING
    assert "-    raise ValueError(message)\n+    raise OSError(message)\n" in item["diff"]
    assert rejected.json()["served"]
    assert recorded(operator, "reject")["detail"] == "failing.py: worse"
    assert operator.get("/v1/tools/fail").json()["digest"] == item["base"]


def test_what_is_served_already_waits_for_nobody(api: Serving, operator: httpx2.Client) -> None:
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
        made = bob.put("/v1/tools/fail", json={"source": FAILING})

    assert made.is_success
    for state in ("all", "proposed"):
        found = operator.get("/v1/proposals", params={"state": state}).json()
        assert (found["total"], found["items"]) == (0, [])


@pytest.mark.parametrize("how", ["admit", "reject"])
def test_what_was_not_looked_at_is_not_decided(
    api: Serving, operator: httpx2.Client, how: str
) -> None:
    put(api, "fresh.py", TRIPLE)
    item = shown(operator, "fresh.py")
    put(api, "fresh.py", TRIPLE.replace("* 3", "* 4"))

    late = decide(operator, how, item)
    other_base = decide(operator, how, {**shown(operator, "fresh.py"), "base": "0" * 64})

    assert (late.status_code, late.json()["code"]) == (412, "outdated")
    assert (other_base.status_code, other_base.json()["code"]) == (412, "outdated")
    assert shown(operator, "fresh.py")["state"] == "new"


def test_the_first_answer_counts(api: Serving, operator: httpx2.Client) -> None:
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


def test_rights_are_shown_and_granted_only_on_request(
    api: Serving, operator: httpx2.Client
) -> None:
    put(api, "asking.py", ASKING)
    item = shown(operator, "asking.py")

    decide(operator, "admit", item)
    without = operator.get("/v1/tools/fetch").json()["granted"]
    put(api, "asking.py", ASKING + "\n")
    again = shown(operator, "asking.py")
    decide(operator, "admit", again, grant=True)
    granted = operator.get("/v1/tools/fetch").json()["granted"]

    (asked,) = item["rights"]
    assert (asked["network"], asked["workspace"], asked["secrets"]) == (
        ["example.com"],
        "read",
        ["TOKEN"],
    )
    assert (again["rights"], again["grants"]) == ([], item["grants"])
    assert (without["network"], granted["network"]) == ([], ["example.com"])


def test_what_does_not_pass_is_refused_with_its_lines(
    api: Serving, operator: httpx2.Client
) -> None:
    example = '    number: The number.\n\n    Examples:\n        >>> triple(2)\n        7\n    """'
    put(api, "wrong.py", TRIPLE.replace('    number: The number.\n    """', example))
    put(api, "broken.py", "def (")

    wrong = decide(operator, "admit", shown(operator, "wrong.py"))
    broken = decide(operator, "admit", shown(operator, "broken.py"))

    assert (wrong.status_code, wrong.json()["code"]) == (422, "refused")
    assert wrong.json()["errors"][0]["message"].startswith("example-fails")
    assert wrong.json()["errors"][0]["place"].startswith("wrong.py:")
    assert (broken.status_code, broken.json()["code"]) == (422, "refused")


def test_only_people_with_admin_look_and_decide(
    api: Serving, operator: httpx2.Client, ann: httpx2.Client
) -> None:
    put(api, "loose.py", LOOSE)
    item = shown(operator, "loose.py")

    answers = [ann.get("/v1/proposals"), *(decide(ann, how, item) for how in ("admit", "reject"))]
    with api.client(api.session("carl", Privilege.ADMIN)) as carl:
        unsandboxed = decide(carl, "admit", item)

    assert {answer.status_code for answer in answers} == {403}
    assert item["rights"][0]["without_sandbox"]
    assert (unsandboxed.status_code, unsandboxed.json()["code"]) == (403, "not_allowed")
    assert shown(operator, "loose.py")["state"] == "new"


@pytest.mark.parametrize(
    "file",
    [
        "nope.py",
        "../outside.py",
        "/etc/passwd",
        "a\0b.py",
        "x" * 4000,
        "./here.py",
        "_manifest.json",
    ],
)
def test_a_file_that_is_none_of_the_folder_is_not_found(
    api: Serving, operator: httpx2.Client, file: str
) -> None:
    (api.folder / "outside.py").write_text(TRIPLE)
    put(api, "here.py", TRIPLE)
    digest = shown(operator, "here.py")["digest"]

    answer = operator.post(
        "/v1/proposals/admit", json={"file": file, "digest": digest, "base": None}
    )

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_long_list_comes_in_parts(api: Serving, operator: httpx2.Client) -> None:
    for number in range(5):
        put(api, f"many_{number}.py", TRIPLE.replace("triple", f"many_{number}"))

    first = operator.get("/v1/proposals", params={"limit": 3}).json()
    (api.tools / "many_2.py").unlink()
    rest = operator.get("/v1/proposals", params={"cursor": first["next_cursor"]}).json()

    files = [item["file"] for item in first["items"] + rest["items"]]
    assert files == [f"many_{number}.py" for number in range(5)]
    assert (first["total"], rest["total"], rest["next_cursor"]) == (5, 4, None)


def test_a_proposal_lists_an_overruled_error_and_the_admission_records_it(
    api: Serving, operator: httpx2.Client
) -> None:
    key = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    source = f'KEY = "{key}"  # toolkiln: ignore[literal-secret]\n{TRIPLE}'
    with api.client(api.session("bob", Privilege.WRITE_TOOLS)) as bob:
        refused = bob.put("/v1/tools/triple", json={"source": source.replace("# toolkiln", "#")})
        proposed = bob.put("/v1/tools/triple", json={"source": source})
    item = shown(operator, "triple.py")

    admitted = decide(operator, "admit", item)

    manifest = json.loads((api.tools / "_manifest.json").read_bytes())
    [recorded_error] = manifest["files"]["triple.py"]["overruled"]
    assert (refused.status_code, proposed.status_code) == (422, 202), proposed.text
    assert [f["rule"] for f in item["findings"] if f["overruled"]] == ["literal-secret"]
    assert admitted.json()["tools"] == ["triple"], admitted.text
    assert recorded_error["rule"] == "literal-secret"
    assert recorded_error["by"] == manifest["files"]["triple.py"]["admitted_by"]
