"""A plain function with a Sphinx docstring, an `Optional` and a union of scalars."""

from typing import Literal, Optional

Cell = str | int | float | bool | None


def format_table(
    rows: list[dict[str, Cell]],
    columns: Optional[list[str]] = None,  # noqa: UP045 - both spellings are read
    style: Literal["markdown", "plain", "csv"] = "markdown",
) -> str:
    """Lay out records as a table that people can read.

    Numbers are aligned to the right. A record that lacks a column has an empty cell there.

    :param rows: The records, one for each line of the table.
    :param columns: The columns to show, in this order; all of them by default.
    :param style: The form of the table.
    :returns: The table as text.

    Examples:
        >>> print(format_table([{"city": "Oslo", "people": 717710}, {"city": "Bergen"}]))
        | city   | people |
        |--------|-------:|
        | Oslo   | 717710 |
        | Bergen |        |
        >>> format_table([{"a": 1, "b": "x, y"}], style="csv")
        'a,b\\n1,"x, y"'
    """
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    if style == "csv":
        return "\n".join(",".join(map(_quoted, line)) for line in lines)
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    numeric = [all(_is_number(row.get(name)) for row in rows) for name in names]
    padded = [
        [
            cell.rjust(width) if right and at else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        for at, line in enumerate(lines)
    ]
    if style == "plain":
        return "\n".join("  ".join(line).rstrip() for line in padded)
    ruler = [
        "-" * (width + 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]
    body = [f"| {' | '.join(line)} |" for line in padded]
    return "\n".join([body[0], f"|{'|'.join(ruler)}|", *body[1:]])


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _quoted(text: str) -> str:
    special = any(char in text for char in ',"\n\r')
    return '"' + text.replace('"', '""') + '"' if special else text


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))
