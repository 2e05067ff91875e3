"""Writing tools: what is replied, who may, what refuses, and what others do at the same time."""

import asyncio
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from sandbox.environments.index import wheel
from toolkiln.catalog.admission_pipeline import AdmissionPipeline
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision, AdmissionResult, Stage, ToolDraft
from toolkiln.model.call import Status
from toolkiln.model.identity import Caller
from toolkiln.spec.syntax import MAX_BYTES
from written_tools import write_tool

from .conftest import (
    FIRST,
    NAME,
    SECOND,
    Forge,
    answer,
    authoring,
    call_writer,
    stop_at,
    unprobed,
    write,
)

SOON = 60.0
SUCCESS = {
    "success", "filename", "filepath", "functions_registered", "reload_success",
    "embedding_success", "docs_generated", "warnings", "stages", "digest", "version", "proposed",
}  # fmt: skip
FAILURE = {"success", "error", "validation_errors", "warnings", "stages"}
BARE = "def shout(text: str) -> str:\n    return text.upper()\n"
EMPTY_ARGUMENTS = '() -> int:\n    """Give a number."""\n    return '


def number(name: str, value: object = 1) -> str:
    """The source of a tool that gives a number."""
    return f"def {name}{EMPTY_ARGUMENTS}{value}\n"


def rules(told: AdmissionResult) -> list[str]:
    return [problem.rule for problem in told.validation_errors]


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


async def test_refusal_tells_the_model_where_and_how_to_mend(forge: Forge) -> None:
    kiln = forge.kiln()

    result = await kiln.call(
        "write_python_tool",
        {"tool_code": FIRST.replace("212.0", "213.0"), "tool_name": NAME},
    )

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


async def test_version_of_a_tool_in_a_folder_is_written_there(forge: Forge) -> None:
    kiln = forge.kiln()

    draft = ToolDraft(FIRST, NAME, folder="warm/units")
    told = await authoring(kiln).write(draft, AdmissionDecision("ann"))

    assert told.success
    assert told.filepath == str(forge.tools / "warm" / "units" / f"{NAME}.py")
    assert forge.served() == {NAME: FIRST}


@pytest.mark.parametrize(
    "folder", ["..", "../beside", "kept/../..", "link", "link/below", "/tmp", "tests", ".hidden"]
)
async def test_nothing_is_written_to_a_folder_that_is_not_the_tools_own(
    forge: Forge, folder: str
) -> None:
    beside = forge.tools.parent / "beside"
    (beside / "below").mkdir(parents=True)
    (forge.tools / "kept").mkdir(parents=True)
    (forge.tools / "link").symlink_to(beside)
    kiln = forge.kiln()

    draft = ToolDraft(FIRST, NAME, overwrite=True, folder=folder)
    told = await authoring(kiln).write(draft, AdmissionDecision("ann"))

    assert not told.success
    assert told.stages[-1].stage is Stage.NAME
    assert list(forge.tools.parent.rglob("*.py")) == []
    assert not Path("/tmp", f"{NAME}.py").exists()


async def test_description_becomes_the_docstring_of_what_has_none(forge: Forge) -> None:
    kiln = forge.kiln()

    await call_writer(kiln, BARE + FIRST, "shout", description='Say it "loudly".\nAlways.')

    assert kiln.tool("shout").description.startswith('Say it "loudly".')
    assert kiln.tool(NAME).description.startswith("Convert a temperature")


async def test_version_is_improved_and_rolled_back_with_its_history(forge: Forge) -> None:
    kiln = forge.kiln()
    session = kiln.security.sessions.local(
        Caller(user_id="ann", privileges=frozenset({"WRITE_TOOLS"}))
    )
    given = {"tool_name": NAME, "overwrite": True}
    await kiln.call("write_python_tool", {"tool_code": FIRST, **given}, session=session)

    await kiln.call("write_python_tool", {"tool_code": SECOND, **given}, session=session)
    improved = forge.files()
    kiln.services.admissions.rollback(NAME, "v1", AdmissionDecision("bob"))

    assert improved == {f"{NAME}.py": SECOND.encode()}
    assert forge.files() == {f"{NAME}.py": FIRST.encode()}
    assert forge.served() == {NAME: FIRST}
    history = [(v.number, v.action, v.by) for v in kiln.services.admissions.history(NAME)]
    assert history == [(3, "rollback", "bob"), (2, "admit", "ann"), (1, "admit", "ann")]
    assert "* 1.8" in kiln.services.admissions.diff(NAME, "1", "2")
    assert (await kiln.call(NAME, {"celsius": 100})).value == 212.0


