"""Which requests come in, and when a cookie says who makes them."""

import pytest

from toolkiln.surfaces.http.middleware import AccessPolicy, RequestOrigin, clear_cookies, set_cookie
from toolkiln.surfaces.http.responses import HttpProblem

HERE = {"host": "127.0.0.1:8420"}
THERE = {"host": "kiln.example", "sec-fetch-site": "same-origin"}
PAGE = {"x-toolkiln-page": "1", "sec-fetch-site": "same-origin"}
COOKIE = {"cookie": "other=1; toolkiln-8420=ts_mine"}
SECURE = {"cookie": "__Host-toolkiln=ts_mine"}
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
    @pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
    @pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
    @pytest.mark.parametrize("path", ["/v1/tools", "/mcp", "/metrics"])
    def test_are_turned_away_whatever_they_ask(self, method: str, site: str, path: str) -> None:
        asked = {**HERE, "sec-fetch-site": site}

        assert check(LOCAL, asked, path, method) == "origin_refused"

    @pytest.mark.parametrize("path", ["/", "/ui", "/ui/", "/ui/tools/x", "/docs", "/healthz"])
    def test_can_lead_to_what_anybody_may_see(self, path: str) -> None:
        asked = {**HERE, "sec-fetch-site": "cross-site"}

        assert check(LOCAL, asked, path) == RequestOrigin(is_local=True)
        assert check(KEYED, {**asked, "host": "kiln.example"}, path) == RequestOrigin()

    def test_cannot_log_anybody_in_or_out(self) -> None:
        asked = {**HERE, "sec-fetch-site": "cross-site"}

        found = {check(LOCAL, asked, f"/ui/{what}", "POST") for what in ("login", "logout")}

        assert found == {"origin_refused"}

    def test_of_configured_origins_may_ask_but_are_not_the_own_page(self) -> None:
        access = AccessPolicy(False, origins=frozenset({"https://app.example"}))
        origin = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}

        found = check(access, {**HERE, **PAGE, **COOKIE, **origin}, method="POST")

        assert found == RequestOrigin("https://app.example", is_local=True)

    @pytest.mark.parametrize("site", ["none", "same-origin"])
    def test_are_not_meant_where_a_person_or_the_page_asks(self, site: str) -> None:
        assert check(LOCAL, {**HERE, "sec-fetch-site": site}) == RequestOrigin(is_local=True)


class TestCookie:
    def test_says_who_asks_where_the_own_page_does(self) -> None:
        assert check(LOCAL, {**HERE, **PAGE, **COOKIE}) == RequestOrigin(
            token="ts_mine", is_local=True
        )
        assert check(KEYED, {**THERE, **PAGE, **SECURE}) == RequestOrigin(token="ts_mine")

    def test_is_no_credential_without_the_page_s_header(self) -> None:
        assert check(KEYED, {**THERE, **SECURE}) == RequestOrigin()
        assert check(KEYED, {**THERE, **SECURE, "x-toolkiln-page": "yes"}) == RequestOrigin()
        assert check(LOCAL, {**HERE, **COOKIE}) == RequestOrigin(is_local=True)

    def test_is_no_credential_of_a_page_on_another_port(self) -> None:
        other = {"origin": "http://127.0.0.1:3000"}
        page = {**HERE, **COOKIE, "x-toolkiln-page": "1", **other}

        assert check(KEYED, page, method="POST") == RequestOrigin(is_local=True)

    def test_counts_over_plain_http_where_browsers_do_not_name_the_site(self) -> None:
        page = {"host": "10.0.0.7:8420", "x-toolkiln-page": "1", **COOKIE}

        assert check(KEYED, page) == RequestOrigin(token="ts_mine")
        assert check(KEYED, {**page, "origin": "http://10.0.0.7:8420"}) == RequestOrigin(
            token="ts_mine"
        )

    def test_that_a_neighbouring_site_could_have_set_does_not_count_over_tls(self) -> None:
        plain = {"cookie": "toolkiln=ts_theirs"}

        assert check(KEYED, {**THERE, **PAGE, **plain}) == RequestOrigin()

    def test_goes_after_authorization(self) -> None:
        assert (
            check(KEYED, {**THERE, **PAGE, **SECURE, "authorization": "Bearer x"})
            == RequestOrigin()
        )

    @pytest.mark.parametrize(
        "cookie",
        [
            "toolkiln-8420=tk_key", "toolkiln-8420=", "toolkiln-8420=ts_a; toolkiln-8420=ts_b",
            "toolkiln=ts_mine", "toolkiln-9999=ts_mine", "toolkiln-8420=ts_a b", ";;=;", "x" * 9999,
        ],
    )  # fmt: skip
    def test_that_is_none_of_ours_is_nothing(self, cookie: str) -> None:
        keyed = {**HERE, **PAGE, "cookie": cookie}

        assert check(KEYED, keyed) == RequestOrigin(is_local=True)

    def test_does_not_make_local_what_a_proxy_forwards_to_this_machine(self) -> None:
        forwarded = {**HERE, **PAGE, "x-forwarded-for": "10.0.0.1"}

        assert check(LOCAL, {**forwarded, "cookie": "toolkiln-8420=nonsense"}) == RequestOrigin()

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
