"""docs/http.md against the code: its codes, its operations, and its examples, which are run."""

import re
import shlex
from pathlib import Path

import httpx2

from toolkiln.surfaces.http.adapter import Route
from toolkiln.surfaces.http.responses import STATUSES
from toolkiln.surfaces.http.routes import ROUTES

from .serving import TRIPLE, Paying, Serving, call

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")
HERE = "http://127.0.0.1:8420"


def examples() -> list[str]:
    """The commands of all blocks, each in one line."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)
    lines = "".join(blocks).replace(" \\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines]


def request(client: httpx2.Client, command: str) -> httpx2.Request:
    """What curl would send."""
    program, *words = shlex.split(command)
    assert program == "curl"
    method, headers, body, url = "GET", {}, None, ""
    while words:
        match words.pop(0):
            case "-N" | "--compressed":
                pass
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case place:
                url = place.removeprefix(HERE)
    return client.build_request(method, url, headers=headers, content=body)


def test_every_code_is_documented_with_its_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.M)

    assert {code: int(status) for code, status in rows} == STATUSES
    assert len(rows) == len(STATUSES)


def test_every_operation_has_an_example() -> None:
    client = httpx2.Client(base_url=HERE)
    sent = [request(client, command) for command in examples()]

    shown = {route_of(one).name for one in sent}

    assert shown == {operation.name for operation in ROUTES}


def route_of(sent: httpx2.Request) -> Route:
    """The route of a request; a fixed path goes before one with variable parts."""
    path = sent.url.raw_path.split(b"?")[0].decode()
    patterns = [(re.sub(r"\{\w+\}", "[^/]+", one.path), one) for one in ROUTES]
    fitting = [
        one for regex, one in patterns if one.method == sent.method and re.fullmatch(regex, path)
    ]
    return min(fitting, key=lambda one: "{" in one.path)


def test_every_example_works(api: Serving, operator: httpx2.Client) -> None:
    cut = call(operator, "long_text", characters=60_000)
    lasting = {"arguments": {"seconds": 100}, "background": True}
    running = operator.post("/v1/tools/wait/call", json=lasting)
    first, second = Paying(api, "bea", 50), Paying(api, "bob", 60)
    for file in ("fresh.py", "worse.py"):
        (api.tools / file).write_text(TRIPLE.replace("triple", file.removesuffix(".py")))
    waiting = {one["file"]: one for one in operator.get("/v1/proposals").json()["items"]}
    known = {
        "DIGEST": waiting["fresh.py"]["digest"],
        "OTHER": waiting["worse.py"]["digest"],
        "HANDLE": cut.json()["truncation"]["handle"],
        "RUN": running.json()["id"],
        "ID": first.request["id"],
        "ANOTHER": second.request["id"],
        "TOKEN": api.session("fay"),
        "TRACE_ID": api.kiln.security.sessions.create("gil").trace_id,
    }
    for command in examples():
        filled = re.sub(rf"\b({'|'.join(known)})\b", lambda found: known[found[1]], command)
        answer = operator.send(request(operator, filled), stream=True)
        if not command.endswith("/v1/events"):  # which has no end
            answer.read()
        answer.close()

        assert answer.status_code < 300, command
    assert first.result()["value"] == 10
    assert second.result()["status"] == "denied"
