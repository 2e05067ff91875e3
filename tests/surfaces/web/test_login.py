"""Logging in by key, and pages of other origins that would like to use that."""

import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Response, expect

from toolkiln.model.audit import AuditFilter
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR, account_name
from toolkiln.surfaces.cli.serve import redirect_file

from .site import SOON, Look, Site, looking

OWN_PAGE = {"x-toolkiln-page": "1", "sec-fetch-site": "same-origin"}
UNAUTHORIZED = "the server responded with a status of 401"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server where everybody needs a key."""
    site = Site(tmp_path_factory.mktemp("login"), {}, require_key=True)
    with site.running():
        yield site


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that serves anonymous callers."""
    site = Site(tmp_path_factory.mktemp("open"), {})
    with site.running():
        yield site


@pytest.fixture(scope="module")
def key(site: Site) -> str:
    return new_key(site, "ann")


def new_key(site: Site, name: str) -> str:
    return site.kiln.security.keys.create(name, KeyScope(user_id=name), LOCAL_OPERATOR).text


@pytest.fixture
def client(site: Site) -> Iterator[httpx2.Client]:
    with site.client("") as client:
        yield client


def log_in(client: httpx2.Client, key: str) -> httpx2.Response:
    return client.post("/ui/login", json={"key": key}, headers=OWN_PAGE)


def own(client: httpx2.Client, **headers: str) -> httpx2.Response:
    return client.get("/v1/sessions/own", headers={**OWN_PAGE, **headers})


class TestPerson:
    def test_logs_in_with_a_key_reaches_the_requested_page_and_logs_out(
        self, look: Look, key: str
    ) -> None:
        view = look("/runs", signed_in=False)
        view.forgiven = (UNAUTHORIZED,)
        page = view.page

        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        view.check_access()
        page.get_by_label("API key").fill("tk_made_up")
        page.keyboard.press("Enter")
        expect(page.get_by_text("This key is unknown, revoked or expired.")).to_be_visible()
        page.get_by_label("API key").fill(f" {key} ")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/runs")
        (cookie,) = page.context.cookies()
        seen = page.evaluate("document.cookie")
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_have_count(0)
        page.goto(f"{view.url}/ui/settings")
        page.get_by_role("button", name="Sign out").click()

        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert seen == ""
        assert page.context.cookies() == []

    def test_logs_in_from_another_machine_over_plain_http(
        self, browser: Browser, site: Site, key: str
    ) -> None:
        chromium = shutil.which("chromium")
        named = ["--no-sandbox", "--host-resolver-rules=MAP kiln.test 127.0.0.1"]
        url = site.url.replace("127.0.0.1", "kiln.test")
        kind = browser.browser_type
        with (
            kind.launch(executable_path=chromium, args=named) as other,
            looking(other, site, url=url, signed_in=False) as view,
        ):
            view.forgiven = (UNAUTHORIZED, "Cross-Origin-Opener-Policy")
            page = view.open("/settings")
            page.get_by_label("API key").fill(key)
            page.keyboard.press("Enter")
            expect(page.locator(".facts").first).to_contain_text("ann")
            assert page.evaluate("isSecureContext") is False
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            page.get_by_role("button", name="Copy command").click()

            expect(page.get_by_text("select the text instead")).to_be_visible()


