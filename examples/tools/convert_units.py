"""A plain function is a tool: type hints give the schema, the docstring the description."""

from enum import StrEnum


class Unit(StrEnum):
    """The units that can be converted, each within its own kind."""

    MILLIMETRE = "mm"
    METRE = "m"
    KILOMETRE = "km"
    INCH = "in"
    FOOT = "ft"
    MILE = "mi"
    GRAM = "g"
    KILOGRAM = "kg"
    OUNCE = "oz"
    POUND = "lb"
    MILLILITRE = "ml"
    LITRE = "l"
    US_GALLON = "gal"
    CELSIUS = "degC"
    FAHRENHEIT = "degF"
    KELVIN = "K"


# The kind of each unit, then factor and offset to that kind's base unit.
_SCALES: dict[Unit, tuple[str, float, float]] = {
    Unit.MILLIMETRE: ("length", 0.001, 0),
    Unit.METRE: ("length", 1, 0),
    Unit.KILOMETRE: ("length", 1000, 0),
    Unit.INCH: ("length", 0.0254, 0),
    Unit.FOOT: ("length", 0.3048, 0),
    Unit.MILE: ("length", 1609.344, 0),
    Unit.GRAM: ("mass", 0.001, 0),
    Unit.KILOGRAM: ("mass", 1, 0),
    Unit.OUNCE: ("mass", 0.028349523125, 0),
    Unit.POUND: ("mass", 0.45359237, 0),
    Unit.MILLILITRE: ("volume", 0.001, 0),
    Unit.LITRE: ("volume", 1, 0),
    Unit.US_GALLON: ("volume", 3.785411784, 0),
    Unit.CELSIUS: ("temperature", 1, 273.15),
    Unit.FAHRENHEIT: ("temperature", 5 / 9, 459.67 * 5 / 9),
    Unit.KELVIN: ("temperature", 1, 0),
}


def convert_units(value: float, source: Unit, target: Unit, digits: int = 6) -> float:
    """Convert a length, mass, volume or temperature from one unit to another.

    Args:
        value: The amount in the source unit.
        source: The unit of the value.
        target: The unit wanted; of the same kind as the source unit.
        digits: How many decimal places the result is rounded to.

    Returns:
        The amount in the target unit.

    Raises:
        ValueError: The units measure different kinds of things.

    Examples:
        >>> convert_units(26.2, Unit.MILE, Unit.KILOMETRE, digits=2)
        42.16
        >>> convert_units(212, Unit.FAHRENHEIT, Unit.CELSIUS)
        100.0
    """
    kind, factor, offset = _SCALES[source]
    wanted, divisor, shift = _SCALES[target]
    if kind != wanted:
        raise ValueError(f"{source} measures {kind}, {target} measures {wanted}")
    return round((value * factor + offset - shift) / divisor, digits)
