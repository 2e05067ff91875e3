"""Output: results can be printed, stored and parsed safely."""

import pytest

from tables import each_row
from toolkiln.model.call import Status

from .conftest import Service, one_mode

pytestmark = pytest.mark.asyncio(loop_scope="session")


@one_mode
@each_row(
    "kind",
    [
        "nan", "surrogate", "cycle", "hostile", "liar", "bytes", "keys", "escape", "nul", "type",
        "generator", "deep",
    ],
)  # fmt: skip
async def test_any_value_becomes_plain_json_or_an_error(service: Service, kind: str) -> None:
    result = await service.attack("value_of", kind=kind)

    assert result.status in (Status.OK, Status.FAILED, Status.KILLED)
    result.text.encode()


async def test_terminal_escapes_are_data(service: Service) -> None:
    assert await service.value("value_of", kind="escape") == "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


async def test_bytes_that_are_no_text_are_replaced(service: Service) -> None:
    result = await service.attack("print_bytes")

    assert result.value == 1
    assert result.stdout.startswith("\ufffd\ufffd\0")
    assert "\\ud800" in result.stdout
    assert result.stderr == "\ufffd"


@each_row(
    "kind, code",
    [
        ("unspeakable", "exception"), ("interrupt", "exception"), ("base", "exception"),
        ("exit", "exited"), ("generator", "exception"), ("surrogate", "exception"),
        ("long", "exception"), ("type", "exception"), ("stop", "exception"),
    ],
)  # fmt: skip
async def test_any_exception_is_a_result(service: Service, kind: str, code: str) -> None:
    result = await service.attack("raise_error", kind=kind)

    assert result.error is not None
    assert (result.status, result.error.code) == (Status.FAILED, code)
    assert len(result.model_dump_json()) < 250_000


@each_row(
    "how, code, excerpt",
    [
        ("_exit", "no_result", "without a result"),
        ("status", "exited", "status 7"),
        ("disguise", "exited", "status 119"),
        ("abort", "crashed", "SIG"),
        ("fault", "crashed", "SIGSEGV"),
    ],
)
async def test_a_process_that_ends_without_a_result_is_a_failed_call(
    service: Service, how: str, code: str, excerpt: str
) -> None:
    result = await service.attack("leave_by", how=how)

    assert result.error is not None
    assert (result.status, result.error.code) == (Status.FAILED, code)
    assert excerpt in result.error.message
    assert (result.stdout, result.stderr.splitlines()[:1]) == ("last words\n", ["last complaint"])
