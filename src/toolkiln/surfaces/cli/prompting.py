"""Values that nobody is to see: from a hidden prompt, or from stdin where nobody types.

They are never taken from the command line, which other users and the shell's history see.
"""

import sys
from getpass import getpass

from toolkiln.errors import InputError

_LONGEST = 1_048_576


def hidden(what: str) -> str:
    """A value, without the end of its last line.

    Raises:
        InputError: there is none, or it is no text.
    """
    if sys.stdin is None:
        raise InputError(f"stdin is closed: it should hold {what}")
    if sys.stdin.isatty():
        return _typed(what)
    data = sys.stdin.buffer.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise InputError(f"{what} is longer than {_LONGEST:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:  # that error holds the data
        text = None
    if text is None:
        raise InputError(f"{what} is not UTF-8 text")
    return _given(text.removesuffix("\n").removesuffix("\r"), what)


def _typed(what: str) -> str:
    try:
        return _given(getpass(f"{what}: "), what)
    except (EOFError, UnicodeDecodeError):
        raise InputError(f"{what} was not given") from None


def _given(text: str, what: str) -> str:
    if not text:
        raise InputError(f"{what} is empty", hint="type it, or pipe it in")
    return text
