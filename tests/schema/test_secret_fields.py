"""Secret fields of settings schemas are found, however deep the secret lies."""

from textwrap import dedent

from tables import each_row
from toolkiln.schema.document import secret_fields
from toolkiln.spec.reader import read

SOURCE = """
    from typing import Optional
    from pydantic import BaseModel, Field, SecretBytes, SecretStr
    from toolkiln import tool

    class Login(BaseModel):
        user: str
        password: SecretStr
        other: "Login | None" = None

    class Plain(BaseModel):
        name: str = "password"
        other: "Plain | None" = None

    class Settings(BaseModel):
        field: {annotation}

    @tool(settings=Settings)
    def f(): ...
"""


@each_row(
    "annotation",
    [
        "SecretStr",
        "SecretBytes",
        "SecretStr | None = None",
        "Optional[SecretStr] = Field(default=None, description='The key.')",
        "str = Field(json_schema_extra={'secret': True})",
        "str = Field('', json_schema_extra={'format': 'password'})",
        "str = Field('', json_schema_extra={'input': {'type': 'password', 'size': 9}})",
        "list[SecretStr] = []",
        "tuple[int, SecretStr]",
        "dict[str, SecretStr] = {}",
        "Login",
        "list[Login | None] = []",
    ],
)
def test_a_field_that_is_or_contains_a_secret_is_found(annotation: str) -> None:
    assert secret_fields(_schema(annotation)) == {"field"}


@each_row(
    "annotation",
    [
        "str",
        "str = 'password'",
        "str = Field('', json_schema_extra={'input': {'type': 'select'}})",
        "Plain",
        "dict[str, str] = {}",
        "int | None = None",
    ],
)
def test_other_fields_are_no_secrets(annotation: str) -> None:
    assert secret_fields(_schema(annotation)) == set()


def test_a_schema_that_is_none_has_no_secrets() -> None:
    assert secret_fields({}) == set()
    assert secret_fields({"properties": {"a": True, "b": {"$ref": "#/$defs/none"}}}) == set()


def _schema(annotation: str) -> dict[str, object]:
    (tool,) = read(dedent(SOURCE).format(annotation=annotation), "<memory>").tools
    return tool.settings["operator"]
