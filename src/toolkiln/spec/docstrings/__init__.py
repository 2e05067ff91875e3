"""Docstrings → `Documentation`: Google, NumPy, Sphinx and Markdown, detected as they come."""

from toolkiln.spec.docstrings.parser import parse

__all__ = ["parse"]
