"""Which requests come in, and when a cookie says who makes them."""

from tables import each_row
from toolkiln.surfaces.http.middleware import AccessPolicy, RequestOrigin, clear_cookies, set_cookie
from toolkiln.surfaces.http.responses import HttpProblem

HERE = {"host": "127.0.0.1:8420"}
THERE = {"host": "kiln.example", "sec-fetch-site": "same-origin"}
PLAIN = {"host": "10.0.0.7:8420"}
MARK = {"x-toolkiln-page": "1"}
FORWARDED = {"x-forwarded-for": "10.0.0.1"}
PAGE = {**MARK, "sec-fetch-site": "same-origin"}
COOKIE = {"cookie": "other=1; toolkiln-8420=ts_mine"}
SECURE = {"cookie": "__Host-toolkiln=ts_mine"}
NO_CALLER, NO_CALLER_HERE = RequestOrigin(), RequestOrigin(is_local=True)
CALLER = RequestOrigin(token="ts_mine")
CALLER_HERE = RequestOrigin(token="ts_mine", is_local=True)
LOCAL, KEYED = AccessPolicy(any_host=False), AccessPolicy(any_host=True)


def check(
    access: AccessPolicy, headers: dict[str, str], path: str = "/v1/tools", method: str = "GET"
) -> RequestOrigin | str:
    """What is known of a request, or the code of the refusal."""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        return access.check(method, path.encode(), sent)
    except HttpProblem as refused:
        return refused.problem.code


class TestPagesOfOtherSites:
    @each_row(
        "method, site, path",
        [
            *(
                (method, "cross-site", "/v1/tools")
                for method in ("GET", "POST", "DELETE", "OPTIONS")
            ),
            *(("GET", site, "/v1/tools") for site in ("same-site", "nonsense")),
            *(("GET", "cross-site", path) for path in ("/mcp", "/metrics")),
            *(("POST", "cross-site", path) for path in ("/mcp", "/ui/login", "/ui/logout")),
        ],
    )
    def test_are_refused(self, method: str, site: str, path: str) -> None:
        assert check(LOCAL, {**HERE, "sec-fetch-site": site}, path, method) == "origin_refused"

    @each_row("path", ["/", "/ui", "/ui/", "/ui/tools/x", "/docs", "/healthz"])
    def test_can_lead_to_public_pages(self, path: str) -> None:
        asked = {**HERE, "sec-fetch-site": "cross-site"}

        assert check(LOCAL, asked, path) == RequestOrigin(is_local=True)
        assert check(KEYED, {**asked, "host": "kiln.example"}, path) == RequestOrigin()

    def test_of_configured_origins_are_accepted_but_are_not_the_own_page(self) -> None:
        access = AccessPolicy(False, origins=frozenset({"https://app.example"}))
        origin = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}

        found = check(access, {**HERE, **PAGE, **COOKIE, **origin}, method="POST")

        assert found == RequestOrigin("https://app.example", is_local=True)

    @each_row("site", ["none", "same-origin"])
    def test_are_neither_a_person_nor_the_own_page(self, site: str) -> None:
        assert check(LOCAL, {**HERE, "sec-fetch-site": site}) == RequestOrigin(is_local=True)


class TestCookie:
    @each_row(
        "access, headers, origin",
        [
            (LOCAL, {**HERE, **PAGE, **COOKIE}, CALLER_HERE),
            (KEYED, {**THERE, **PAGE, **SECURE}, CALLER),
            # without the header of the page, or with another value
            (LOCAL, {**HERE, **COOKIE}, NO_CALLER_HERE),
            (KEYED, {**THERE, **SECURE}, NO_CALLER),
            (KEYED, {**THERE, **SECURE, "x-toolkiln-page": "yes"}, NO_CALLER),
            # a page on another port of this machine
            (KEYED, {**HERE, **COOKIE, **MARK, "origin": "http://127.0.0.1:3000"}, NO_CALLER_HERE),
            # over plain HTTP browsers do not name the site
            (KEYED, {**PLAIN, **MARK, **COOKIE}, CALLER),
            (KEYED, {**PLAIN, **MARK, **COOKIE, "origin": "http://10.0.0.7:8420"}, CALLER),
            # over TLS a neighbouring site can set a cookie without the prefix
            (KEYED, {**THERE, **PAGE, "cookie": "toolkiln=ts_theirs"}, NO_CALLER),
            (KEYED, {**THERE, **PAGE, **SECURE, "authorization": "Bearer x"}, NO_CALLER),
            # a proxy on this machine does not make a request local
            (LOCAL, {**HERE, **PAGE, **FORWARDED, "cookie": "toolkiln-8420=nonsense"}, NO_CALLER),
        ],
    )
    def test_identifies_the_caller_for_the_own_page_alone(
        self, access: AccessPolicy, headers: dict[str, str], origin: RequestOrigin
    ) -> None:
        assert check(access, headers, method="POST") == origin

    @each_row(
        "cookie",
        [
            "toolkiln-8420=tk_key", "toolkiln-8420=", "toolkiln-8420=ts_a; toolkiln-8420=ts_b",
            "toolkiln=ts_mine", "toolkiln-9999=ts_mine", "toolkiln-8420=ts_a b", ";;=;", "x" * 9999,
        ],
    )  # fmt: skip
    def test_of_another_form_is_ignored(self, cookie: str) -> None:
        keyed = {**HERE, **PAGE, "cookie": cookie}

        assert check(KEYED, keyed) == RequestOrigin(is_local=True)

    def test_is_kept_from_scripts_and_other_sites(self) -> None:
        plain = set_cookie({b"host": "127.0.0.1:8420"}, "ts_mine", 60.5)
        secure = set_cookie({b"host": "kiln.example", b"origin": "https://kiln.example"}, "ts_x", 9)

        assert plain == "toolkiln-8420=ts_mine; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
        assert secure == (
            "__Host-toolkiln=ts_x; Path=/; Max-Age=9; HttpOnly; SameSite=Strict; Secure"
        )

    def test_is_forgotten_under_both_of_its_names(self) -> None:
        cleared = clear_cookies({b"host": "[::1]:8420"})

        names = [cookie.partition("=;")[0] for cookie in cleared]
        assert names == ["__Host-toolkiln-8420", "toolkiln-8420"]
        assert all("Max-Age=0" in cookie for cookie in cleared)
