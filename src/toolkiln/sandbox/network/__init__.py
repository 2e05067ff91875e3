"""Network access of tools: the proxy on the host that connects a sandbox to granted hosts."""
