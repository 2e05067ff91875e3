"""Source text → syntax tree, or the one finding that says why not.

Nothing is compiled or executed. A file is read the same on every interpreter: what an
older one cannot parse is first respelled by `pep695`.
"""

import ast
import io
import sys
import tokenize
import warnings

from toolkiln.model import Finding, Severity
from toolkiln.spec import pep695
from toolkiln.spec.work import MAX_TOKENS

_MANY_BRACES = 2_000
_FSTRING_WORK = 1_000
MAX_BYTES = 1_000_000
"""A larger file is data, not a tool."""


def parse(source: str, path: str) -> ast.Module | Finding:
    """The tree of `source`, or an error finding with line and column."""
    if len(source) > MAX_BYTES:
        return _refusal(
            path,
            "file-too-large",
            f"the file has {len(source):,} characters",
            f"keep tools under {MAX_BYTES:,} characters; load data at run time",
        )
    if "\0" in source:
        return _refusal(
            path,
            "not-python",
            "the file contains null bytes",
            "save it as UTF-8 text",
            line=source.count("\n", 0, source.index("\0")) + 1,
        )
    source = source.removeprefix("\ufeff")
    if _has_too_many_tokens(source):
        return _refusal(
            path,
            "file-too-large",
            f"the file has more than {MAX_TOKENS:,} tokens",
            "split it into several files; load data at run time",
        )
    try:
        return _tree(source)
    except SyntaxError as error:
        if sys.version_info < (3, 12) and (older := pep695.older_spelling(source)):
            try:
                return _tree(older)
            except SyntaxError as other:  # the mistake is elsewhere; lines are the same
                error = other if (other.lineno or 0) <= source.count("\n") + 1 else error
            except (ValueError, RecursionError, MemoryError):
                pass
        return Finding(
            rule="syntax-error",
            severity=Severity.ERROR,
            message=f"this is not valid Python: {error.msg}",
            line=max(error.lineno or 1, 1),
            column=error.offset or None,
            fix="correct the line; nothing else in the file was read",
            path=path,
        )
    except (RecursionError, MemoryError):
        return _refusal(
            path,
            "too-deep",
            "the code is nested too deeply to be read",
            "break the deeply nested expression into parts",
        )
    except ValueError as error:  # such as a lone surrogate, or an integer of 5,000 digits
        return _refusal(
            path, "not-python", f"this is not valid Python: {error}", "save it as UTF-8 text"
        )


def _has_too_many_tokens(source: str) -> bool:
    """Count tokens, at most so many, before the parser runs: it cannot be interrupted."""
    if len(source) <= MAX_TOKENS and source.count("{") < _MANY_BRACES:
        return False
    count = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source, newline=None).readline):
            count += 1
            if token.type == tokenize.STRING and "f" in token.string[:2].lower():
                # Before Python 3.12 an f-string is one token, with all the code that is in it,
                # and the parser goes over all of it for each expression.
                size = len(token.string)
                count += max(size // 2, size * token.string.count("{") // _FSTRING_WORK)
            if count > MAX_TOKENS:
                return True
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # the parser reports what is wrong
    return False


def _tree(source: str) -> ast.Module:
    if "\\" not in source:
        try:
            return ast.parse(source)
        except SyntaxError:
            pass  # perhaps only a warning that was made an error
    with warnings.catch_warnings():  # not for every file: it costs a tenth of the parsing
        warnings.simplefilter("ignore")  # invalid escapes are the author's business
        return ast.parse(source)


def _refusal(path: str, rule: str, message: str, fix: str, line: int = 1) -> Finding:
    return Finding(
        rule=rule, severity=Severity.ERROR, message=message, line=line, fix=fix, path=path
    )
