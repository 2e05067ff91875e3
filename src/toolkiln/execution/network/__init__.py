"""The granted-hosts proxy: what a tool may reach, and the door through which it does.

The host's side only: opening the listener inside the sandbox is the sandbox's work.
`rules` reads and compares host rules, `addresses` judges what names lead to, `request`
reads request heads, `connection` holds the caps and the record of one, `proxy` serves.
"""

from toolkiln.execution.network.addresses import Address
from toolkiln.execution.network.connection import Caps, ConnectionRecord, Outcome
from toolkiln.execution.network.proxy import Resolve, serve
from toolkiln.execution.network.rules import HostRule, HostRules, granted, parse_rules

__all__ = [
    "Address",
    "Caps",
    "ConnectionRecord",
    "HostRule",
    "HostRules",
    "Outcome",
    "Resolve",
    "granted",
    "parse_rules",
    "proxy_environment",
    "serve",
]


def proxy_environment(port: int) -> dict[str, str]:
    """The variables that lead HTTP clients to the proxy on the sandbox's own loopback.

    Both spellings: curl reads no upper-case HTTP_PROXY, urllib drops it under CGI, other
    programs know nothing else. What listens inside the sandbox is reached directly.
    """
    proxy = f"http://127.0.0.1:{port}"
    variables = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "localhost,127.0.0.1"}
    return variables | {name.upper(): value for name, value in variables.items()}
