"""Isolated execution: modes, environments, workspaces, network. Names load on first use."""
