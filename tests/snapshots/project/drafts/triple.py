def triple(number: int) -> int:
    """Multiply a number by three.

    Args:
        number: The number.
    """
    return number * 3
