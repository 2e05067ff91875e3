"""The standard library's value types: dates, numbers, paths, addresses, patterns."""

from .case import rows

_IMPORTS = """
    import datetime
    import datetime as dt
    import decimal
    import fractions
    import ipaddress
    import os
    import pathlib
    import re
    import uuid
    from datetime import date, time, timedelta, timezone
    from decimal import Decimal
    from fractions import Fraction
    from ipaddress import (
        IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network,
    )
    from pathlib import Path, PosixPath, PurePath, PurePosixPath
    from re import Pattern
    from typing import Pattern as TypingPattern
    from uuid import UUID
    from zoneinfo import ZoneInfo
"""

PLAIN = rows(
    "standard",
    _IMPORTS,
    """
    datetime.datetime; dt.datetime; dt.date; date; time; timedelta; datetime.timedelta; UUID
    uuid.UUID; Decimal; decimal.Decimal; Fraction; fractions.Fraction; Path; pathlib.Path
    PurePath; PosixPath; PurePosixPath; os.PathLike; os.PathLike[str]; Pattern; re.Pattern
    re.Pattern[str]; TypingPattern[str]; IPv4Address; IPv4Interface; IPv4Network; IPv6Address
    IPv6Interface; IPv6Network; ipaddress.IPv4Address; ZoneInfo; list[dt.date]; dict[str, Decimal]
    dict[UUID, Path]; Decimal | None; Decimal | int | str; set[IPv4Address]; tuple[date, time]
    """,
)

DEFAULTS = rows(
    "standard default",
    _IMPORTS,
    """
    date = date(2024, 1, 2); dt.datetime = dt.datetime(2024, 1, 2, 3, 4, 5)
    dt.datetime = dt.datetime(2024, 1, 2, tzinfo=timezone.utc)
    dt.datetime = dt.datetime(2024, 1, 2, 3, 4, 5, 678000); time = time(12, 30)
    timedelta = timedelta(seconds=90); timedelta = timedelta(days=1, hours=2)
    timedelta = dt.timedelta(milliseconds=1500); Decimal = Decimal("1.50"); Decimal = Decimal(3)
    Decimal = decimal.Decimal("-0.1"); Path = Path("a/b"); Path = Path("/tmp") / "x"
    Path = pathlib.Path("."); Path | None = None
    UUID = UUID("12345678-1234-5678-1234-567812345678"); IPv4Address = IPv4Address("127.0.0.1")
    IPv4Network = ipaddress.IPv4Network("10.0.0.0/8"); Pattern = re.compile("a+")
    Fraction = Fraction(1, 3); list[date] = [date(2024, 1, 2)]
    """,
)

CASES = [*PLAIN, *DEFAULTS]
