"""Bytes of a source file → text, by the coding rules of Python itself."""

import codecs
import io
import tokenize

_TOO_SLOW = ("idna", "punycode")
"""Encodings of host names, which take quadratic time."""


def decode(data: bytes) -> str:
    """Decode the bytes of a source file, with universal newlines.

    Raises:
        UnicodeDecodeError: the bytes are not in the encoding that the file declares.
        SyntaxError: the file declares an encoding that does not exist or that is none of text.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    try:
        if codecs.lookup(encoding).name in _TOO_SLOW:
            raise LookupError(encoding)
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise
    except (LookupError, UnicodeError):  # such as rot13, and `undefined`, which always fails
        raise SyntaxError(f"unknown encoding: {encoding}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
