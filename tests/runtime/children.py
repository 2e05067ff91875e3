"""Runs a function in a forked process, because it drops privileges that other tests need."""

import json
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import pytest

SECONDS = 120
NOBODY = 65534


class ChildDied(Exception):
    """The child was ended by a signal."""


def in_child(function: Callable[[], Any], *, ordinary: bool = False) -> Any:
    """What the function returns, as JSON gives it back; an OSError that it raises is raised.

    An `ordinary` child has no rights, also if the tests run as root.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on, a fork beside other threads warns; the child uses none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        answer: tuple[str, Any] = ("failed", "nothing")
        try:
            signal.alarm(SECONDS)
            if ordinary and os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            answer = ("returned", function())
        except OSError as error:
            answer = ("OSError", [error.errno, str(error.strerror or error)])
        except BaseException as error:  # noqa: BLE001  # whatever it is, the parent says so
            answer = ("failed", repr(error))
        finally:
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
    os.close(writer)
    try:
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            raise ChildDied(signal.Signals(os.WTERMSIG(status)).name)
        os.set_blocking(reader, False)
        kind, value = json.loads(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    if kind == "OSError":
        raise OSError(*value)
    if kind == "failed":
        pytest.fail(value)
    return value


def error_of(function: Callable[[], Any]) -> int:
    """The number of the error that a function fails with; 0 if it succeeds."""
    try:
        function()
    except OSError as error:
        return error.errno or -1
    return 0


USERS = [pytest.param(False, id="as the tests run")]
if os.geteuid() == 0:
    USERS.append(pytest.param(True, id="as an ordinary user"))
