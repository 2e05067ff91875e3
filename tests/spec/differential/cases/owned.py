"""Pydantic's own types."""

from .case import rows

_IMPORTS = """
    import pydantic
    import pydantic as pd
    from decimal import Decimal
    from typing import Annotated, Any
    from annotated_types import Gt
    from pydantic import (
        AmqpDsn, AnyHttpUrl, AnyUrl, AnyWebsocketUrl, AwareDatetime, Base64Bytes, Base64Str,
        Base64UrlBytes, Base64UrlStr, BaseModel, ByteSize, ClickHouseDsn, CockroachDsn,
        DirectoryPath, EmailStr, Field, FilePath, FileUrl, FiniteFloat, FtpUrl, FutureDate,
        FutureDatetime, HttpUrl, ImportString, IPvAnyAddress, IPvAnyInterface, IPvAnyNetwork, Json,
        JsonValue, KafkaDsn, MariaDBDsn, MongoDsn, MySQLDsn, NaiveDatetime, NameEmail, NatsDsn,
        NegativeFloat, NegativeInt, NewPath, NonNegativeFloat, NonNegativeInt, NonPositiveFloat,
        NonPositiveInt, OnErrorOmit, PastDate, PastDatetime, PositiveFloat, PositiveInt,
        PostgresDsn, RedisDsn, Secret, SecretBytes, SecretStr, SnowflakeDsn, StrictBool,
        StrictBytes, StrictFloat, StrictInt, StrictStr, UUID1, UUID3, UUID4, UUID5, UUID6, UUID7,
        UUID8, WebsocketUrl, conbytes, condate, condecimal, confloat, confrozenset, conint,
        conlist, conset, constr, UrlConstraints, AliasChoices, SerializeAsAny, SocketPath,
    )
    from pydantic.json_schema import SkipJsonSchema, WithJsonSchema

    class Model(BaseModel):
        a: int
"""

CASES = rows(
    "pydantic",
    _IMPORTS,
    """
    EmailStr; NameEmail; HttpUrl; AnyUrl; AnyHttpUrl; FtpUrl; FileUrl; WebsocketUrl
    AnyWebsocketUrl; PostgresDsn; CockroachDsn; AmqpDsn; RedisDsn; MongoDsn; KafkaDsn; NatsDsn
    MySQLDsn; MariaDBDsn; ClickHouseDsn; SnowflakeDsn; HttpUrl | None = None; list[HttpUrl]
    Annotated[AnyUrl, UrlConstraints(max_length=50, allowed_schemes=["https"])]; PositiveInt
    NegativeInt; NonNegativeInt; NonPositiveInt; PositiveFloat; NegativeFloat; NonNegativeFloat
    NonPositiveFloat; FiniteFloat; StrictInt; StrictFloat; StrictStr; StrictBool; StrictBytes
    PositiveInt = 3; list[PositiveInt]; PositiveInt | None; Annotated[PositiveInt, Field(lt=100)]
    conint(); conint(gt=0); conint(ge=0, le=10, multiple_of=5); conint(strict=True, lt=3)
    confloat(gt=0.5); confloat(ge=0, allow_inf_nan=False); constr()
    constr(min_length=1, max_length=5); constr(pattern="^a", strip_whitespace=True)
    constr(to_lower=True); conbytes(min_length=1, max_length=5); conlist(int)
    conlist(int, min_length=1, max_length=5); conlist(item_type=str, min_length=1)
    conlist(conint(gt=0), max_length=3); conset(int, min_length=1)
    confrozenset(str, max_length=3); condecimal(gt=0); condecimal(max_digits=4, decimal_places=2)
    condecimal(ge=Decimal("0.5")); condate(); pydantic.conint(gt=0) | None = None
    list[pd.constr(max_length=3)]; SecretStr; SecretBytes; SecretStr | None = None
    Annotated[SecretStr, Field(min_length=8)]; Secret[int]; Secret[str]; Json; Json[int]
    Json[list[int]]; Json[Any]; Json[Model]; list[Json[int]]; JsonValue; dict[str, JsonValue]
    JsonValue = None; UUID1; UUID3; UUID4; UUID5; UUID6; UUID7; UUID8; FilePath; DirectoryPath
    NewPath; SocketPath; ByteSize; ByteSize = 1024; PastDate; FutureDate; PastDatetime
    FutureDatetime; AwareDatetime; NaiveDatetime; Base64Str; Base64Bytes; Base64UrlStr
    Base64UrlBytes; IPvAnyAddress; IPvAnyInterface; IPvAnyNetwork; ImportString; ImportString[Any]
    list[OnErrorOmit[int]]; int | SkipJsonSchema[None]; int | SkipJsonSchema[None] = None
    int | SkipJsonSchema[str] | None; SerializeAsAny[Model]; SerializeAsAny[int]
    Annotated[int, WithJsonSchema({"type": "number", "format": "odd"})]
    Annotated[object, WithJsonSchema({"type": "string"}), Field(description="d")]
    pydantic.EmailStr; pd.types.PositiveInt; pydantic.networks.AnyUrl; dict[EmailStr, PositiveInt]
    """,
)
