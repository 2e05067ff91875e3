"""Type annotations → JSON Schema, from syntax alone, equal to the schemas of pydantic.

`TypeReader` is the entry point.
"""

from toolkiln.spec.annotations.shapes import Omitted, Unresolved
from toolkiln.spec.annotations.type_reader import Note, TypeReader

__all__ = ["Note", "Omitted", "TypeReader", "Unresolved"]
