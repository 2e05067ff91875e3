"""The tools of a folder: so far, finding and reading its files."""

from toolkiln.catalog.files import read_file, tool_files

__all__ = ["read_file", "tool_files"]