async def test_same_code_again_is_no_further_version(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)

    again = await write(kiln, FIRST, overwrite=True)

    assert again.success
    assert again.version == 1


async def test_whole_file_with_functions_toolkit_and_async_is_registered(forge: Forge) -> None:
    forge.put("_words.py", "GREETING = 'Hello'\n")
    code = """
        import asyncio
        from toolkiln import tool
        from _words import GREETING

        @tool
        def greet(name: str) -> str:
            '''Greet somebody by name.

            Args:
                name: Who.
            '''
            return f"{GREETING}, {name}"

        @tool
        async def wait() -> str:
            '''Wait for nothing in particular.'''
            await asyncio.sleep(0)
            return "waited"

        class Counting:
            '''Tools that count.'''

            @tool
            def count_words(self, text: str) -> int:
                '''Count the words of a text.

                Args:
                    text: What to count in.
                '''
                return len(text.split())
    """
    kiln = forge.kiln()

    reply = await call_writer(kiln, dedent(code), "words")

    assert reply["success"], reply
    assert set(reply["functions_registered"]) == {"greet", "wait", "count_words"}
    assert (await kiln.call("greet", {"name": "Ann"})).value == "Hello, Ann"
    assert (await kiln.call("wait")).value == "waited"
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
async def test_helper_that_changes_while_it_is_read_is_a_refusal(
    forge: Forge, change: str | None
) -> None:
    helper = forge.put("_values.py", "VALUE = 1\n")
    code = "from _values import VALUE\n" + number("tell", "VALUE")

    def edit() -> None:
        helper.unlink() if change is None else helper.write_text(change)

    told = await authoring(forge.kiln()).write(
        ToolDraft(code, "tell"), AdmissionDecision("ann"), observe=stop_at(Stage.READ, edit)
    )

    assert "changed meanwhile" in told.error or "_values.py: No such file" in told.error
    assert told.stages[-1].stage is Stage.READ
    assert "tell.py" not in forge.files()


async def test_helper_that_changes_after_it_was_vetted_is_served_as_it_was_vetted(
    forge: Forge,
) -> None:
    helper = forge.put("_values.py", "VALUE = 1\n")
    code = "from _values import VALUE\n" + number("tell", "VALUE")
    kiln = forge.kiln()

    told = await kiln.services.pipeline.write(
        ToolDraft(code, "tell"),
        AdmissionDecision("ann"),
        observe=stop_at(Stage.WRITE, partial(helper.write_text, "VALUE = 2\n")),
    )

    assert told.reload_success
    assert (await kiln.call("tell")).value == 1
    assert (await forge.kiln().call("tell")).value == 1
    assert [status.state for status in forge.kiln().catalog.statuses()] == ["changed"]


# What refuses


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../up", "a/b", "/etc/x", "a\\b", "a\0b", "_private", ".hidden", "class",
        "os", "json", "con", "LPT1", "conftest", "test_it", "has space", "1st", "ｆull", "cоnvert",
        "name\u202e", "x" * 65, "CELSIUS_TO_FAHRENHEIT", "toolkiln", "\ud800",
    ],
)  # fmt: skip
async def test_bad_name_is_refused_and_touches_nothing(forge: Forge, name: str) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)
    before = forge.files()

    told = await write(kiln, number("other"), name, overwrite=True)

    assert not told.success
    assert told.error
    assert [outcome.stage for outcome in told.stages] == [Stage.NAME]
    json.dumps(told.model_dump(mode="json")).encode()
    assert forge.files() == before


@pytest.mark.parametrize(
    ("code", "stage", "rule"),
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
        ("HALF = '\\ud800'\n" + number("f"), Stage.FINDINGS, "hidden-characters"),
    ],
)
async def test_code_that_is_no_good_is_refused_before_it_runs(
    forge: Forge, code: str | bytes, stage: Stage, rule: str | None
) -> None:
    kiln = forge.kiln()
    await write(kiln, number("taken"), "owner")

    told = await write(kiln, code, "fresh")

    assert not told.success
    assert told.stages[-1].stage is stage
    assert not told.stages[-1].ok
    assert [outcome.stage for outcome in told.stages] == list(Stage)[: len(told.stages)]
    assert rule is None or rule in rules(told)
    assert len(told.model_dump_json()) < 2_000
    assert forge.files().keys() == {"owner.py"}
    assert forge.served().keys() == {"taken"}


