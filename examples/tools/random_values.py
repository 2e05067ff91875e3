"""A toolkit: one class, one group in listings, a tool for each marked method."""

import math
import secrets
import string
import time
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from pydantic import Field

from toolkiln import method_metadata, openapi_schema, tool_metadata

_ALPHABETS = {
    "letters": string.ascii_letters,
    "digits": string.digits,
    "symbols": "!#$%&*+-=?@^_",
}


@tool_metadata(
    description="Draws passwords, identifiers and lots from the system's random source.",
    icon="dices",
    color="violet",
    weight=50,
    visible=True,
)
class RandomValuesTool:
    """Draws passwords, identifiers and lots from the system's random source."""

    @method_metadata(display_name="Password")
    def generate_password(
        self,
        length: Annotated[int, Field(ge=8, le=128)] = 20,
        characters: frozenset[Literal["letters", "digits", "symbols"]] = frozenset(
            {"letters", "digits"}
        ),
    ) -> str:
        """Make up a password that holds every kind of character asked for.

        Args:
            length: How many characters it has.
            characters: The kinds of characters to draw from.

        Returns:
            The password.

        Examples:
            >>> password = RandomValuesTool().generate_password(12)
            >>> len(password), password.isalnum()
            (12, True)
        """
        kinds = [_ALPHABETS[kind] for kind in sorted(characters)] or [string.ascii_letters]
        alphabet = "".join(kinds)
        while True:
            password = "".join(secrets.choice(alphabet) for _ in range(length))
            if all(set(kind) & set(password) for kind in kinds):
                return password

    @method_metadata(display_name="UUID")
    async def generate_uuids(
        self, count: Annotated[int, Field(ge=1, le=100)] = 1, version: Literal[4, 7] = 4
    ) -> list[UUID]:
        """Generate unique identifiers.

        Args:
            count: How many to make.
            version: 4 is random throughout, 7 sorts by the time it was made.

        Returns:
            The identifiers.

        Examples:
            >>> import asyncio
            >>> ids = asyncio.run(RandomValuesTool().generate_uuids(2, version=7))
            >>> [item.version for item in ids], ids == sorted(ids)
            ([7, 7], True)
        """
        made = [uuid4() if version == 4 else _uuid7() for _ in range(count)]
        return made if version == 4 else sorted(made)

    @openapi_schema(
        {
            "name": "draw_lots",
            "description": "Pick some of several choices at random, each at most once.",
            "parameters": {
                "type": "object",
                "properties": {
                    "choices": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "description": "What to choose from.",
                    },
                    "count": {
                        "type": "integer",
                        "minimum": 1,
                        "default": 1,
                        "description": "How many to pick.",
                    },
                },
                "required": ["choices"],
                "additionalProperties": False,
            },
        }
    )
    def draw(self, choices: list[str], count: int = 1) -> dict[str, Any]:
        """Pick some of several choices at random, each at most once.

        Returns:
            What was picked, and how many ways there were to pick.

        Examples:
            >>> result = RandomValuesTool().draw(["a", "b", "c"], count=2)
            >>> len(result["picked"]), result["ways"]
            (2, 3)
        """
        count = min(count, len(choices))
        picked = secrets.SystemRandom().sample(choices, count)
        return {"picked": picked, "ways": math.comb(len(choices), count)}


def _uuid7() -> UUID:
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | secrets.randbits(80)
    value = value & ~(0xF << 76) | (7 << 76)
    return UUID(int=value & ~(0x3 << 62) | (0x2 << 62))
