"""Network access of tools: the proxy on the host that connects a sandbox to granted hosts.

The sandbox opens listeners in its own network namespace and passes them to the host.
`addresses` checks resolved addresses, `endpoints` plans the listeners for plain sockets,
`request` parses request heads, `connection` has the caps and the record of one connection,
`proxy` serves the listeners, `access` connects a sandbox to the proxy.
"""