class TestLocalPerson:
    def test_signs_in_with_a_link_that_works_once_and_signs_out(
        self, browser: Browser, open_site: Site
    ) -> None:
        link = open_site.server.sign_in_url(open_site.url)
        assert link is not None
        with looking(browser, open_site, signed_in=False) as view:
            page = view.page
            page.goto(link)

            expect(page.get_by_title("You are signed in")).to_have_text(account_name())
            expect(page.get_by_role("link", name="Approvals")).to_be_visible()
            expect(page.get_by_text("You are not signed in")).to_have_count(0)
            assert page.url == f"{open_site.url}/ui/"
            assert page.evaluate("document.referrer") == ""
            view.open("/settings")
            expect(page.get_by_role("link", name="Keys")).to_be_visible()
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_text("You are not signed in")).to_be_visible()
            expect(page.get_by_role("link", name=re.compile("Approvals|Audit"))).to_have_count(0)
            view.check_access()
            page.goto(link)
            expect(page.get_by_role("alert")).to_contain_text("used before or is not valid")
            view.check_access()

    def test_reaches_the_page_by_a_file_as_dev_opens_it(
        self, browser: Browser, open_site: Site
    ) -> None:
        link = open_site.server.sign_in_url(open_site.url)
        assert link is not None
        with redirect_file(link) as address, browser.new_context() as context:
            page = context.new_page()
            page.goto(address)

            page.wait_for_url(f"{open_site.url}/ui/")
            expect(page.get_by_title("You are signed in")).to_have_text(account_name())

    def test_can_continue_without_signing_in_when_the_session_has_ended(
        self, browser: Browser, open_site: Site
    ) -> None:
        with looking(browser, open_site) as view:
            view.forgiven = (UNAUTHORIZED,)
            (cookie,) = view.page.context.cookies()
            open_site.kiln.security.sessions.end_local(cookie["value"])
            page = view.open("/")
            page.get_by_role("button", name="Continue without signing in").click()

            expect(page.get_by_text("You are not signed in")).to_be_visible()


class TestSession:
    def test_acts_for_the_key_s_user_until_it_is_logged_out(
        self, client: httpx2.Client, key: str
    ) -> None:
        answer = log_in(client, key)
        token = client.cookies[next(iter(client.cookies))]
        known = own(client).json()
        client.post("/ui/logout", headers=OWN_PAGE)
        name = answer.headers["set-cookie"].partition("=")[0]

        assert (answer.json(), known["user"]) == ({"seconds": 8 * 3600}, "ann")
        assert len(client.cookies) == 0
        assert own(client, cookie=f"{name}={token}").json()["code"] == "no_session"

    def test_ends_with_its_key(self, site: Site, client: httpx2.Client) -> None:
        log_in(client, new_key(site, "bea"))
        before = own(client).status_code

        site.kiln.security.keys.revoke("bea", LOCAL_OPERATOR)

        assert (before, own(client).status_code) == (200, 401)

    def test_is_opened_neither_for_other_pages_nor_without_a_key(
        self, client: httpx2.Client, key: str
    ) -> None:
        bare = client.post("/ui/login", json={"key": key})
        strange = [
            client.post("/ui/login", content=body, headers={**OWN_PAGE, "content-type": kind})
            for body, kind in (("{}", "application/json"), (f"key={key}", "text/plain"))
        ]

        assert (bare.status_code, bare.json()["code"]) == (403, "origin_refused")
        assert [answer.status_code for answer in strange] == [422, 415]
        assert len(client.cookies) == 0


class TestWrongKey:
    def test_is_recorded_without_the_key(self, site: Site, client: httpx2.Client) -> None:
        answer = log_in(client, "tk_not_a_key_of_anybody")

        assert (answer.status_code, answer.json()["code"]) == (401, "no_session")
        (entry,) = site.kiln.security.audit.entries(AuditFilter(act="login"), 1)
        assert (entry.record.act, entry.record.outcome) == ("login", "denied")
        assert entry.record.detail == "from 127.0.0.1"
        assert not list(files_with(site.tools.parent, b"tk_not_a_key"))

    def test_is_recorded_ten_times_a_minute_for_one_address(self, tmp_path: Path) -> None:
        site = Site(tmp_path, {}, require_key=True)
        with site.running(), site.client("") as client, ThreadPoolExecutor(15) as pool:
            answers = [*pool.map(lambda _: log_in(client, "tk_wrong"), range(15))]
            right = log_in(client, new_key(site, "ann"))
            denied = [*site.kiln.security.audit.entries(AuditFilter(act="login", outcome="denied"))]

        assert {answer.status_code for answer in answers} == {401}
        assert right.status_code == 200
        details = [one.record.detail for one in denied]
        assert details.count("from 127.0.0.1") == 9
        assert details.count("from 127.0.0.1; more within a minute are not recorded") == 1
        assert len(details) == 10


