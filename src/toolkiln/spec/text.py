"""Bytes of a source file → text, by the coding rules of Python itself."""

import io
import tokenize


def decode(data: bytes) -> str:
    """The text of a source file, with universal newlines.

    Raises:
        UnicodeDecodeError: the bytes are not in the encoding that the file declares.
        SyntaxError: the file declares an encoding that does not exist.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
