"""Who sees the text and the traceback of an exception: callers who can read the source anyway."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toolkiln import Kiln, tool
from toolkiln.config import Settings
from toolkiln.model.audit import AuditFilter
from toolkiln.model.call import CallError, Result, Status
from toolkiln.operations.sources import SourceCall

from .conftest import admit

FAILING = '''
import json
from toolkiln import Context, tool
import _parsing

@tool
def parse(text: str) -> str:
    """Parse a text.

    Args:
        text: What is parsed.
    """
    return _parsing.parsed(text)

@tool(requires_secrets=["PASSWORD"])
def log_in(ctx: Context) -> str:
    """Log in somewhere."""
    try:
        raise OSError(f"no route for {ctx.secrets['PASSWORD']}")
    except OSError as error:
        raise RuntimeError(f"wrong password {ctx.secrets['PASSWORD']}") from error

@tool
def descend(depth: int) -> str:
    """Call itself.

    Args:
        depth: How often.
    """
    return descend(depth - 1) if depth else 1 / 0

class Odd(Exception):
    __cause__ = property(lambda self: 1 / 0)

    def __str__(self):
        raise SystemExit

@tool
def raise_odd() -> None:
    """Raise what cannot be described."""
    raise Odd
'''
PARSING = """
import json

def parsed(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise KeyError(f"private {text}") from error
"""
BROKEN = '''
table = {}["private key"]

def broken() -> None:
    """Do nothing."""
'''
SOURCE = '''
def divide(number: int) -> float:
    """Divide by a number.

    Args:
        number: The divisor.
    """
    raise ValueError(f"private {number}")
'''
SECRET = "correct-horse-battery"
EXPECTED = """\
Traceback (most recent call last):
  File "_parsing.py", line 6, in parsed
    return json.loads(text)
  [3 calls outside the tool's files]
JSONDecodeError: Expecting value: line 1 column 1 (char 0)

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "failing.py", line 13, in parse
    return _parsing.parsed(text)
  File "_parsing.py", line 8, in parsed
    raise KeyError(f"private {text}") from error
KeyError: 'private words'"""


@tool
def stumble() -> None:
    """Fail in this process."""
    raise ValueError("private words")


def make(folder: Path, *, dev: bool = False, surface: str = "python", **settings: Any) -> Kiln:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, source in {"failing": FAILING, "_parsing": PARSING, "broken": BROKEN}.items():
        (tools / f"{name}.py").write_text(source)
    environ = {**os.environ, "TOOLKILN_SECRET_PASSWORD": SECRET}
    grants = {"log_in": {"secrets": ["PASSWORD"]}}
    given = Settings(state=folder / "state", environ=environ, grants=grants, **settings)
    kiln = Kiln(tools, functions=[stumble], settings=given, dev=dev, surface=surface)
    for file in () if dev else ("failing.py", "broken.py"):
        admit(kiln, file)
    return kiln


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kiln(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kiln]:
    async with make(tmp_path_factory.mktemp("kiln"), surface="cli") as kiln:
        yield kiln


def error_of(result: Result) -> CallError:
    assert result.status is Status.FAILED, result
    assert result.error is not None
    return result.error


def assert_masked(result: Result) -> None:
    """Neither text nor traceback is anywhere, and the hint says how to show the text."""
    error = error_of(result)
    assert "private" not in result.model_dump_json()
    assert error.traceback is None
    assert "show_exceptions = true" in (error.hint or "")
    assert "TOOLKILN_SHOW_EXCEPTIONS" in (error.hint or "")


async def test_the_local_user_of_the_command_line_sees_text_and_traceback(kiln: Kiln) -> None:
    result = await kiln.call("parse", {"text": "words"})

    error = error_of(result)
    assert error.message == "KeyError in line 13 of failing.py: 'private words'"
    assert error.traceback == EXPECTED
    assert error.hint is None
    assert "Traceback" not in result.text  # which is for models
    of_earlier_release = error.model_dump(exclude={"traceback"})
    assert CallError.model_validate(of_earlier_release).traceback is None


async def test_each_kind_of_exception_has_its_text_and_traceback(kiln: Kiln) -> None:
    of_function = error_of(await kiln.call("stumble", {}))
    of_import = error_of(await kiln.call("broken", {}))
    deep = error_of(await kiln.call("descend", {"depth": 500}))
    odd = error_of(await kiln.call("raise_odd", {}))

    assert of_function.message.endswith("of test_exceptions.py: private words")
    assert (of_function.traceback or "").startswith(
        'Traceback (most recent call last):\n  File "test_exceptions.py", line '
    )
    assert "toolkiln" not in (of_function.traceback or "")
    assert of_import.code == "import_failed"
    assert of_import.message.endswith("KeyError in line 2 of broken.py: 'private key'")
    assert '  File "broken.py", line 2, in <module>\n' in (of_import.traceback or "")
    lines = (deep.traceback or "").splitlines()
    assert "  [471 more calls]" in lines
    assert len(lines) < 100
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert odd.type == "Odd"
    assert "cannot be shown" in odd.message


async def test_the_holder_of_a_session_sees_neither(kiln: Kiln) -> None:
    everything = ["WRITE_TOOLS", "ADMIN", "APPROVE", "UNSANDBOXED_EXEC"]
    session = kiln.security.sessions.create("ann", privileges=everything).token

    assert_masked(await kiln.call("parse", {"text": "words"}, session=session))
    assert_masked(await kiln.call("broken", {}, session=session))
    assert_masked(await kiln.call("stumble", {}, session=session))


@pytest.mark.parametrize("surface", ["python", "mcp"])
async def test_a_program_and_those_behind_it_see_neither(tmp_path: Path, surface: str) -> None:
    async with make(tmp_path, surface=surface) as kiln:
        result = await kiln.call("parse", {"text": "words"})

    assert_masked(result)


@pytest.mark.parametrize("how", [{"dev": True}, {"show_exceptions": True}])
async def test_every_caller_sees_both_in_dev_and_where_the_setting_says_so(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    async with make(tmp_path, surface="mcp", **how) as kiln:
        session = kiln.security.sessions.create("ann").token
        result = await kiln.call("parse", {"text": "words"}, session=session)

    assert error_of(result).traceback == EXPECTED
    assert "private words" in result.text


async def test_who_may_write_tools_sees_both_of_a_source_they_run(kiln: Kiln) -> None:
    session = kiln.security.sessions.create("ann", privileges=["WRITE_TOOLS"]).token
    wanted = SourceCall(SOURCE, {"number": 7}, surface="http", session=session)

    run = await kiln.services.prepare_source(wanted)
    error = error_of(await run(None))

    assert error.message == "ValueError in line 8 of source.py: private 7"
    assert 'File "source.py", line 8, in divide' in (error.traceback or "")


async def test_secrets_are_masked_in_text_and_traceback(kiln: Kiln) -> None:
    result = await kiln.call("log_in", {})

    error = error_of(result)
    assert error.message.endswith("wrong password [secret:PASSWORD]")
    assert "OSError: no route for [secret:PASSWORD]" in (error.traceback or "")
    assert SECRET not in result.model_dump_json()


async def test_the_audit_has_type_and_line_and_never_the_text(kiln: Kiln) -> None:
    results = [
        await kiln.call("parse", {"text": "words"}, call_id="once"),
        await kiln.call("parse", {"text": "words"}, call_id="once"),  # answered with the first
        await kiln.call("broken", {}),
    ]

    records = [entry.record for entry in kiln.security.audit.export(AuditFilter(act="call"))]
    ended = {record.call_id: record.detail for record in records if record.outcome != "started"}
    details = [ended[result.call_id] for result in results]
    assert details == [
        "exception: KeyError in line 13 of failing.py",
        "exception: KeyError in line 13 of failing.py",
        "import_failed: the tool cannot be imported: KeyError in line 2 of broken.py",
    ]
