"""Writing tools: what is replied, who may, what refuses, and what others do at the same time."""

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sandbox.environments.index import wheel
from tables import each_row
from toolkiln.errors import ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision, AdmissionResult, Stage, ToolDraft
from toolkiln.model.call import Status
from toolkiln.model.identity import Caller
from toolkiln.operations import tools
from toolkiln.spec.syntax import MAX_BYTES

from .conftest import (
    FIRST,
    NAME,
    SECOND,
    Forge,
    admit,
    answer,
    authoring,
    call_writer,
    stop_at,
    write,
)

SOON = 60.0
SUCCESS = {
    "success", "filename", "filepath", "functions_registered", "reload_success",
    "embedding_success", "docs_generated", "warnings", "stages", "digest", "version", "proposed",
}  # fmt: skip
FAILURE = {"success", "error", "validation_errors", "warnings", "stages"}
BARE = "def shout(text: str) -> str:\n    return text.upper()\n"
SWEET = BARE.replace("return", '"""Süß."""\n    return')
EMPTY_ARGUMENTS = '() -> int:\n    """Give a number."""\n    return '


def number(name: str, value: object = 1) -> str:
    """The source of a tool that gives a number."""
    return f"def {name}{EMPTY_ARGUMENTS}{value}\n"


def rules(result: AdmissionResult) -> list[str]:
    return [problem.rule for problem in result.validation_errors]


# What is replied


async def test_written_tool_is_callable_at_once_and_the_reply_says_so(forge: Forge) -> None:
    kiln = forge.kiln()

    reply = await call_writer(kiln, FIRST)
    result = await kiln.call(NAME, {"celsius": 37})
    through = await kiln.call("call_tool", {"name": NAME, "arguments": {"celsius": 37}})

    assert reply.keys() == SUCCESS
    assert reply == json.loads(json.dumps(reply))
    assert [stage["stage"] for stage in reply["stages"]] == [str(stage) for stage in Stage]
    assert all(stage["ok"] for stage in reply["stages"])
    assert reply["filename"] == f"{NAME}.py"
    assert reply["filepath"] == str(forge.tools / f"{NAME}.py")
    assert reply["functions_registered"] == [NAME]
    assert reply["version"] == 1
    assert all(reply[key] for key in ("reload_success", "embedding_success", "docs_generated"))
    assert result.value == through.value == pytest.approx(98.6)
    assert forge.files() == {f"{NAME}.py": FIRST.encode()}


async def test_refusal_says_where_the_problem_is_and_how_to_fix_it(forge: Forge) -> None:
    draft = {"tool_code": FIRST.replace("212.0", "213.0"), "tool_name": NAME}

    result = await forge.kiln().call("write_python_tool", draft)

    assert result.status is Status.FAILED
    reply = answer(result)
    assert reply.keys() == FAILURE
    assert reply == json.loads(json.dumps(reply))
    (problem,) = reply["validation_errors"]
    assert problem.keys() == {"line", "rule", "message", "fix"}
    assert (problem["line"], problem["rule"]) == (9, "example-fails")
    assert "212.0" in problem["message"]
    assert "example-fails" in result.text
    assert reply["stages"][-1] == {"stage": "probe", "ok": False, "message": ""}
    assert forge.files() == {}


async def test_another_name_than_the_tool_has_is_a_warning_in_the_reply(forge: Forge) -> None:
    code = (
        "TOOL_NAME = 'another_name'\nTOOL_DESCRIPTION = 'Repeat a text as often as needed.'\n"
        "TOOL_PARAMETERS = {'type': 'object', 'properties': {}}\n"
        "def run(ctx=None) -> str:\n    return 'x'\n"
    )
    kiln = forge.kiln()

    replies = [
        await call_writer(kiln, code, "mismatch"),
        await call_writer(kiln, code.replace("another_name", "third"), "third"),
    ]
    warned = [[w["message"] for w in r["warnings"] if w["rule"] == "other-name"] for r in replies]

    assert replies[0]["functions_registered"] == ["another_name"]
    assert [len(messages) for messages in warned] == [1, 0]
    assert "'another_name'" in warned[0][0]
    assert "'mismatch'" in warned[0][0]


def sums(name: str, *examples: str) -> str:
    """The source of a tool with these examples."""
    lines = "\n        ".join(examples)
    return (
        f"def {name}(n: int) -> int:\n    '''Add one to a number.\n\n    Examples:\n"
        f"        {lines}\n    '''\n    return n + 1\n"
    )


