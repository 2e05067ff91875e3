"""What is wrong with a file or a tool, beyond what reading it already told.

"No findings" does not mean safe: the sandbox is the guarantee, these are for the author
and for whoever admits the file.
"""

from toolkiln.spec.checks.findings import FileFacts, check_file, check_tool

__all__ = ["FileFacts", "check_file", "check_tool"]
