"""Type annotations → JSON Schema, from syntax alone, equal to the schemas of pydantic.

`TypeReader` is the entry point.
"""
