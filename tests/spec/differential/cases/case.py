"""A case: the source of one tool module, with a name to find it by."""

import ast
import re
import textwrap
from typing import NamedTuple

PYDANTIC = """
import typing
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Generic, List, Literal, Optional, TypeVar, Union

import pydantic
from pydantic import (
    AliasChoices, AliasGenerator, AliasPath, BaseModel, ConfigDict, Discriminator, Field,
    PrivateAttr, RootModel, Tag, computed_field, create_model, field_serializer, field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_pascal, to_snake
"""
"""The imports of cases about models."""


class Case(NamedTuple):
    """One module whose functions are compared with pydantic's view of them."""

    name: str
    source: str


def rows(topic: str, imports: str, lines: str) -> list[Case]:
    """One case for each line of `annotation` or `annotation = default`, parted by semicolons."""
    imports = textwrap.dedent(imports).strip()
    return [
        Case(f"{topic}: {line}", f"{imports}\n\n\n{_tool(*line.split('; '))}")
        for line in filter(None, map(str.strip, lines.splitlines()))
    ]


def singles(topic: str, imports: str, lines: str) -> list[Case]:
    """One case for each annotation of `rows`: pydantic refuses a whole function for one of them."""
    return rows(topic, imports, lines.replace("; ", "\n"))


def sheet(topic: str, imports: str, text: str, use: str = "Model") -> list[Case]:
    """One case for each block under a line `### name` or `### name | annotation`.

    A block without a function of its own gets one that takes and returns `use`, or
    the annotation of its heading.
    """
    cases = []
    for block in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = block.partition("\n")
        name, _, own = heading.partition(" | ")
        if not re.search(r"^(async )?def [a-z]", body, flags=re.MULTILINE):
            body = f"{body.rstrip()}\n\n\n{_tool(own or use)}"
        # A `from __future__` line must stay the first of the module.
        source = body if "import" in body.split("\n", 1)[0] else f"{imports.strip()}\n\n\n{body}"
        cases.append(Case(f"{topic}: {name}", source))
    return cases


def _tool(*signatures: str) -> str:
    """The annotations on parameters and return: validation and serialisation are compared."""
    parameters = [f"x{number}: {text}" for number, text in enumerate(signatures, 1)]
    code = f"def tool(*, {', '.join(parameters)}): ..."
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    annotations = [argument.annotation for argument in function.args.kwonlyargs]
    texts = [ast.get_source_segment(code, node) or "" for node in annotations if node]
    returns = f"tuple[{', '.join(texts)}]" if len(texts) > 1 else texts[0]
    return f"def tool(*, {', '.join(parameters)}) -> {returns}: ...\n"
