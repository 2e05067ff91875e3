"""Settings of tools: typed values, per user, checked, and secret where they say so."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from execution.conftest import MakeKiln
from execution.observers import code, local_session, open_session
from tables import each_row
from toolkiln.errors import InputError, NotAllowed
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status

from .guarded import about, holding, records

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEY = "sk-0123456789-abcdefghij"
PERSONAL = "personal-token-987654"
PROD = "production-password-42"
TOOLS = {
    "webui.py": '''
        from pydantic import BaseModel, Field, SecretStr

        class Tools:
            class Valves(BaseModel):
                url: str
                retries: int = Field(3, ge=0, le=10)
                key: SecretStr = Field(min_length=24, max_length=24)

            class UserValves(BaseModel):
                nick: str = "nobody"
                tags: list[str] = []
                token: SecretStr = SecretStr("none")

            def __init__(self):
                self.valves = self.Valves.model_construct()

            def fetch(self, __user__: dict = {}) -> dict:
                """Fetch something with what was set."""
                mine = __user__["valves"]
                return {
                    "url": self.valves.url,
                    "retries": [self.valves.retries, type(self.valves.retries).__name__],
                    "key": len(self.valves.key.get_secret_value()),
                    "leak": self.valves.key.get_secret_value(),
                    "nick": mine.nick,
                    "tags": mine.tags,
                    "token": [len(mine.token.get_secret_value()), mine.token.get_secret_value()],
                    "user": __user__["id"],
                }
    ''',
    "declared.py": '''
        from dataclasses import dataclass
        from pydantic import BaseModel, SecretStr
        from toolkiln import Context, tool

        class Account(BaseModel):
            host: str
            port: int = 443
            password: SecretStr

        @tool(settings=Account)
        def connect(ctx: Context) -> list:
            """Connect to a host."""
            password = ctx.settings["password"]
            word = getattr(password, "get_secret_value", lambda: password)()
            print("with", word)
            return [ctx.settings["host"], ctx.settings["port"], len(word), word]

        @tool(settings=Account, needs_approval=True)
        def connect_carefully(ctx: Context) -> str:
            """Connect to a host if a person agrees."""
            return ctx.settings["host"]
    ''',
    "plain.py": '''
        from toolkiln import tool

        @tool
        def plain() -> int:
            """Have no settings."""
            return 1
    ''',
}
SETTINGS: dict[str, Any] = {"environ": {"TOOLKILN_SECRET_PROD": PROD}, "show_exceptions": True}


def change(kiln: Kiln, tool: str, values: dict[str, Any], *removed: str, **whose: Any) -> None:
    spec = kiln.tool(tool)
    kiln.security.change_tool_settings(spec, values, removed=frozenset(removed), **whose)


def set_up(kiln: Kiln) -> None:
    change(kiln, "fetch", {"url": "http://x.test", "key": KEY})


async def test_tool_reports_missing_settings_instead_of_running(make_kiln: MakeKiln) -> None:
    async with make_kiln(TOOLS, **SETTINGS) as kiln:
        results = [await kiln.call("connect", call_id="c")]
        change(kiln, "connect", {"host": "h"})
        results.append(await kiln.call("connect", call_id="c"))
        change(kiln, "connect", {"password": KEY})
        done = await kiln.call("connect", call_id="c")
        change(kiln, "connect", {}, "password")
        results.append(await kiln.call("connect"))
        unasked = await kiln.call("connect_carefully")

        for result, missing in zip(
            results, ("host, password", "password", "password"), strict=True
        ):
            assert code(result) == (Status.UNAVAILABLE, "missing_settings")
            assert result.error
            assert f"not configured: {missing} must be set" in result.error.message
            assert "toolkiln settings connect" in str(result.error.hint)
            assert about(kiln, result)[-1].outcome in ("unavailable", "ok")
        assert done.value == ["h", 443, len(KEY), "[secret:connect.password]"]
        assert code(unasked) == (Status.UNAVAILABLE, "missing_settings")
        assert kiln.security.approvals.history() == []


async def test_values_are_typed_and_secrets_masked_everywhere(kiln: Kiln) -> None:
    set_up(kiln)
    ann = open_session(kiln, "ann")

    result = await kiln.call("fetch", session=ann)
    shown = kiln.security.tool_settings.masked_values(kiln.tool("fetch"))

    assert result.value == {
        "url": "http://x.test",
        "retries": [3, "int"],
        "key": len(KEY),
        "leak": "[secret:fetch.key]",
        "nick": "nobody",
        "tags": [],
        "token": [4, "none"],
        "user": "ann",
    }
    assert KEY not in str(shown)
    assert shown["key"] == "(secret, set)"
    assert KEY not in str(records(kiln))
    assert holding(kiln.settings.state, KEY) == {"secrets.toml"}
    started = about(kiln, result)[0]
    assert (started.outcome, started.arguments) == ("started", "{}")
    acts = records(kiln, act="settings", tool="fetch")[-2:]
    assert [act.outcome for act in acts] == ["started", "ok"]
    assert acts[-1].detail == "key, url"
    assert "x.test" not in str(acts)


@each_row(
    "wrong",
    [
        {"retries": 11},
        {"retries": "many"},
        {"url": None},
        {"urll": "x"},
        {"key": "short"},
        {"key": "k" * 25},
        {"key": 7},
        {"key": {"a": 1}},
        {"url": "\ud800"},
        {"url": "ok", "retries": -1},
        {"key": "q" * 24, "retries": 99},
        {"__class__": "x"},
        {"": "x"},
    ],
)
async def test_values_that_do_not_fit_change_nothing(kiln: Kiln, wrong: dict[str, Any]) -> None:
    set_up(kiln)
    before = await kiln.call("fetch")

    with pytest.raises(InputError):
        change(kiln, "fetch", wrong)

    assert (await kiln.call("fetch")).value == before.value
    assert records(kiln, act="settings")[-1].outcome == "failed"
    assert holding(kiln.settings.state, "q" * 24) == set()


async def test_users_set_their_own_values_and_see_no_others(kiln: Kiln) -> None:
    set_up(kiln)
    spec, settings = kiln.tool("fetch"), kiln.security.tool_settings
    ann, bob = (open_session(kiln, name) for name in ("ann", "bob"))
    there = open_session(kiln, "ann", platform="chat")

    change(kiln, "fetch", {"nick": "Ännchen", "token": PERSONAL}, user="ann", session=ann)
    change(kiln, "fetch", {"nick": "Bobby"}, user="bob", session=bob)
    reported = {
        name: (await kiln.call("fetch", session=session)).value
        for name, session in (("ann", ann), ("bob", bob), ("chat", there))
    }

    nicks = {name: value["nick"] for name, value in reported.items()}
    assert nicks == {"ann": "Ännchen", "bob": "Bobby", "chat": "nobody"}
    assert reported["ann"]["token"][0] == len(PERSONAL)
    assert reported["bob"]["token"] == reported["chat"]["token"] == [4, "none"]
    assert PERSONAL not in json.dumps(reported)
    with pytest.raises(InputError, match="larger than 65,536 bytes"):
        change(kiln, "fetch", {"nick": "x" * 70_000}, user="bob", session=bob)
    assert settings.masked_values(spec, "ann") == {"nick": "Ännchen", "token": "(secret, set)"}
    assert settings.masked_values(spec, "bob") == {"nick": "Bobby"}
    assert holding(kiln.settings.state, PERSONAL) == {"secrets.toml"}


async def test_caller_without_a_name_has_no_values_not_the_operators(make_kiln: MakeKiln) -> None:
    source = TOOLS["webui.py"].replace("nick: str", "url: str").replace("mine.nick", "mine.url")
    async with make_kiln({"webui.py": source}, **SETTINGS) as kiln:
        set_up(kiln)

        result = await kiln.call("fetch", session=local_session(kiln))

        assert (result.value["url"], result.value["nick"]) == ("http://x.test", "nobody")


async def test_users_set_no_values_of_others_or_of_the_operator(kiln: Kiln) -> None:
    bob = open_session(kiln, "bob")
    impostor = open_session(kiln, "ann", platform="chat")

    for session, user in ((bob, "ann"), (bob, ""), (impostor, "ann")):
        with pytest.raises(NotAllowed):
            change(kiln, "fetch", {"nick": "evil", "url": "x"}, user=user, session=session)
        assert records(kiln, act="settings")[-1].outcome == "denied"
    with pytest.raises(InputError):
        change(kiln, "plain", {"x": 1})
    with pytest.raises(InputError):
        change(kiln, "connect", {"host": "x"}, user="bob", session=bob)


@each_row(
    "stolen",
    [{"nick": "secret:PROD"}, {"nick": "secret:fetch.key"}, {"tags": ["x", "secret:PROD"]}],
)
async def test_setting_reads_no_secret_without_a_grant(kiln: Kiln, stolen: dict[str, Any]) -> None:
    set_up(kiln)
    zed = open_session(kiln, "zed")
    spec = kiln.tool("fetch")

    with pytest.raises(InputError):
        change(kiln, "fetch", stolen, user="zed", session=zed)

    assert kiln.security.tool_settings.masked_values(spec, "zed").keys().isdisjoint(stolen)


Values = dict[str, object]


def setting(name: str, value: object) -> Callable[[Values], Values]:
    return lambda values: {**values, name: value}


async def test_reference_in_settings_without_a_grant_is_not_resolved(make_kiln: MakeKiln) -> None:
    async with make_kiln(TOOLS, **SETTINGS) as kiln:
        set_up(kiln)
        for owner, change_one, caller in (
            ("bob", setting("tags", "secret:PROD"), "bob"),
            ("bob", setting("tags", ["secret:PROD"]), "bob"),
            ("", setting("url", "secret:PROD"), "ann"),
        ):
            kiln.services.store.tool_settings.change("fetch", change_one, owner)
            result = await kiln.call("fetch", session=open_session(kiln, caller))

            assert result.status is Status.UNAVAILABLE
            assert PROD not in result.model_dump_json()


async def test_secret_field_that_reads_like_a_reference_stays_text(kiln: Kiln) -> None:
    set_up(kiln)
    bob = open_session(kiln, "bob")
    change(kiln, "fetch", {"token": "secret:PROD"}, user="bob", session=bob)

    result = await kiln.call("fetch", session=bob)
    change(kiln, "fetch", {}, "token", user="bob", session=bob)

    assert result.value["token"][0] == len("secret:PROD")


async def test_values_that_no_longer_fit_keep_a_tool_from_running(make_kiln: MakeKiln) -> None:
    async with make_kiln(TOOLS, **SETTINGS) as kiln:
        change(kiln, "connect", {"host": "h", "password": KEY, "port": 1})
    source = TOOLS["declared.py"].replace("port: int = 443", "port: list[int] = []")
    async with make_kiln({**TOOLS, "declared.py": source}, **SETTINGS) as kiln:
        result = await kiln.call("connect")
        change(kiln, "connect", {"port": [1]})
        mended = await kiln.call("connect")

        assert code(result) == (Status.UNAVAILABLE, "missing_settings")
        assert "port" in result.text
        assert mended.value[:2] == ["h", [1]]


async def test_secret_that_was_lost_is_named_instead_of_handed_over(kiln: Kiln) -> None:
    set_up(kiln)
    kiln.security.set_secret("fetch.key", None)

    result = await kiln.call("fetch")
    set_up(kiln)

    assert code(result) == (Status.UNAVAILABLE, "secret_unusable")
    assert "fetch.key" in result.text
