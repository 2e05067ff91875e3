"""Open WebUI: its tool files run unchanged, with what a call can give them."""

from collections.abc import Sequence
from typing import Any

import pytest

from execution.observers import code, local_session
from security.guarded import holding, records
from tables import each_row
from toolkiln.frameworks.open_webui import messages
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result, Status
from toolkiln.model.question import FormAnswer, Question, Reply
from toolkiln.spec.reader import read

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "paper-boat-harbour-91"
MINE = "my-own-lantern-token-17"
TOOLS = {
    "harbour.py": '''
        """
        title: Harbour Desk
        author: somebody
        description: Looks after the boats of a harbour.
        version: 1.2.0
        """

        import inspect
        import io
        import logging
        from typing import Any, Awaitable, Callable, Optional

        from fastapi import HTTPException, Request, UploadFile
        from fastapi.responses import HTMLResponse, JSONResponse
        from pydantic import BaseModel, Field
        from starlette.datastructures import Headers

        from open_webui.config import UPLOAD_DIR
        from open_webui.env import SRC_LOG_LEVELS
        from open_webui.main import app
        from open_webui.models.chats import Chats
        from open_webui.models.files import FileForm, Files
        from open_webui.models.users import UserModel, Users
        from open_webui.routers.files import upload_file_handler
        from open_webui.routers.images import GenerateImageForm, image_generations
        from open_webui.utils.misc import (
            add_or_update_system_message, get_last_user_message, pop_system_message
        )

        log = logging.getLogger(__name__)
        log.setLevel(SRC_LOG_LEVELS["TOOLS"])
        log.setLevel(SRC_LOG_LEVELS.get("MAIN"))
        PIXEL = "data:image/png;base64,iVBORw0KGgo="


        class EventEmitter:
            def __init__(self, event_emitter: Callable[[dict], Any] = None):
                self.event_emitter = event_emitter

            async def status(self, text: str, done: bool = False):
                if self.event_emitter:
                    data = {"description": text, "done": done, "hidden": False}
                    await self.event_emitter({"type": "status", "data": data})


        class Tools:
            class Valves(BaseModel):
                url: str = Field(default="https://harbour.example", description="The service.")
                api_key: str = Field(
                    default="",
                    description="The key of the service.",
                    json_schema_extra={"input": {"type": "password"}},
                )

            class UserValves(BaseModel):
                token: str = Field("", json_schema_extra={"input": {"type": "password"}})

            def __init__(self):
                self.valves = self.Valves()
                self.citation = False

            async def moor(
                self,
                boat: str,
                __user__: dict = {},
                __event_emitter__: Callable[[dict], Awaitable[None]] = None,
                __request__: Optional[Request] = None,
            ) -> str:
                """
                Moor a boat at the pier.

                :param boat: The name of the boat.
                """
                user = Users.get_user_by_id(__user__["id"])
                emitter = EventEmitter(__event_emitter__)
                await emitter.status(f"Mooring {boat}")
                files = [{"type": "image", "url": PIXEL}]
                for kind, data in (
                    ("message", {"content": "It is **moored**."}),
                    ("citation", {"document": ["logbook"], "source": {"name": "pier"}}),
                    ("notification", {"type": "warning", "content": "The tide is low."}),
                    ("files", {"files": files}),
                    ("files", {"files": [{"type": "file", "url": "/api/v1/files/7"}]}),
                ):
                    await __event_emitter__({"type": kind, "data": data})
                headers = Headers({"Content-Type": "text/plain"})
                body = io.BytesIO(b"pier 4")
                upload = UploadFile(file=body, filename="berth.txt", headers=headers)
                uploaded = await upload_file_handler(
                    request=__request__, file=upload, metadata={}, process=False, user=user
                )
                assert uploaded.id and uploaded.meta["content_type"] == "text/plain"
                await emitter.status("Moored", done=True)
                assert await Users.get_user_by_id(__user__["id"]) == user
                assert UserModel(**__user__).id == user.id and not __request__
                assert inspect.iscoroutinefunction(__event_emitter__)
                return f"{user.name} <{user.email}> ({user.role}) moored {boat}"

            def pier_map(self, with_context: bool = False):
                """
                Show the map of the pier.

                :param with_context: Whether to tell the model what the map shows.
                """
                page = HTMLResponse(
                    content="<h1>Pier</h1>", headers={"Content-Disposition": "inline"}
                )
                assert page.headers["content-disposition"] == "inline"
                return (page, {"boats": 2}) if with_context else page

            async def ask_captain(self, event: dict, __event_call__=None) -> Any:
                """
                Ask the captain.

                :param event: The question.
                """
                return await __event_call__(event)

            def given(
                self,
                __metadata__: dict,
                __messages__: list,
                __model__: dict = None,
                __files__: list = None,
                __chat_id__: str = None,
                __task__: str = "as declared",
                __unheard_of__=None,
            ) -> dict:
                """Return what the call gives."""
                content = [{"type": "text", "text": "hi"}]
                chat = [*__messages__, {"role": "user", "content": content}]
                add_or_update_system_message("be brief", chat)
                return {
                    "user": __metadata__["user_id"], "model": __model__["id"], "chat": __chat_id__,
                    "rest": [__files__, __task__, __unheard_of__],
                    "last": get_last_user_message(chat), "system": pop_system_message(chat)[0],
                }

            async def reach(
                self, what: str, __user__: dict = {}, __request__: Request = None
            ) -> str:
                """
                Reach for a part of Open WebUI.

                :param what: The part.
                """
                if what == "files":
                    return Files.get_file_by_id("7").path
                if what == "chats":
                    return await Chats.get_chat_by_id("7")
                if what == "image":
                    form = GenerateImageForm(prompt="a boat")
                    return await image_generations(__request__, form, user=__user__)
                if what == "request":
                    return f"{__request__.base_url}api"
                if what == "upload":
                    return f"{UPLOAD_DIR}/map.png"
                if what == "state":
                    return app.state.config.get("x")
                if what == "http":
                    raise HTTPException(status_code=404, detail="no such pier")
                if what == "users":
                    return Users.get_users()
                return Users.get_user_by_id("somebody else").name

            def sign(self, __user__: dict = {}) -> str:
                """Sign with the keys."""
                print("key", self.valves.api_key)
                return f"{self.valves.api_key} {__user__['valves'].token} at {self.valves.url}"
    ''',
    "ferry.py": '''
        """title: Ferry"""
        from apps.webui.models.users import Users
        from config import DATA_DIR
        from utils.misc import get_last_user_message


        class Tools:
            def ferry(self, __user__: dict = {}) -> str:
                """Return who takes the ferry."""
                message = {"role": "user", "content": Users.get_user_by_id(__user__["id"]).name}
                return get_last_user_message([message])
    ''',
}


