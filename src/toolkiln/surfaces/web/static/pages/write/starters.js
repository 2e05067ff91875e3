// Template sources. A test checks that each is a tool without findings whose examples pass.
export const STARTERS = [
  {
    title: "A function",
    source: `def add_tax(net: float, percent: float = 19) -> float:
    """Add a tax to a net price, and round to cents.

    Args:
        net: The price without tax.
        percent: The tax rate in percent.

    Examples:
        >>> add_tax(100)
        119.0
    """
    return round(net * (1 + percent / 100), 2)
`,
  },
  {
    title: "Choices and limits",
    source: `from typing import Annotated, Literal

from pydantic import Field


def convert_length(
    value: Annotated[float, Field(ge=0)],
    to: Literal["feet", "inches", "miles"] = "feet",
) -> float:
    """Convert a length from meters to a unit of the imperial system.

    Args:
        value: The length in meters.
        to: The unit to convert to.

    Examples:
        >>> convert_length(1000, "miles")
        0.621
    """
    per_meter = {"feet": 3.28084, "inches": 39.3701, "miles": 0.000621371}
    return round(value * per_meter[to], 3)
`,
  },
  {
    title: "Progress and log",
    source: `import time

from toolkiln import Context, tool


@tool(read_only=True)
def count_slowly(to: int, ctx: Context) -> str:
    """Count up to a number, a tenth of a second for each step, and report the progress.

    Args:
        to: The last number, at most 50.
    """
    last = min(to, 50)
    for number in range(1, last + 1):
        ctx.report_progress(number, last, f"at {number}")
        time.sleep(0.1)
    ctx.log("finished counting")
    return f"counted to {last}"
`,
  },
  {
    title: "A group of tools",
    source: `from toolkiln import tool_metadata


@tool_metadata(display_name="Texts", icon="type")
class Texts:
    """Work with short texts."""

    def count_words(self, text: str) -> int:
        """Count the words of a text, separated by white space.

        Args:
            text: The text.
        """
        return len(text.split())

    def shorten_text(self, text: str, length: int = 80) -> str:
        """Shorten a text at a word boundary.

        Args:
            text: The text.
            length: The maximum number of characters.
        """
        if len(text) <= length:
            return text
        return text[: length - 1].rsplit(" ", 1)[0] + "…"
`,
  },
];
