"""String constants that look like secrets: keys, tokens, passwords in URLs.

Known formats are found anywhere. Other strings are found only if a name such as `api_key`
refers to them and they look random. Placeholders and names of environment variables are
ignored. A report quotes at most the first four characters.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import log2
from typing import Any, NamedTuple

from toolkiln.spec.syntax import parameters

_MIN_QUOTED = 20
"""Shorter secrets are not quoted at all."""


class LiteralSecret(NamedTuple):
    """A constant that looks like a secret."""

    line: int
    column: int
    """The constant's column, 1-based, in UTF-8 bytes as Python counts them."""
    description: str
    """The kind and the first characters, such as `AWS access key AKIA…`."""


class _Format(NamedTuple):
    piece: str
    """A piece that every match contains: a cheap test before the search."""
    kind: str
    pattern: re.Pattern[str]


def _format(piece: str, kind: str, pattern: str) -> _Format:
    return _Format(piece, kind, re.compile(rf"(?<![A-Za-z0-9_+-])(?:{pattern})"))


_FORMATS = (
    _format("AKIA", "AWS access key", r"AKIA[0-9A-Z]{16}"),
    _format("ASIA", "AWS access key", r"ASIA[0-9A-Z]{16}"),
    *(_format(f"gh{c}_", "GitHub token", rf"gh{c}_[A-Za-z0-9]{{36}}") for c in "pousr"),
    _format("github_pat_", "GitHub token", r"github_pat_[A-Za-z0-9_]{60,}"),
    *(
        _format(f"{piece}-", "GitLab token", rf"{piece}-[A-Za-z0-9_-]{{20,}}")
        for piece in ("glpat", "glrt", "gldt", "glptt", "gloas", "glagent")
    ),
    _format("sk-", "API key", r"sk-(?:ant-|proj-|or-v1-|svcacct-|admin-|live-)?[A-Za-z0-9_-]{20,}"),
    _format("gsk_", "Groq key", r"gsk_[A-Za-z0-9]{40,}"),
    _format("xai-", "xAI key", r"xai-[A-Za-z0-9]{60,}"),
    _format("pplx-", "Perplexity key", r"pplx-[A-Za-z0-9]{40,}"),
    _format("r8_", "Replicate token", r"r8_[A-Za-z0-9]{37,}"),
    _format("nvapi-", "NVIDIA key", r"nvapi-[A-Za-z0-9_-]{50,}"),
    _format("tvly-", "Tavily key", r"tvly-[A-Za-z0-9-]{24,}"),
    _format("pcsk_", "Pinecone key", r"pcsk_[A-Za-z0-9_]{40,}"),
    _format("lsv2_", "LangSmith key", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _format("hf_", "Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    _format("xox", "Slack token", r"xox[abceoprs]-[A-Za-z0-9-]{20,}"),
    _format("xapp-", "Slack token", r"xapp-\d-[A-Z0-9]+-\d+-[A-Za-z0-9]{20,}"),
    _format("hooks.slack.com", "Slack webhook", r"hooks\.slack\.com/services/T\w+/B\w+/\w{16,}"),
    _format(
        "api/webhooks/", "Discord webhook", r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{40,}"
    ),
    _format(
        ".",
        "Discord token",
        r"(?:M[DTjz]|N[DTjz]|O[DT])[A-Za-z0-9]{21,26}\.[\w-]{6}\.[\w-]{27,40}(?![\w.-])",
    ),
    _format(":AA", "Telegram bot token", r"\d{8,10}:AA[\w-]{33}(?![\w-])"),
    _format("AIza", "Google API key", r"AIza[A-Za-z0-9_-]{35}"),
    _format("ya29.", "Google token", r"ya29\.[A-Za-z0-9_-]{30,}"),
    _format("GOCSPX-", "Google client secret", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _format("_live_", "Stripe key", r"[srp]k_live_[A-Za-z0-9]{16,}"),
    _format("_test_", "Stripe key", r"[sr]k_test_[A-Za-z0-9]{16,}"),
    _format("whsec_", "Stripe webhook secret", r"whsec_[A-Za-z0-9+/]{24,}"),
    _format("sq0", "Square token", r"sq0(?:atp-[\w-]{22}|csp-[\w-]{43})"),
    _format("EAA", "Meta or Square token", r"EAA[\w-]{57,}(?![\w+/=-])"),
    _format("shp", "Shopify token", r"shp(?:at|ca|pa|ss|tka)_[0-9a-fA-F]{32}"),
    _format("SK", "Twilio key", r"SK[0-9a-f]{32}(?![0-9a-f])"),
    _format("SG.", "SendGrid key", r"SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{30,}"),
    _format("key-", "Mailgun key", r"key-[0-9a-f]{32}(?![0-9a-f])"),
    _format("-us", "Mailchimp key", r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
    _format("npm_", "npm token", r"npm_[A-Za-z0-9]{36}"),
    _format("pypi-", "PyPI token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    _format("dckr_pat_", "Docker token", r"dckr_pat_[\w-]{27,}"),
    _format("_v1_", "DigitalOcean token", r"do[opr]_v1_[0-9a-f]{64}"),
    _format("HRKU-", "Heroku key", r"HRKU-[A-Za-z0-9_-]{36,}"),
    _format("dapi", "Databricks token", r"dapi[0-9a-f]{32}(?![0-9a-f])"),
    _format("hvs.", "Vault token", r"hvs\.[\w-]{24,}"),
    _format("glsa_", "Grafana token", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    _format("NRAK-", "New Relic key", r"NRAK-[A-Z0-9]{27}"),
    _format("sntry", "Sentry token", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    _format("sbp_", "Supabase token", r"sbp_[0-9a-f]{40}"),
    _format("sb_secret_", "Supabase key", r"sb_secret_[\w-]{20,}"),
    _format("lin_api_", "Linear key", r"lin_api_[A-Za-z0-9]{40}"),
    _format("secret_", "Notion token", r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    _format("ntn_", "Notion token", r"ntn_[A-Za-z0-9]{40,}"),
    _format("pat", "Airtable token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _format("ATATT3", "Atlassian token", r"ATATT3[\w=-]{60,}"),
    _format("figd_", "Figma token", r"figd_[\w-]{40,}"),
    _format("PMAK-", "Postman key", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _format(
        "pat-", "HubSpot token", r"pat-(?:na|eu)\d-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    ),
    _format("eyJ", "JSON web token", r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{16,}"),
    _format("AccountKey=", "Azure storage key", r"AccountKey=[A-Za-z0-9+/]{60,}"),
    _format("Q~", "Azure client secret", r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])"),
    _format(
        "PRIVATE KEY",
        "private key",
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----(?=(?:\s+[\w-]+:.*)*\s+[\w+/=]{40})",
    ),
)
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://([^\s:/@?#]*):([^\s/@?#]+)@([^\s/:?#]+)")

_PLACEHOLDER = re.compile(
    r"""\bhost|localhost|example|sample|dummy|placeholder|changeme|change[-_]me|replace|insert|redacted|fake
    |your|my[-_](?:api|secret|token|key|pass)|todo|test[-_]?(?:key|token|secret)
    |[x]{4}|\*{3}|\.{3}|…|[<>{}$%]|eyJzdWIiOiIxMjM0NTY3ODkw
    |sk_test_(?:4eC39Hq|BQokikJ)""",  # the keys in Stripe's documentation
    re.IGNORECASE | re.VERBOSE,
)
_RUN = re.compile(r"0{8,}|1234567(?:890?)?|abcdef(?!\d)(?:ghi)?", re.IGNORECASE)
"""Typed instead of a secret; a real one may contain it by chance, between other characters."""
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
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
_SCHEMES = ("Bearer ", "Basic ", "token ")
_TOKEN = re.compile(r"[A-Za-z0-9+/_.=~-]{20,200}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]+", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_./=~]")


def find_secrets(nodes: Sequence[ast.AST]) -> list[LiteralSecret]:
    """Return the constants among a file's nodes (see `syntax.walk`) that look like secrets."""
    texts = list(_texts(nodes))
    joined = "\0".join([text for _, text in texts])
    found: list[LiteralSecret] = []
    reported: set[int] = set()
    formats = [
        known for known in _FORMATS if known.piece in joined and known.pattern.search(joined)
    ]
    if formats or ("://" in joined and "@" in joined):  # a URL without a user has no password
        for node, text in texts:
            if secrets := list(_known(node, text, formats)):
                found += secrets
                reported.add(id(node))
    candidates = {
        id(node): text for node, text in texts if 8 <= len(text) <= 212 and _is_candidate(text)
    }
    if candidates.keys() - reported:
        for name, constant in _named(nodes):
            value = candidates.get(id(constant))
            if value is not None and id(constant) not in reported and (kind := _kind(name, value)):
                found.append(_secret(constant, kind, value))
                reported.add(id(constant))
    return sorted(set(found))


def _texts(nodes: Sequence[Any]) -> Iterator[tuple[ast.Constant, str]]:
    for node in nodes:
        if node.__class__ is ast.Constant:
            value: Any = node.value
            if value.__class__ is str:
                yield node, value
            elif value.__class__ is bytes:
                yield node, value.decode("latin-1")


def _known(node: ast.Constant, text: str, formats: Sequence[_Format]) -> Iterator[LiteralSecret]:
    for known in formats:
        if known.piece in text:
            for match in known.pattern.finditer(text):
                if not _PLACEHOLDER.search(match[0]) and _looks_random(_RUN.sub("", match[0])):
                    yield _secret(node, known.kind, match[0], text.count("\n", 0, match.start()))
    if "://" in text:
        for match in _URL.finditer(text):
            scheme, user, password, host = match.groups()
            if password != user and not _is_weak(password) and not _PLACEHOLDER.search(host):
                offset = text.count("\n", 0, match.start())
                yield _secret(node, f"password in a {scheme}:// URL", "", offset)


def _secret(node: ast.Constant, kind: str, secret: str, line_offset: int = 0) -> LiteralSecret:
    quote = f" {secret[:4]}…" if len(secret) >= _MIN_QUOTED else ""
    line = min(node.lineno + line_offset, node.end_lineno or node.lineno)
    return LiteralSecret(line, node.col_offset + 1, f"{kind}{quote}")


def _is_candidate(text: str) -> bool:
    return (
        (" " not in text or text.startswith(_SCHEMES))
        and "://" not in text
        and text.isascii()
        and _DIGIT.search(text) is not None
    )


def _named(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield constants with the name they are assigned to, passed as or compared with."""
    for node in nodes:
        if node.__class__ not in _NAMING_NODES:
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
                yield from ((argument.arg, value) for argument, value in parameters(node) if value)


_NAMING_NODES = {
    *(ast.Assign, ast.AnnAssign, ast.keyword, ast.Dict, ast.Compare, ast.Call),
    ast.arguments,
}


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def _kind(name: str, text: str) -> str | None:
    if len(name) > 60:
        return None
    snake_case = _WORD_BREAK.sub("_", name).lower().strip("_")
    if _PASSWORD_NAME.search(snake_case):
        return "password" if not _is_weak(text) and _is_mixed(text) else None
    if not _SECRET_NAME.search(snake_case) or _PUBLIC_NAME.search(snake_case):
        return None
    for scheme in _SCHEMES:
        text = text.removeprefix(scheme)
    is_token = _TOKEN.fullmatch(text) and not _is_placeholder(text) and _looks_random(text)
    return f"value of {name}" if is_token else None


def _is_placeholder(text: str) -> bool:
    return bool(_PLACEHOLDER.search(text) or _RUN.search(text))


def _is_weak(password: str) -> bool:
    return bool(_WEAK.fullmatch(password)) or _is_placeholder(password)


def _is_mixed(text: str) -> bool:
    classes = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    return sum(any(map(test, text)) for test in classes) >= 3


def _looks_random(text: str) -> bool:
    if "PRIVATE KEY" in text or _UUID.search(text):
        return True
    longest = max(_SEPARATORS.split(text), key=len)
    if _HEX.fullmatch(longest):
        return len(longest) >= 32 and _entropy(longest) > 2.8
    digits = sum(map(str.isdigit, longest))
    return len(longest) >= 16 and 2 <= digits < len(longest) and _entropy(longest) > 3.2


def _entropy(text: str) -> float:
    """Return the entropy in bits per character."""
    return -sum(n / len(text) * log2(n / len(text)) for n in Counter(text).values())