async def observed(kiln: Kiln, name: str, **arguments: Any) -> tuple[Result, list[Event]]:
    events: list[Event] = []
    session = local_session(kiln, user_id="ann")
    result = await kiln.call(name, arguments, session=session, observe=events.append)
    assert isinstance(result, Result)
    return result, events


async def test_events_are_progress_log_lines_files_and_messages(kiln: Kiln) -> None:
    result, events = await observed(kiln, "moor", boat="Tern")

    assert result.error is None
    assert result.value == "ann <> (user) moored Tern"
    progress = [(e.text, e.done, e.total) for e in events if e.kind == "progress"]
    assert [item for item in progress if "oor" in item[0]] == [
        ("Mooring Tern", 1, None),
        ("Moored", 2, 2),
    ]
    assert [(e.text, e.level) for e in events if e.kind == "log"] == [
        ("The tide is low.", "warning")
    ]
    assert [(file.name, file.data) for file in result.files] == [
        ("image-1.png", b"\x89PNG\r\n\x1a\n"),
        ("berth.txt", b"pier 4"),
    ]
    assert [message["type"] for message in result.messages] == ["message", "citation", "files"]
    assert result.messages[0]["data"] == {"content": "It is **moored**."}


@each_row("with_context, value", [(False, "The person sees the page."), (True, {"boats": 2})])
async def test_a_page_is_a_message_for_the_person(
    kiln: Kiln, with_context: bool, value: Any
) -> None:
    result = await kiln.call("pier_map", {"with_context": with_context})

    assert result.value == value, result.error
    assert result.messages == ({"type": "embeds", "data": {"embeds": ["<h1>Pier</h1>"]}},)


CONFIRM = {"type": "confirmation", "data": {"title": "Cast off", "message": "Leave the pier?"}}
INPUT = {"type": "input", "data": {"title": "Course", "message": "Where to?", "value": "north"}}


@each_row(
    "event, action, content, expected",
    [
        (CONFIRM, "accept", {}, True),
        (CONFIRM, "decline", {}, False),
        (INPUT, "accept", {"value": "east"}, "east"),
        (INPUT, "cancel", {}, False),
    ],
)
async def test_questions_reach_the_person(
    kiln: Kiln, event: Any, action: Any, content: Any, expected: Any
) -> None:
    asked: list[Question] = []

    async def ask(questions: tuple[Question, ...]) -> Sequence[Reply]:
        asked.extend(questions)
        return [FormAnswer(action=action, content=content)]

    result = await kiln.call("ask_captain", {"event": event}, ask=ask)

    assert result.value == expected, result.error
    assert asked[0].model_dump()["message"] == "\n\n".join(
        (event["data"]["title"], event["data"]["message"])
    )


async def test_parameters_have_what_the_call_has_or_are_empty(kiln: Kiln) -> None:
    result, _ = await observed(kiln, "given")

    assert result.value == {
        "user": "ann",
        "model": "",
        "chat": "",
        "rest": [[], "as declared", None],
        "last": "hi",
        "system": {"role": "system", "content": "be brief"},
    }, result.error


