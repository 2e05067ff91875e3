"""An async tool that declares the one host it talks to and reports to its caller."""

import asyncio
import json
from datetime import date
from decimal import Decimal
from http.client import HTTPException
from typing import Literal
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from toolkiln import Context, ToolError, tool

Currency = Literal[
    "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HUF", "IDR", "ILS", "INR",
    "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN", "RON", "SEK", "SGD", "THB", "TRY",
    "USD", "ZAR",
]  # fmt: skip

_HOST = "api.frankfurter.dev"


@tool(
    network=["api.frankfurter.dev"],
    timeout=20,
    read_only=True,
    open_world=True,
    parallel=True,
    icon="coins",
)
async def convert_currency(
    amount: Decimal,
    source: Currency,
    target: Currency,
    on: date | None = None,
    ctx: Context | None = None,
) -> Decimal:
    """Convert an amount of money with the European Central Bank's reference rates.

    The bank sets rates once a working day; they are not the ones that dealers offer.

    Args:
        amount: The sum to convert.
        source: The currency of the sum.
        target: The currency wanted.
        on: The day whose rate is used; the latest by default.

    Returns:
        The sum in the target currency, to two decimal places.

    Raises:
        ToolError: The rates cannot be had at the moment, or not for that day.

    Examples:
        >>> asyncio.run(convert_currency(Decimal("9.5"), "EUR", "EUR"))
        Decimal('9.50')
    """
    rate = Decimal(1)
    if source != target:
        rate = await asyncio.to_thread(_rate, source, target, on)
    if ctx is not None:
        ctx.log(f"1 {source} = {rate} {target}")
    return round(amount * rate, 2)


def _rate(source: str, target: str, on: date | None) -> Decimal:
    day = on.isoformat() if on else "latest"
    query = urlencode({"base": source, "symbols": target})
    try:
        # urllib goes through the sandbox's proxy by itself; http.client would not.
        with urlopen(f"https://{_HOST}/v1/{day}?{query}", timeout=10) as response:
            body = response.read(100_000)
    except HTTPError as error:
        raise ToolError(f"{_HOST} has no rate for {source} to {target} on {day}") from error
    except (OSError, HTTPException) as error:
        raise ToolError(f"{_HOST} does not answer", retryable=True) from error
    rate: Decimal = json.loads(body, parse_float=Decimal)["rates"][target]
    return rate