PARTLY = "import os\n" + "".join(
    [
        sums("right", ">>> client = Client()", ">>> client.status", "'up'", ">>> right(1)", "2"),
        sums("wrong", ">>> wrong(1)", "3"),
        sums("ends", ">>> ends(os._exit(3))", "1"),
        sums("late", ">>> late(1)", "9"),
        sums("last", ">>> print(unknown)", "x"),
    ]
)


async def test_tools_with_failing_examples_are_refused_and_the_others_served(forge: Forge) -> None:
    messages = [
        "'wrong' is not served: an example fails: wrong(1) gives 2, not 3",
        "'ends' is not served: an example fails: its process exited with status 3",
        "'late' is not served: an example fails: late(1) gives 2, not 9",
    ]
    strict = await call_writer(forge.kiln(refuse=["example-fails"]), PARTLY, "sums")
    kiln = forge.kiln()

    reply = await call_writer(kiln, PARTLY, "sums")
    calls = [await kiln.call(name, {"n": 1}) for name in ("right", "last", "wrong")]
    page = await kiln.run_operation(tools.present_tool, tools.ToolName(name="right"))
    again = sorted(forge.served(), reverse=True)
    corrected = PARTLY.replace("3\n", "2\n").replace("os._exit(3)", "0").replace("9\n", "2\n")
    mended = await call_writer(kiln, corrected, "sums", overwrite=True)
    kiln.services.admissions.rollback("wrong", "1", kiln.security.decision())

    assert [problem["rule"] for problem in strict["validation_errors"]] == ["example-fails"] * 3
    assert (reply["success"], reply["reload_success"]) == (True, True), reply
    assert reply["functions_registered"] == again == ["right", "last"]
    assert [w["message"] for w in reply["warnings"] if w["rule"] == "example-fails"] == messages
    assert [f.message for f in page.findings if f.rule == "example-fails"] == messages
    assert [result.value for result in calls[:2]] == [2, 2]
    assert calls[2].error is not None
    assert calls[2].error.code == "not_admitted"
    assert calls[2].error.message == messages[0]
    assert mended["functions_registered"] == ["right", "wrong", "ends", "late", "last"]
    assert sorted(forge.served(), reverse=True) == ["right", "last"]


async def test_only_a_folder_of_the_tools_own_is_written_to(forge: Forge) -> None:
    beside = forge.tools.parent / "beside"
    (beside / "below").mkdir(parents=True)
    (forge.tools / "kept").mkdir(parents=True)
    (forge.tools / "link").symlink_to(beside)
    kiln = forge.kiln()
    folders = ["..", "../beside", "kept/../..", "link", "link/below", "/tmp", "tests", ".hidden"]

    tried = {name: await write(kiln, FIRST, overwrite=True, folder=name) for name in folders}
    files = list(forge.tools.parent.rglob("*.py"))
    written = await write(kiln, FIRST, folder="warm/units")

    refused = {name: (one.success, one.stages[-1].stage) for name, one in tried.items()}
    assert refused == dict.fromkeys(folders, (False, Stage.NAME))
    assert files == []
    assert not Path("/tmp", f"{NAME}.py").exists()
    assert written.filepath == str(forge.tools / "warm" / "units" / f"{NAME}.py")
    assert forge.served() == {NAME: FIRST}


async def test_description_becomes_the_docstring_of_what_has_none(forge: Forge) -> None:
    kiln = forge.kiln()

    await call_writer(kiln, BARE + FIRST, "shout", description='Say it "loudly".\nAlways.')

    assert kiln.tool("shout").description.startswith('Say it "loudly".')
    assert kiln.tool(NAME).description.startswith("Convert a temperature")


