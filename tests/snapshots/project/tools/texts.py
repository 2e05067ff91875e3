"""A prompt, a resource, and a tool with a long output."""

from toolkiln import prompt, resource, tool


@prompt
def review(topic: str) -> str:
    """Ask for a review.

    Args:
        topic: The topic of the review.
    """
    return f"Review {topic}."


@resource("texts://chapter/{number}")
def chapter(number: int) -> str:
    """Read a chapter.

    Args:
        number: The number of the chapter.
    """
    return f"Chapter {number}"


@tool(read_only=True, parallel=True)
def lorem(words: int) -> str:
    """Write a long text.

    Args:
        words: The number of words.
    """
    return " ".join(f"word{number}" for number in range(words))
