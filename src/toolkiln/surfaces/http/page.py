"""The page at `/docs` that shows the description and tries operations: one file, no downloads.

What is in it is `page.html`; here is how it is sent. It may run the script and the style that
are in the file, talk to this server, and nothing else.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files


@cache
def page() -> tuple[bytes, Mapping[str, str]]:
    """The page, and the headers that it is sent with."""
    text = (files(__package__) / "page.html").read_text("utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hash(text, 'script')}",
        f"style-src {_hash(text, 'style')}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return text.encode(), headers


def _hash(text: str, element: str) -> str:
    found = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    assert found is not None
    return f"'sha256-{b64encode(sha256(found[1].encode()).digest()).decode()}'"