def files_with(folder: Path, text: bytes) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and text in file.read_bytes())


@contextmanager
def elsewhere() -> Iterator[int]:
    """The port of another server on this machine, with an empty page."""

    class Blank(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title><link rel=icon href=data:,>")

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(SOON)


ATTEMPTS = """async (url) => {
  const tries = [
    [url + "/v1/tools", {}],
    [url + "/v1/sessions/own", {credentials: "include", mode: "no-cors"}],
    [url + "/v1/sessions/own", {credentials: "include", headers: {"X-Toolkiln-Page": "1"}}],
    [url + "/v1/approvals/x/forget", {method: "POST", credentials: "include", mode: "no-cors"}],
    [url + "/v1/tools/x/call", {method: "POST", mode: "no-cors", body: "{}"}],
    [url + "/ui/logout", {method: "POST", credentials: "include", mode: "no-cors"}],
    [url + "/mcp", {method: "POST", mode: "no-cors", body: "{}"}],
  ];
  const read = [];
  for (const [address, options] of tries) {
    const answer = await fetch(address, options).catch(() => null);
    if (answer && answer.type !== "opaque") read.push(address);
  }
  const image = new Image();
  await new Promise((go) => { image.onload = image.onerror = go; image.src = url + "/v1/events"; });
  return read;
}"""
FORM = """(url) => {
  const form = Object.assign(document.createElement("form"), {
    method: "post", action: url + "/v1/sessions/end", enctype: "text/plain"});
  document.body.append(form);
  form.submit();
}"""
LINK = """(url) => {
  const link = Object.assign(document.createElement("a"), {href: url});
  document.body.append(link);
  link.click();
}"""


class TestPageOfAnotherOrigin:
    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
    def test_gets_nothing_done_on_this_machine(
        self, browser: Browser, open_site: Site, name: str
    ) -> None:
        answers: list[Response] = []
        with elsewhere() as port, browser.new_context() as context:
            page = context.new_page()
            page.on("response", lambda answer: answers.append(answer))
            page.goto(f"http://{name}:{port}/")
            read = page.evaluate(ATTEMPTS, open_site.url)
            with page.expect_navigation():
                page.evaluate(FORM, open_site.url)

        statuses = {answer.status for answer in answers if answer.url.startswith(open_site.url)}
        assert (read, statuses) == ([], {403})

    def test_gets_nothing_done_for_a_person_who_is_logged_in(
        self, browser: Browser, site: Site, key: str
    ) -> None:
        answers: list[Response] = []
        with elsewhere() as port, browser.new_context() as context:
            page = logged_in(context.new_page(), site, key)
            page.goto(f"http://127.0.0.1:{port}/")
            page.on("response", lambda answer: answers.append(answer))
            read = page.evaluate(ATTEMPTS, site.url)
            statuses = {answer.status for answer in answers}
            page.goto(f"{site.url}/ui/settings")
            expect(page.get_by_role("heading", name="Settings").first).to_be_visible()

        assert (read, statuses) == ([], {403})

    def test_can_lead_people_to_the_page(self, browser: Browser, open_site: Site) -> None:
        with elsewhere() as port, browser.new_context() as context:
            page = context.new_page()
            page.goto(f"http://localhost:{port}/")
            page.evaluate(LINK, open_site.url)

            page.wait_for_url("**/ui/")
            expect(page.locator("main h1").first).to_be_visible()


def logged_in(page: Page, site: Site, key: str) -> Page:
    page.goto(f"{site.url}/ui/login")
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/")
    return page