@pytest.mark.parametrize(
    ("code", "rule", "line"),
    [
        ("import no_such_module\n" + number("f"), "import-fails", 1),
        ("\nraise ValueError('x' * 100_000)\n" + number("f"), "import-fails", 2),
        ("import os\nos._exit(0)\n" + number("f"), "import-fails", None),
        (number("f") + "globals()['f'] = 3\n", "schema-differs", 1),
    ],
)
async def test_code_that_does_not_run_is_refused(
    forge: Forge, code: str, rule: str, line: int | None
) -> None:
    told = await write_tool(forge.kiln(), ToolDraft(code, "f"))

    assert not told.success
    assert rules(told) == [rule]
    assert line is None or told.validation_errors[0].line == line
    assert len(told.model_dump_json()) < 3_000
    assert forge.files() == {}


async def test_rule_that_the_operator_refuses_counts_like_an_error(forge: Forge) -> None:
    strict = forge.kiln(refuse=("undescribed-parameter",))

    told = await write(strict, BARE, "shout")
    lenient = await write(forge.kiln(), BARE, "shout")

    assert rules(told) == ["undescribed-parameter"]
    assert told.stages[-1].stage is Stage.FINDINGS
    assert lenient.success
    assert "undescribed-parameter" in [problem.rule for problem in lenient.warnings]


async def test_many_findings_are_told_shortly(forge: Forge) -> None:
    many = "".join(f"def f{n}(a{n}: int):\n    return a{n}\n" for n in range(200))

    told = await write(forge.kiln(refuse=("undescribed-parameter",)), many, "many")

    assert len(told.validation_errors) == 20
    assert len(told.model_dump_json()) < 10_000


async def test_existing_file_is_replaced_only_on_request(forge: Forge) -> None:
    forge.put(f"{NAME}.py", SECOND)
    kiln = forge.kiln()

    refused = await write(kiln, FIRST)
    replaced = await write(kiln, FIRST, overwrite=True)

    assert "overwrite=true" in refused.error
    assert replaced.success
    assert forge.served() == {NAME: FIRST}


async def test_tampered_manifest_refuses_every_writing(forge: Forge) -> None:
    await write(forge.kiln(), FIRST)
    manifest = forge.tools / "_manifest.json"
    manifest.write_text(manifest.read_text().replace("ann", "eve"))

    told = await write(forge.kiln(), SECOND, overwrite=True)

    assert "was changed since Toolkiln wrote it" in told.error
    assert forge.files() == {f"{NAME}.py": FIRST.encode()}


async def test_probe_that_the_platform_fails_refuses(forge: Forge) -> None:
    kiln = forge.kiln()

    async def fail(_: object) -> list[Any]:
        raise ToolkilnError("no sandbox here", hint="run `toolkiln doctor`")

    told = await authoring(kiln, fail).write(ToolDraft(FIRST, NAME), AdmissionDecision("ann"))

    assert told.error == "no sandbox here (run `toolkiln doctor`)"
    assert told.stages[-1].stage is Stage.PROBE
    assert forge.files() == {}


