"""String constants that look like secrets: keys, tokens, passwords in addresses.

Known formats are found wherever they stand; other strings only where a name such as
`api_key` says what they are and their letters look drawn by lot. Placeholders and names
of environment variables are let pass. A report never repeats more than the first four
characters.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2
from typing import Any, NamedTuple

_SHORTEST = 20
_SHOWN = 4


class SecretUse(NamedTuple):
    """A constant that looks like a secret, and where."""

    line: int
    column: int
    """1-based, of the constant, in UTF-8 bytes as Python counts them."""
    what: str
    """The kind and the first characters, such as `AWS access key AKIA…`."""


class _Format(NamedTuple):
    mark: str
    """A piece that every match contains: a cheap first look."""
    kind: str
    pattern: re.Pattern[str]


def _format(mark: str, kind: str, pattern: str) -> _Format:
    return _Format(mark, kind, re.compile(rf"(?<![A-Za-z0-9_+-])(?:{pattern})"))


_FORMATS = (
    _format("AKIA", "AWS access key", r"AKIA[0-9A-Z]{16}"),
    _format("ASIA", "AWS access key", r"ASIA[0-9A-Z]{16}"),
    _format("ghp_", "GitHub token", r"ghp_[A-Za-z0-9]{36}"),
    _format("gho_", "GitHub token", r"gho_[A-Za-z0-9]{36}"),
    _format("ghs_", "GitHub token", r"ghs_[A-Za-z0-9]{36}"),
    _format("github_pat_", "GitHub token", r"github_pat_[A-Za-z0-9_]{60,}"),
    _format("glpat-", "GitLab token", r"glpat-[A-Za-z0-9_-]{20,}"),
    _format("sk-", "API key", r"sk-(?:ant-|proj-|or-v1-|svcacct-|live-)?[A-Za-z0-9_-]{20,}"),
    _format("xox", "Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{20,}"),
    _format("hooks.slack.com", "Slack webhook", r"hooks\.slack\.com/services/T\w+/B\w+/\w{16,}"),
    _format(
        "api/webhooks/", "Discord webhook", r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{40,}"
    ),
    _format("AIza", "Google API key", r"AIza[A-Za-z0-9_-]{35}"),
    _format("ya29.", "Google token", r"ya29\.[A-Za-z0-9_-]{30,}"),
    _format("_live_", "Stripe key", r"[srp]k_live_[A-Za-z0-9]{16,}"),
    _format("whsec_", "Stripe webhook secret", r"whsec_[A-Za-z0-9+/]{24,}"),
    _format("npm_", "npm token", r"npm_[A-Za-z0-9]{36}"),
    _format("pypi-", "PyPI token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _format("hf_", "Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    _format("SG.", "SendGrid key", r"SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{30,}"),
    _format("eyJ", "JSON web token", r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{16,}"),
    _format("AccountKey=", "Azure storage key", r"AccountKey=[A-Za-z0-9+/]{60,}"),
    _format(
        "PRIVATE KEY",
        "private key",
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?=(?:\s+[\w-]+:.*)*\s+[\w+/=]{40})",
    ),
)
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*)://([^\s:/@?#]*):([^\s/@?#]+)@([^\s/:?#]+)")
_MARKS = (*(known.mark for known in _FORMATS), "://")

_PLACEHOLDER = re.compile(
    r"""\bhost|localhost|example|sample|dummy|placeholder|changeme|change[-_]me|replace|insert|redacted|fake
    |your|my[-_](?:api|secret|token|key|pass)|todo|test[-_]?(?:key|token|secret)
    |[x]{4}|\*{3}|\.{3}|…|0{8}|1234567|abcdef(?!\d)|[<>{}$%]|eyJzdWIiOiIxMjM0NTY3ODkw""",
    re.IGNORECASE | re.VERBOSE,
)
_WEAK = re.compile(
    r"""(?:pass(?:word|wd)?|pwd|pw|secret|token|key|user(?:name)?|admin|root|guest|test|postgres
    |mysql|redis|rabbit(?:mq)?|minio|example|changeme|xx+|\*+|\.+|…|[<\[({$%].*)\d*""",
    re.IGNORECASE | re.VERBOSE,
)
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:api_?key|[a-z0-9]+_key|token|secret|credentials?|authorization)s?$"
)
_PASSWORD_NAME = re.compile(r"(?:^|_)(?:password|passwd|pwd|passphrase)$")
_PUBLIC_NAME = re.compile(
    r"(?:cache|primary|foreign|sort|partition|public|dict|lookup|group|hash|storage|object|index"
    r"|translation|page|next|continuation|cursor|pad|stop|eos|bos|unk|sep|mask)_(?:key|token)s?$"
)
_DIGIT = re.compile(r"\d")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
_SCHEMES = ("Bearer ", "Basic ", "token ")
_TOKEN = re.compile(r"[A-Za-z0-9+/_.=~-]{20,200}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]+", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_./=~]")


def literal_secrets(nodes: Sequence[ast.AST]) -> list[SecretUse]:
    """The constants among a file's nodes (see `nodes.walk`) that look like secrets."""
    texts = list(_texts(nodes))
    joined = "\0".join([text for _, text in texts])
    found: list[SecretUse] = []
    told: set[int] = set()
    marks = [mark for mark in _MARKS if mark in joined]
    if marks and (marks != ["://"] or "@" in joined):  # an address without a user has no password
        for node, text in texts:
            if any(mark in text for mark in marks) and (uses := list(_known(node, text))):
                found += uses
                told.add(id(node))
    candidates = {
        id(node): text for node, text in texts if 8 <= len(text) <= 212 and _is_candidate(text)
    }
    if candidates.keys() - told:
        for name, constant in _named(nodes):
            value = candidates.get(id(constant))
            if value is not None and id(constant) not in told and (kind := _kind(name, value)):
                found.append(_use(constant, kind, value))
                told.add(id(constant))
    return sorted(set(found))


def _texts(nodes: Sequence[Any]) -> Iterator[tuple[ast.Constant, str]]:
    for node in nodes:
        if node.__class__ is ast.Constant:
            value: Any = node.value
            if value.__class__ is str:
                yield node, value
            elif value.__class__ is bytes:
                yield node, value.decode("latin-1")


def _known(node: ast.Constant, text: str) -> Iterator[SecretUse]:
    for known in _FORMATS:
        if known.mark in text:
            for match in known.pattern.finditer(text):
                if not _PLACEHOLDER.search(match[0]) and _looks_drawn(match[0]):
                    yield _use(node, known.kind, match[0], text.count("\n", 0, match.start()))
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            scheme, user, password, host = match.groups()
            if password != user and not _is_weak(password) and not _PLACEHOLDER.search(host):
                lines = text.count("\n", 0, match.start())
                yield _use(node, f"password in a {scheme}:// address", "", lines)


def _use(node: ast.Constant, kind: str, secret: str, lines: int = 0) -> SecretUse:
    """Tells of a secret that stands so many lines into a constant."""
    shown = f" {secret[:_SHOWN]}…" if len(secret) >= _SHORTEST else ""
    line = min(node.lineno + lines, node.end_lineno or node.lineno)
    return SecretUse(line, node.col_offset + 1, f"{kind}{shown}")


def _is_candidate(text: str) -> bool:
    return (
        (" " not in text or text.startswith(_SCHEMES))
        and "://" not in text
        and text.isascii()
        and _DIGIT.search(text) is not None
    )


def _named(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Constants with the name they are given to: assigned, passed, compared, defaulted."""
    for node in nodes:
        if node.__class__ not in _NAMING:
            continue
        match node:
            case ast.Assign(targets=targets, value=ast.Constant() as value):
                yield from ((_name(target), value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.Constant() as value):
                yield _name(target), value
            case ast.keyword(arg=str(name), value=ast.Constant() as value):
                yield name, value
            case ast.Dict(keys=keys, values=values):
                yield from ((_name(k), v) for k, v in zip(keys, values, strict=True) if k)
            case ast.Compare(left=left, comparators=[ast.Constant() as value]):
                yield _name(left), value
            case ast.Call(args=[ast.Constant(value=str(name)), ast.Constant() as value]):
                yield name, value  # os.getenv("API_KEY", "…")
            case ast.arguments():
                positional = node.posonlyargs + node.args
                named = positional[len(positional) - len(node.defaults) :] + node.kwonlyargs
                pairs = zip(named, [*node.defaults, *node.kw_defaults], strict=True)
                yield from ((argument.arg, value) for argument, value in pairs if value)


_NAMING = (ast.Assign, ast.AnnAssign, ast.keyword, ast.Dict, ast.Compare, ast.Call, ast.arguments)


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def _kind(name: str, text: str) -> str | None:
    """What kind of secret a text is that goes by this name, if it is one."""
    if len(name) > 60:
        return None
    plain = _HUMP.sub("_", name).lower().strip("_")
    if _PASSWORD_NAME.search(plain):
        return "password" if not _is_weak(text) and _is_mixed(text) else None
    if not _SECRET_NAME.search(plain) or _PUBLIC_NAME.search(plain):
        return None
    for scheme in _SCHEMES:
        text = text.removeprefix(scheme)
    is_token = _TOKEN.fullmatch(text) and not _PLACEHOLDER.search(text) and _looks_drawn(text)
    return f"value of {name}" if is_token else None


def _is_weak(password: str) -> bool:
    return bool(_WEAK.fullmatch(password) or _PLACEHOLDER.search(password))


def _is_mixed(text: str) -> bool:
    classes = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    return sum(any(map(test, text)) for test in classes) >= 3


def _looks_drawn(text: str) -> bool:
    """Whether the letters look drawn by lot rather than spelling words."""
    if "PRIVATE KEY" in text or _UUID.fullmatch(text):
        return True
    piece = max(_SEPARATORS.split(text), key=len)
    if _HEX.fullmatch(piece):
        return len(piece) >= 32 and _entropy(piece) > 2.8
    digits = sum(map(str.isdigit, piece))
    return len(piece) >= 16 and 2 <= digits < len(piece) and _entropy(piece) > 3.2


def _entropy(text: str) -> float:
    """Bits for each character."""
    return -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())
