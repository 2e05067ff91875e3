"""Docstrings: their parts, and the description of a tool that is made of them.

The package needs only the standard library, because a tool file uses it too: the text that
`BaseTool.get_detailed_description` returns is the one that Toolkiln shows.
"""