async def test_version_is_improved_and_rolled_back_with_its_history(forge: Forge) -> None:
    kiln = forge.kiln(probes=False)
    ann = Caller(user_id="ann", privileges=frozenset({"WRITE_TOOLS"}))
    session = kiln.security.sessions.local(ann)

    for code in (FIRST, SECOND, SECOND):  # the same code again is no further version
        draft = {"tool_code": code, "tool_name": NAME, "overwrite": True}
        reply = answer(await kiln.call("write_python_tool", draft, session=session))
    improved = forge.files()
    kiln.services.admissions.rollback(NAME, "v1", AdmissionDecision("bob"))

    assert (reply["success"], reply["version"]) == (True, 2)
    assert improved == {f"{NAME}.py": SECOND.encode()}
    assert forge.files() == {f"{NAME}.py": FIRST.encode()}
    assert forge.served() == {NAME: FIRST}
    history = [(v.number, v.action, v.by) for v in kiln.services.admissions.history(NAME)]
    assert history == [(3, "rollback", "bob"), (2, "admit", "ann"), (1, "admit", "ann")]
    assert "* 1.8" in kiln.services.admissions.diff(NAME, "1", "2")
    assert (await kiln.call(NAME, {"celsius": 100})).value == 212.0


async def test_whole_file_with_functions_toolkit_and_async_is_registered(forge: Forge) -> None:
    forge.put("_words.py", "GREETING = 'Hello'\n")
    code = """
        import asyncio
        from toolkiln import tool
        from _words import GREETING

        @tool
        async def greet(name: str) -> str:
            '''Greet a person by name.'''
            await asyncio.sleep(0)
            return f"{GREETING}, {name}"

        class Counting:
            '''Tools that count.'''

            @tool
            def count_words(self, text: str) -> int:
                '''Count the words of a text.'''
                return len(text.split())
    """
    kiln = forge.kiln()

    reply = await call_writer(kiln, dedent(code), "words")

    assert reply["success"], reply
    assert set(reply["functions_registered"]) == {"greet", "count_words"}
    assert (await kiln.call("greet", {"name": "Ann"})).value == "Hello, Ann"
    assert (await kiln.call("count_words", {"text": "a b c"})).value == 3


async def test_requirements_are_installed_for_the_probe(forge: Forge, tmp_path: Path) -> None:
    wheel(tmp_path / "links", "alpha", "1.0")
    environ = {
        **os.environ,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_FIND_LINKS": str(tmp_path / "links"),
        "UV_NO_INDEX": "1",
    }
    kiln = forge.kiln(environ=environ)
    head = '# /// script\n# dependencies = ["%s"]\n# ///\nimport alpha\n'

    refused = await call_writer(kiln, head % "no-such-package" + number("tell"), "tell")
    reply = await call_writer(kiln, head % "alpha" + number("tell", "alpha.VERSION"), "tell")

    assert not refused["success"]
    assert "no-such-package" in refused["error"]
    assert reply["success"], reply
    assert (await kiln.call("tell")).value == "1.0"


@pytest.mark.parametrize("change", ["VALUE = 2\n", None])
async def test_helper_that_changes_meanwhile_is_refused(forge: Forge, change: str | None) -> None:
    helper = forge.put("_values.py", "VALUE = 1\n")
    code = "from _values import VALUE\n" + number("tell", "VALUE")

    def edit() -> None:
        helper.unlink() if change is None else helper.write_text(change)

    written = await write(forge.kiln(), code, "tell", observe=stop_at(Stage.READ, edit))

    assert "changed meanwhile" in written.error or "_values.py: No such file" in written.error
    assert written.stages[-1].stage is Stage.READ
    assert "tell.py" not in forge.files()


async def test_helper_that_changes_after_the_probe_is_served_as_it_was(forge: Forge) -> None:
    helper = forge.put("_values.py", "VALUE = 1\n")
    code = "from _values import VALUE\n" + number("tell", "VALUE")
    kiln = forge.kiln()

    written = await kiln.services.pipeline.write(
        ToolDraft(code, "tell"),
        AdmissionDecision("ann"),
        observe=stop_at(Stage.WRITE, partial(helper.write_text, "VALUE = 2\n")),
    )

    assert written.reload_success
    assert (await kiln.call("tell")).value == 1
    assert (await forge.kiln().call("tell")).value == 1
    assert forge.states() == ["changed"]


# What refuses


async def test_bad_name_is_refused_and_touches_nothing(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)
    before = forge.files()
    names = [
        "", ".", "..", "../up", "a/b", "/etc/x", "a\\b", "a\0b", "_private", ".hidden", "class",
        "os", "json", "con", "LPT1", "conftest", "test_it", "has space", "1st", "ｆull", "cоnvert",
        "name\u202e", "x" * 65, "CELSIUS_TO_FAHRENHEIT", "toolkiln", "\ud800",
    ]  # fmt: skip

    tried = {name: await write(kiln, number("other"), name, overwrite=True) for name in names}

    assert [name for name, one in tried.items() if one.success or not one.error] == []
    assert {tuple(stage.stage for stage in one.stages) for one in tried.values()} == {(Stage.NAME,)}
    for one in tried.values():
        json.dumps(one.model_dump(mode="json")).encode()
    assert forge.files() == before


