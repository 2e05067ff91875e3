"""Access to granted hosts: which ones a tool may reach, and the guard that connects it.

The host's side only: the sandbox opens the listeners in its own network namespace.
`rules` reads and compares host rules, `addresses` judges what names lead to, `endpoints`
plans the addresses for plain sockets, `request` reads request heads, `connection` holds
the caps and the record of one connection, `proxy` serves.
"""

from toolkiln.execution.network.addresses import Address
from toolkiln.execution.network.connection import Caps, ConnectionRecord, Outcome
from toolkiln.execution.network.endpoints import Endpoint, hosts_file, plan_endpoints
from toolkiln.execution.network.proxy import Resolve, serve
from toolkiln.execution.network.rules import HostRule, HostRules, granted, parse_rules

__all__ = [
    "Address",
    "Caps",
    "ConnectionRecord",
    "Endpoint",
    "HostRule",
    "HostRules",
    "Outcome",
    "Resolve",
    "granted",
    "hosts_file",
    "parse_rules",
    "plan_endpoints",
    "proxy_environment",
    "serve",
]


def proxy_environment(port: int, *, bypass_localhost: bool = True) -> dict[str, str]:
    """Return the variables that point HTTP clients to the proxy inside the sandbox.

    Both spellings: curl ignores an upper-case HTTP_PROXY, urllib ignores it under CGI, and
    other programs read nothing else. Loopback is reached without the proxy: a server that
    the tool started, or the endpoint of a granted `localhost`. Without `bypass_localhost`
    that endpoint is missing, and the proxy takes its place.
    """
    proxy = f"http://127.0.0.1:{port}"
    direct = "localhost,127.0.0.1" if bypass_localhost else "127.0.0.1"
    variables = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct}
    return variables | {name.upper(): value for name, value in variables.items()}
