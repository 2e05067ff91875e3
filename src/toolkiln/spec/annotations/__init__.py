"""Type annotations → JSON Schema, by syntax alone, equal to what pydantic would make of them.

`reader` is the way in; the other modules are one kind of thing each: expressions, values,
enums, classes with their lineage and configuration, field metadata, shapes.
"""

from toolkiln.spec.annotations.reader import Note, TypeReader
from toolkiln.spec.annotations.shapes import Omitted, Unresolved

__all__ = ["Note", "Omitted", "TypeReader", "Unresolved"]
