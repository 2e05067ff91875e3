"""Fleet: several machines that share sessions, rates, tools and calls through Redis.

Calls go through a queue (`queue`, `wire`, `steps`) from callers (`client`, `dispatcher`) to
workers (`worker`, with `leases` and `supervisor`), which publish their tools (`publisher`,
`remote_catalog`) and may ask callers questions (`questions`). `security_stores` and `call_store`
replace the SQL stores. Key names are in `keys`, Lua scripts in `lua/`.

Names load on first use, so that this package can be imported without `toolkiln[redis]`.

Processes that can write sessions are trusted: sessions carry privileges and are not signed. A
client whose Redis user cannot read sessions has its own key prefix (`connection`). Workers sign
their messages (`message_auth`) where `worker_keys` is set. Protect Redis with passwords and the
users of `deploy/redis`, and with TLS if it is on another machine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkiln.fleet.worker_process import serve_fleet as serve_fleet

_PUBLIC = {
    "worker_process": ("serve_fleet",),
}

if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        for module, names in _PUBLIC.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
