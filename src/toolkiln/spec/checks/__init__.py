"""Checks of a file and its tools, for authors and for the person who admits the file.

No findings does not mean that a file is safe: the sandbox enforces that.
"""
