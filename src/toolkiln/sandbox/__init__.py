"""Isolated execution: modes, environments, workspaces, network."""