@pytest.mark.parametrize("dev", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
async def test_first_tool_of_a_missing_or_empty_folder_is_written(
    forge: Forge, dev: bool, is_there: bool
) -> None:
    if is_there:
        forge.tools.mkdir()

    told = await write(forge.kiln(dev=dev), FIRST)

    assert told.reload_success
    assert forge.served(dev=dev) == {NAME: FIRST}


async def test_kiln_of_one_file_takes_no_other(forge: Forge) -> None:
    await write(forge.kiln(), FIRST)
    alone = Kiln(forge.tools / f"{NAME}.py", settings=forge.kiln().settings)

    other = await write(alone, number("other"), "other")
    own = await write(alone, SECOND, overwrite=True)

    assert not other.success
    assert own.reload_success
    assert forge.files() == {f"{NAME}.py": SECOND.encode()}
    await alone.close()


async def test_kiln_without_a_folder_says_so(tmp_path: Path) -> None:
    settings = Kiln(tmp_path).settings
    kiln = Kiln(functions=[dedent], settings=settings)

    with pytest.raises(InputError, match="no folder of tools"):
        await write_tool(kiln, ToolDraft(FIRST, NAME))


# Bytes


@pytest.mark.parametrize(
    "code", [BARE.replace("\n", "\r\n"), BARE.replace("\n", "\r"), "\ufeff" + BARE]
)
async def test_line_ends_and_mark_are_kept(forge: Forge, code: str) -> None:
    told = await write(forge.kiln(), code, "shout")

    assert told.reload_success
    assert forge.files() == {"shout.py": code.encode()}


async def test_file_is_added_byte_for_byte(forge: Forge) -> None:
    code = "# coding: latin-1\r\n" + BARE.replace("return", "'''Süß.'''\r\n    return")

    told = await write(forge.kiln(), code.encode("latin-1"), "shout")

    assert told.reload_success
    assert forge.files() == {"shout.py": code.encode("latin-1")}
    assert forge.kiln().tool("shout").description == "Süß."


# Proposals and privileges


async def test_nothing_is_written_where_authoring_is_off(forge: Forge) -> None:
    kiln = forge.kiln(authoring="off")

    reply = await call_writer(kiln, FIRST)

    assert reply.keys() == FAILURE
    assert "disabled" in reply["error"]
    assert not forge.tools.exists()


@pytest.mark.parametrize("dev", [False, True])
async def test_proposal_waits_for_a_person_while_the_earlier_version_serves(
    forge: Forge, dev: bool
) -> None:
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


async def test_person_admits_what_was_proposed(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose")
    await call_writer(kiln, FIRST)
    candidate = kiln.services.admissions.proposal(f"{NAME}.py")
    assert candidate is not None
    assert not (forge.tools / f"{NAME}.py").exists()

    told = await kiln.services.pipeline.admit([candidate], AdmissionDecision("bob"))

    assert told[f"{NAME}.py"].reload_success
    assert (await kiln.call(NAME, {"celsius": 100})).value == 212.0
    assert kiln.services.admissions.history(NAME)[0].by == "bob"


async def test_a_proposal_never_replaces_changes_on_disk(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose")
    await call_writer(kiln, FIRST)
    forge.put(f"{NAME}.py", SECOND)
    proposal = kiln.services.admissions.proposal(f"{NAME}.py")
    assert proposal is not None

    states = [status.state for status in forge.kiln().catalog.statuses()]
    told = await kiln.services.pipeline.admit([proposal], AdmissionDecision("bob"), probe=False)

    assert "unadmitted changes" in told[f"{NAME}.py"].error
    assert told[f"{NAME}.py"].code == "conflict"
    assert states == ["new", "proposed"]
    assert (forge.tools / f"{NAME}.py").read_text() == SECOND
    assert [status.state for status in forge.kiln().catalog.statuses()] == states


async def test_a_proposal_goes_on_waiting_when_another_version_is_admitted(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose")
    await call_writer(kiln, FIRST)
    forge.put(f"{NAME}.py", SECOND)

    on_disk = kiln.services.admissions.candidate(f"{NAME}.py")
    await kiln.services.pipeline.admit([on_disk], AdmissionDecision("bob"), probe=False)
    between = [status.state for status in forge.kiln().catalog.statuses()]
    proposal = kiln.services.admissions.proposal(f"{NAME}.py")
    assert proposal is not None
    await kiln.services.pipeline.admit([proposal], AdmissionDecision("bob"), probe=False)

    assert between == ["admitted", "proposed"]
    assert forge.served() == {NAME: FIRST}
    assert [status.state for status in forge.kiln().catalog.statuses()] == ["admitted"]


async def test_files_are_admitted_that_pass_and_the_others_told(forge: Forge) -> None:
    for name, code in {"good": FIRST, "none": "x = 1\n", "bad": "def f(:\n"}.items():
        forge.put(f"{name}.py", code)
    kiln = forge.kiln()
    seen: list[str] = []

    told = await kiln.services.pipeline.admit(
        [kiln.services.admissions.candidate(f"{name}.py") for name in ("good", "none", "bad")],
        AdmissionDecision("bob"),
        observe=seen.append,
    )

    assert seen == ["good.py", "none.py", "bad.py"]
    assert {file: one.success for file, one in told.items()} == {
        "good.py": True, "none.py": False, "bad.py": False,
    }  # fmt: skip
    assert forge.served() == {NAME: FIRST}


# What search says


async def test_failing_search_does_not_undo_what_is_admitted(forge: Forge) -> None:
    kiln = forge.kiln()

    async def index() -> None:
        raise RuntimeError("no memory for vectors")

    way = AdmissionPipeline(kiln.services.admissions, frozenset(), unprobed, index)
    told = await way.write(ToolDraft(FIRST, NAME), AdmissionDecision("ann"))

    assert told.reload_success
    assert not told.embedding_success
    assert "no memory for vectors" in told.stages[-1].message


async def test_tool_that_is_disabled_stays_so_and_the_reply_tells(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, FIRST)
    kiln.services.admissions.switch(NAME, wanted=False)

    told = await write(kiln, SECOND, overwrite=True)

    assert told.success
    assert not told.reload_success
    assert told.functions_registered == ()
    assert forge.served() == {}


# Several at once


@pytest.mark.parametrize("overwrite", [False, True])
async def test_of_two_tasks_that_write_one_name_one_wins(forge: Forge, overwrite: bool) -> None:
    kiln = forge.kiln()
    await write(kiln, number("other"), "other")
    together = asyncio.Barrier(2)

    async def meet(_: object) -> list[Any]:
        await together.wait()
        return []

    way = authoring(kiln, meet)
    if overwrite:
        await write(kiln, number(NAME), overwrite=True)
    async with asyncio.timeout(SOON):
        told = await asyncio.gather(
            *(
                way.write(ToolDraft(code, NAME, "", overwrite), AdmissionDecision("ann"))
                for code in (FIRST, SECOND)
            )
        )

    won = [one for one in told if one.success]
    assert len(won) == 1
    (lost,) = [one for one in told if not one.success]
    assert "changed in the meantime" in lost.error
    assert lost.stages[-1].stage is Stage.WRITE
    assert forge.kiln().tool(NAME).digest == won[0].digest
    assert forge.files().keys() == {f"{NAME}.py", "other.py"}


async def test_file_that_came_while_the_code_was_read_is_not_replaced(forge: Forge) -> None:
    kiln = forge.kiln()
    told: list[AdmissionResult] = []

    def write_the_same() -> None:
        told.append(asyncio.run(write(kiln, FIRST)))

    late = await authoring(kiln).write(
        ToolDraft(SECOND, NAME),
        AdmissionDecision("bob"),
        observe=stop_at(Stage.READ, write_the_same),
    )

    assert told[0].success
    assert "exists already" in late.error
    assert forge.served() == {NAME: FIRST}


async def test_kiln_follows_what_another_one_decided(forge: Forge) -> None:
    one, other = forge.kiln(), forge.kiln()
    await write(one, FIRST)
    await write(other, SECOND, overwrite=True)

    told = await write(one, FIRST, overwrite=True)
    taken = await write(other, number("mine"), "mine")
    late = await write(one, number("mine"), "also_mine")

    assert told.success
    assert taken.success
    assert "is a tool of mine.py already" in late.error


async def test_name_that_two_files_took_at_once_is_not_claimed_by_both(forge: Forge) -> None:
    one, other = forge.kiln(), forge.kiln()

    def write_another() -> None:
        asyncio.run(write(other, number("same"), "other"))

    async def then(_: object) -> list[Any]:
        await asyncio.to_thread(write_another)
        return []

    way = authoring(one, then)
    told = await way.write(ToolDraft(number("same", 2), "mine"), AdmissionDecision("ann"))

    assert not told.reload_success
    assert told.functions_registered == ()
    assert forge.served() == {"same": number("same")}


async def test_different_names_at_once_lose_nothing(forge: Forge) -> None:
    kilns = [forge.kiln() for _ in range(4)]

    told = await asyncio.gather(
        *(
            write(kiln, number(f"tool_{n}_{m}"), f"tool_{n}_{m}")
            for n, kiln in enumerate(kilns)
            for m in range(4)
        )
    )

    assert all(one.reload_success for one in told)
    assert len(forge.served()) == 16
    assert len(forge.files()) == 16


WRITER = """
    import asyncio, sys
    from pathlib import Path
    from operations.conftest import Forge, write

    async def main():
        folder, who, *names = sys.argv[1:]
        kiln = Forge(Path(folder)).kiln()
        print("ready", flush=True)
        sys.stdin.readline()
        for name in names:
            code = f'def {name}() -> str:\\n    "Say who."\\n    return {who!r}\\n'
            told = await write(kiln, code, name)
            print("won" if told.success else told.error, flush=True)
        await kiln.close()

    asyncio.run(main())
"""


def started(forge: Forge, who: str, *names: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.getenv("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(WRITER), str(forge.tools.parent), who, *names],
        stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def test_of_processes_that_write_one_name_one_wins_and_other_names_are_not_lost(
    forge: Forge,
) -> None:
    own = {who: [f"tool_{who}_{n}" for n in range(5)] for who in ("ann", "bob", "cy", "dan")}
    processes = [started(forge, who, NAME, *names) for who, names in own.items()]

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=SOON)[0].splitlines() for process in processes]

    firsts = [lines[0] for lines in told]
    assert sorted(line == "won" for line in firsts) == [False, False, False, True]
    assert all(
        "changed in the meantime" in line or "another process" in line or "exists already" in line
        for line in firsts
        if line != "won"
    )
    assert [lines[1:] for lines in told] == [["won"] * 5] * 4
    winner = list(own)[firsts.index("won")]
    assert repr(winner) in forge.served()[NAME]
    assert forge.served().keys() == {NAME, *(name for names in own.values() for name in names)}
