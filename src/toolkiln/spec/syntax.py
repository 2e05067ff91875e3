"""Source text → syntax tree, or the one finding that says why not.

Nothing is compiled or executed. A file is read the same on every interpreter: what an
older one cannot parse is first respelled by `pep695`.
"""

import ast
import sys
import warnings

from toolkiln.model import Finding, Severity
from toolkiln.spec import pep695

MAX_BYTES = 5_000_000
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
