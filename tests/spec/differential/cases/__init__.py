"""The hand-written table: every item of the type list, awkward spellings included."""

from . import (
    aliases,
    configured,
    constrained,
    enums,
    fields,
    generics,
    models,
    names,
    owned,
    plain,
    records,
    refused,
    signatures,
    standard,
)
from .case import Case

CASES: list[Case] = [
    *plain.CASES,
    *constrained.CASES,
    *standard.CASES,
    *owned.CASES,
    *enums.CASES,
    *fields.CASES,
    *configured.CASES,
    *models.CASES,
    *generics.CASES,
    *records.CASES,
    *aliases.CASES,
    *names.CASES,
    *signatures.CASES,
]

REFUSED: list[Case] = refused.CASES

__all__ = ["CASES", "REFUSED", "Case"]
