"""Helpers of attacks: try something, and return how the kernel answered."""

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def tried(action: Callable[[], Any]) -> str:
    """`done`, or the name of the error."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def system_call(number: int, *arguments: Any) -> str:
    """Make a system call that Python has no function for."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _libc.syscall(ctypes.c_long(number), *words)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def run_on(marker: str) -> None:
    """Become a program that never ends and can be found from outside."""
    os.closerange(0, 64)
    os.execv("/usr/bin/sleep", ["sleep", marker])