@each_row(
    "code, stage, rule",
    [
        ("def f(:\n", Stage.SYNTAX, "syntax-error"),
        ("x = 'a\0b'\n", Stage.SYNTAX, "not-python"),
        ("x = " + "-" * 90_000 + "1\n", Stage.SYNTAX, "too-deep"),
        ("#" * (MAX_BYTES + 1), Stage.SYNTAX, None),
        ("# " + "é" * (MAX_BYTES // 2 + 1) + "\n" + BARE, Stage.SYNTAX, None),
        ("x = '\ud800'\n", Stage.SYNTAX, None),
        ("# coding: latin-1\nx = 'é'\n" + BARE, Stage.SYNTAX, None),
        ("# coding: nonsense\n" + BARE, Stage.SYNTAX, None),
        (b"\xff\xfe" + BARE.encode("utf-16-le"), Stage.SYNTAX, None),
        ("", Stage.READ, "no-tools"),
        ("x = 1\n", Stage.READ, "no-tools"),
        (number("call_tool"), Stage.READ, "duplicate-name"),
        (number("taken"), Stage.READ, "duplicate-name"),
        (number("f").replace("Give", "\\ud800"), Stage.FINDINGS, "hidden-characters"),
    ],
)
async def test_code_that_is_no_good_is_refused_before_it_runs(
    forge: Forge, code: str | bytes, stage: Stage, rule: str | None
) -> None:
    kiln = forge.kiln()
    await write(kiln, number("taken"), "owner", overwrite=True)

    written = await write(kiln, code, "fresh")

    assert not written.success
    assert written.stages[-1].stage is stage
    assert not written.stages[-1].ok
    assert [outcome.stage for outcome in written.stages] == list(Stage)[: len(written.stages)]
    assert rule is None or rule in rules(written)
    assert len(written.model_dump_json()) < 2_000
    assert forge.files().keys() == {"owner.py"}
    assert forge.served().keys() == {"taken"}


async def test_rule_that_the_operator_refuses_counts_like_an_error(forge: Forge) -> None:
    strict = forge.kiln(refuse=("undescribed-parameter",))
    many = "".join(f"def f{n}(a{n}: int):\n    return a{n}\n" for n in range(200))

    written = await write(strict, BARE, "shout")
    bounded = await write(strict, many, "many")
    lenient = await write(forge.kiln(), BARE, "shout")

    assert rules(written) == ["undescribed-parameter"]
    assert written.stages[-1].stage is Stage.FINDINGS
    assert len(bounded.validation_errors) == 20
    assert len(bounded.model_dump_json()) < 10_000
    assert lenient.success
    assert "undescribed-parameter" in [problem.rule for problem in lenient.warnings]


async def test_existing_file_is_replaced_only_on_request_and_with_an_intact_manifest(
    forge: Forge,
) -> None:
    forge.put(f"{NAME}.py", SECOND)
    kiln = forge.kiln()

    unasked = await write(kiln, FIRST)
    replaced = await write(kiln, FIRST, overwrite=True)
    served = forge.served()
    manifest = forge.tools / "_manifest.json"
    manifest.write_text(manifest.read_text().replace("ann", "eve"))
    tampered = await write(forge.kiln(), SECOND, overwrite=True)

    assert "overwrite=true" in unasked.error
    assert replaced.success
    assert served == {NAME: FIRST}
    assert "was changed since Toolkiln wrote it" in tampered.error
    assert forge.files() == {f"{NAME}.py": FIRST.encode()}


async def test_probe_that_the_platform_fails_refuses(forge: Forge) -> None:
    async def fail(_: object) -> list[Any]:
        raise ToolkilnError("no sandbox here", hint="run `toolkiln doctor`")

    written = await write(forge.kiln(), FIRST, probe=fail)

    assert written.error == "no sandbox here (run `toolkiln doctor`)"
    assert written.stages[-1].stage is Stage.PROBE
    assert forge.files() == {}


@pytest.mark.parametrize(("dev", "is_there"), [(False, False), (False, True), (True, False)])
async def test_first_tool_of_a_folder_is_written(forge: Forge, dev: bool, is_there: bool) -> None:
    if is_there:
        forge.tools.mkdir()

    written = await write(forge.kiln(dev=dev), FIRST)

    assert written.reload_success
    assert forge.served(dev=dev) == {NAME: FIRST}


async def test_kiln_of_one_file_takes_no_other(forge: Forge) -> None:
    await write(forge.kiln(), FIRST)
    async with Kiln(forge.tools / f"{NAME}.py", settings=forge.kiln().settings) as alone:
        other = await write(alone, number("other"), "other")
        own = await write(alone, SECOND, overwrite=True)

    assert not other.success
    assert own.reload_success
    assert forge.files() == {f"{NAME}.py": SECOND.encode()}


# Bytes


@each_row(
    "code",
    [
        SWEET.replace("\n", "\r\n"),
        SWEET.replace("\n", "\r"),
        "\ufeff" + SWEET,
        ("# coding: latin-1\r\n" + SWEET).encode("latin-1"),
    ],
)
async def test_file_is_written_byte_for_byte(forge: Forge, code: str | bytes) -> None:
    written = await write(forge.kiln(), code, "shout", overwrite=True)

    assert written.reload_success
    assert forge.files() == {"shout.py": code.encode() if isinstance(code, str) else code}
    assert forge.kiln().tool("shout").description == "Süß."


# Proposals and privileges


@pytest.mark.parametrize("setting", ["off", "perhaps"])
async def test_authoring_that_is_off_or_unknown_writes_nothing(forge: Forge, setting: str) -> None:
    reply = await call_writer(forge.kiln(authoring=setting), FIRST)

    assert reply.keys() == FAILURE
    assert "disabled" in reply["error"]
    assert not forge.tools.exists()


async def proposed(forge: Forge) -> Kiln:
    """A Kiln to which an agent has proposed a tool, of which another version came to disk."""
    kiln = forge.kiln(authoring="propose", probes=False)
    assert (await call_writer(kiln, FIRST))["proposed"]
    assert forge.files() == {}
    forge.put(f"{NAME}.py", SECOND)
    return kiln


async def admit_proposal(kiln: Kiln) -> AdmissionResult:
    file = f"{NAME}.py"
    proposal = kiln.services.admissions.proposal(file)
    assert proposal is not None
    return (await kiln.services.pipeline.admit([proposal], AdmissionDecision("bob")))[file]


@pytest.mark.parametrize("dev", [False, True])
async def test_proposal_waits_while_the_earlier_version_serves(forge: Forge, dev: bool) -> None:
    first = forge.kiln(dev=dev)
    await write(first, FIRST)
    kiln = forge.kiln(dev=dev, authoring="propose")

    reply = await call_writer(kiln, SECOND, overwrite=True)
    fresh = await call_writer(kiln, number("fresh"), "fresh")

    assert (reply["success"], reply["proposed"], reply["version"]) == (True, True, None)
    assert reply["functions_registered"] == []
    assert not reply["reload_success"]
    assert fresh["proposed"]
    states = {status.file: status.state for status in kiln.catalog.statuses()}
    assert states == {f"{NAME}.py": "proposed", "fresh.py": "proposed"}
    assert forge.served(dev=dev) == {NAME: FIRST}
    assert (await kiln.call(NAME, {"celsius": 100})).value == 212.0
    refused = await kiln.call("fresh")
    assert refused.error is not None
    assert refused.error.code == "not_admitted"


async def test_a_proposal_never_replaces_changes_on_disk(forge: Forge) -> None:
    kiln = await proposed(forge)
    states = forge.states()

    result = await admit_proposal(kiln)

    assert "unadmitted changes" in result.error
    assert result.code == "conflict"
    assert states == ["new", "proposed"]
    assert (forge.tools / f"{NAME}.py").read_text() == SECOND
    assert forge.states() == states


async def test_a_proposal_goes_on_waiting_when_another_version_is_admitted(forge: Forge) -> None:
    kiln = await proposed(forge)

    admit(kiln, f"{NAME}.py")
    between = forge.states()
    await admit_proposal(kiln)

    assert between == ["admitted", "proposed"]
    assert forge.served() == {NAME: FIRST}
    assert forge.states() == ["admitted"]


async def test_files_that_pass_are_admitted_and_the_others_reported(forge: Forge) -> None:
    codes = {"good": FIRST, "none": "x = 1\n", "bad": "def f(:\n"}
    files = [forge.put(f"{name}.py", code).name for name, code in codes.items()]
    kiln = forge.kiln()
    seen: list[str] = []

    written = await kiln.services.pipeline.admit(
        [kiln.services.admissions.candidate(file) for file in files],
        AdmissionDecision("bob"),
        observe=seen.append,
    )

    assert seen == files
    assert [written[file].success for file in files] == [True, False, False]
    assert forge.served() == {NAME: FIRST}


# What search says


async def test_failing_search_does_not_undo_what_is_admitted(forge: Forge) -> None:
    async def index() -> None:
        raise RuntimeError("no memory for vectors")

    way = authoring(forge.kiln(), index=index)
    written = await way.write(ToolDraft(FIRST, NAME), AdmissionDecision("ann"))

    assert written.reload_success
    assert not written.embedding_success
    assert "no memory for vectors" in written.stages[-1].message


async def test_tool_that_is_disabled_stays_so_and_the_reply_says_so(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)
    kiln.services.admissions.switch(NAME, wanted=False)

    written = await write(kiln, SECOND, overwrite=True)

    assert written.success
    assert not written.reload_success
    assert written.functions_registered == ()
    assert forge.served() == {}


# Several at once


@pytest.mark.parametrize("overwrite", [False, True])
async def test_of_two_tasks_that_write_one_name_one_wins(forge: Forge, overwrite: bool) -> None:
    kiln = forge.kiln()
    await write(kiln, number("other"), "other")
    if overwrite:
        await write(kiln, number(NAME))
    together = asyncio.Barrier(2)

    async def meet(_: object) -> list[Any]:
        await together.wait()
        return []

    async with asyncio.timeout(SOON):
        written = await asyncio.gather(
            *(write(kiln, code, probe=meet, overwrite=overwrite) for code in (FIRST, SECOND))
        )

    won, lost = sorted(written, key=lambda one: not one.success)
    assert (won.success, lost.success) == (True, False)
    assert "changed in the meantime" in lost.error
    assert lost.stages[-1].stage is Stage.WRITE
    assert forge.kiln().tool(NAME).digest == won.digest
    assert forge.files().keys() == {f"{NAME}.py", "other.py"}


async def test_file_that_came_while_the_code_was_read_is_not_replaced(forge: Forge) -> None:
    kiln = forge.kiln()
    first: list[AdmissionResult] = []

    def write_the_same() -> None:
        first.append(asyncio.run(write(kiln, FIRST)))

    late = await write(kiln, SECOND, observe=stop_at(Stage.READ, write_the_same))

    assert first[0].success
    assert "exists already" in late.error
    assert forge.served() == {NAME: FIRST}


async def test_kiln_follows_what_another_one_decided(forge: Forge) -> None:
    one, other = forge.kiln(), forge.kiln()
    await write(one, FIRST)
    await write(other, SECOND, overwrite=True)

    written = await write(one, FIRST, overwrite=True)
    taken = await write(other, number("mine"), "mine")
    late = await write(one, number("mine"), "also_mine")

    assert written.success
    assert taken.success
    assert "is a tool of mine.py already" in late.error


async def test_name_that_two_files_took_at_once_is_not_claimed_by_both(forge: Forge) -> None:
    one, other = forge.kiln(), forge.kiln()

    def write_another() -> None:
        asyncio.run(write(other, number("same"), "other"))

    async def then(_: object) -> list[Any]:
        await asyncio.to_thread(write_another)
        return []

    written = await write(one, number("same", 2), "mine", probe=then)

    assert not written.reload_success
    assert written.functions_registered == ()
    assert forge.served() == {"same": number("same")}


async def test_different_names_at_once_lose_nothing(forge: Forge) -> None:
    kilns = {f"kiln_{n}": forge.kiln() for n in range(4)}  # with locks of their own
    drafts = [(kiln, f"{name}_{m}") for name, kiln in kilns.items() for m in range(4)]

    written = await asyncio.gather(*(write(kiln, number(name), name) for kiln, name in drafts))

    assert all(one.reload_success for one in written)
    assert len(forge.served()) == len(forge.files()) == 16
