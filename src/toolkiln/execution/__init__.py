"""Execution of tool calls: the gateway, its executors, tasks, results and call events.

The sandbox is a package of its own; `operations.engine` puts the parts together.
"""
