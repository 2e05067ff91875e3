"""The tools of a folder: so far, finding, reading and checking its files."""

from toolkiln.catalog.checking import Report, check
from toolkiln.catalog.files import read_file, sources, tool_files

__all__ = ["Report", "check", "read_file", "sources", "tool_files"]