@each_row(
    "tool, arguments, message",
    [
        ("reach", {"what": "files"}, "open_webui.models.files.Files.get_file_by_id is not"),
        ("reach", {"what": "chats"}, "open_webui.models.chats.Chats.get_chat_by_id is not"),
        ("reach", {"what": "image"}, "open_webui.routers.images.GenerateImageForm is not"),
        ("reach", {"what": "request"}, "__request__.base_url is not available in the sandbox: a"),
        ("reach", {"what": "upload"}, "open_webui.config.UPLOAD_DIR is not available"),
        ("reach", {"what": "state"}, "open_webui.main.app.state.config.get is not available"),
        ("reach", {"what": "users"}, "open_webui.models.users.Users.get_users is not available"),
        ("reach", {"what": "other"}, "for other users than the caller"),
        ("reach", {"what": "http"}, "no such pier"),
        ("ask_captain", {"event": {"type": "execute", "data": {}}}, "'execute' of __event_call__"),
    ],
)
async def test_what_a_call_lacks_raises_at_use_and_names_itself(
    kiln: Kiln, tool: str, arguments: Any, message: str
) -> None:
    result = await kiln.call(tool, arguments)

    assert code(result) == (Status.FAILED, "tool_error")
    assert result.error is not None
    assert message in result.error.message


async def test_files_of_its_first_versions_run(kiln: Kiln) -> None:
    result, _ = await observed(kiln, "ferry")

    assert result.value == "ann", result.error


async def test_valves_that_are_passwords_are_secrets_everywhere(kiln: Kiln) -> None:
    spec = kiln.tool("sign")
    values = {"api_key": PASSWORD, "url": "https://other.example"}
    kiln.security.change_tool_settings(spec, values)
    kiln.security.change_tool_settings(spec, {"token": MINE}, user="ann")

    result, events = await observed(kiln, "sign")

    assert result.error is None
    assert str(result.value).endswith(" at https://other.example")
    shown = [result.model_dump_json(), *(e.model_dump_json() for e in events)]
    shown += map(repr, records(kiln))
    shown.append(repr(kiln.security.tool_settings.masked_values(spec)))
    assert not [text for text in shown if PASSWORD in text or MINE in text]
    assert holding(kiln.settings.state, PASSWORD, MINE) == {"secrets.toml"}
    for user, name in (("", "api_key"), ("ann", "token")):
        fields = kiln.security.tool_settings.schema(spec, user)["properties"]
        assert fields[name]["writeOnly"], "the page shows a field for a password"


async def test_messages_of_a_chat_are_read_and_extended() -> None:
    parts: Any = [{"type": "image_url"}, {"type": "text", "text": "look"}]
    chat: Any = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "a boat"},
    ]

    assert messages.get_last_user_message(chat) == "look"
    assert messages.get_last_user_message_item(chat) is chat[1]
    assert messages.get_last_assistant_message(chat) == "a boat"
    assert messages.get_last_assistant_message_item(chat) is chat[2]
    assert messages.get_last_user_message([]) is None
    assert messages.get_messages_content(chat) == "SYSTEM: be brief\nUSER: look\nASSISTANT: a boat"
    assert messages.pop_system_message(chat) == (chat[0], chat[1:])
    messages.append_or_update_assistant_message("or two", chat)
    messages.add_or_update_user_message("and now?", chat)
    messages.add_or_update_user_message("please", chat)
    messages.add_or_update_system_message("be kind", chat, append=True)
    assert [each["content"] for each in chat if each["content"] is not parts] == [
        "be brief\nbe kind",
        "a boat\nor two",
        "and now?\nplease",
    ]
    messages.add_or_update_user_message("first", chat[1:2], append=False)
    assert parts[1]["text"] == "first\nlook"


@each_row(
    "imports, requirements",
    [
        ("import requests", ("requests",)),
        ("from bs4 import BeautifulSoup\nimport fastapi, json, pydantic_core", ("beautifulsoup4",)),
        ("import some_package_of_nobody", ()),
        ("# requirements: aiohttp>=3.9\nimport aiohttp", ("aiohttp>=3.9",)),
    ],
)
async def test_packages_that_open_webui_installs_need_not_be_listed(
    imports: str, requirements: tuple[str, ...]
) -> None:
    in_tools = read(f"{imports}\nclass Tools:\n    def f(self): ...", "<memory>")
    elsewhere = read(f"{imports}\ndef f() -> None: ...", "<memory>")

    assert in_tools.tools[0].requirements == requirements
    unlisted = {f.message.split("'")[1] for f in in_tools.findings if f.rule == "unlisted-import"}
    assert unlisted == {"some_package_of_nobody"} & {imports.split()[-1]}
    assert elsewhere.tools[0].requirements == tuple(r for r in requirements if ">" in r)


async def test_old_modules_are_those_of_open_webui_only_in_its_files() -> None:
    readings = [
        read(f"import config, utils.misc\n{tools}", "<memory>")
        for tools in ("class Tools:\n    def f(self): ...", "def f() -> None: ...")
    ]

    unlisted = [sum(f.rule == "unlisted-import" for f in each.findings) for each in readings]
    assert unlisted == [0, 2]
