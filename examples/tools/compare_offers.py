"""A decorated function that takes dataclasses and returns a `NamedTuple`."""

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

from toolkiln import ToolError, tool


class Measure(Enum):
    """What the quantity of an offer is counted in."""

    GRAM = "g"
    KILOGRAM = "kg"
    MILLILITRE = "ml"
    LITRE = "l"
    PIECE = "piece"


# The unit that prices are given for, and how many of the measure make one.
_PER = {
    Measure.GRAM: ("kg", 1000),
    Measure.KILOGRAM: ("kg", 1),
    Measure.MILLILITRE: ("l", 1000),
    Measure.LITRE: ("l", 1),
    Measure.PIECE: ("piece", 1),
}


@dataclass
class Offer:
    """Something that can be bought."""

    label: str
    price: Decimal
    quantity: Decimal
    measure: Measure
    pack: int = 1
    """How many of the quantity one gets for the price."""


class Ranked(NamedTuple):
    """An offer with its price for one unit."""

    label: str
    unit_price: Decimal
    unit: str
    surplus_percent: Decimal
    """How much dearer it is than the cheapest."""


@tool(
    name="compare_unit_prices",
    display_name="Compare prices",
    read_only=True,
    idempotent=True,
    usages=["which pack of rice is cheaper", "price for a kilogram"],
)
def rank_offers(offers: list[Offer]) -> list[Ranked]:
    """Compare offers of different sizes by their price for a kilogram, litre or piece.

    Args:
        offers: The offers; all by mass, all by volume or all by the piece.

    Returns:
        The offers, cheapest first.

    Raises:
        ToolError: Offers are counted in things that cannot be compared.

    Examples:
        >>> small = Offer("500 g", Decimal("1.79"), Decimal(500), Measure.GRAM)
        >>> large = Offer("2 kg", Decimal("5.96"), Decimal(2), Measure.KILOGRAM)
        >>> [(r.label, r.unit_price) for r in rank_offers([small, large])]
        [('2 kg', Decimal('2.98')), ('500 g', Decimal('3.58'))]
    """
    if not offers:
        return []
    units = {_PER[offer.measure][0] for offer in offers}
    if len(units) > 1:
        raise ToolError(f"prices for a {' and for a '.join(sorted(units))} cannot be compared")
    if any(offer.quantity <= 0 or offer.pack <= 0 for offer in offers):
        raise ToolError("every quantity and pack has to be above zero")
    (unit,) = units
    prices = {index: _unit_price(offer) for index, offer in enumerate(offers)}
    least = min(prices.values())
    return [
        Ranked(
            offers[index].label,
            round(price, 4).normalize(),
            unit,
            round((price / least - 1) * 100, 1) if least else Decimal(0),
        )
        for index, price in sorted(prices.items(), key=lambda item: item[1])
    ]


def _unit_price(offer: Offer) -> Decimal:
    return offer.price * _PER[offer.measure][1] / (offer.quantity * offer.pack)
