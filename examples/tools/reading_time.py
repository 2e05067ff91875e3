"""
title: Reading time
author: the Toolkiln authors
description: Measures how long and how hard to read a text is.
version: 1.0.0
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, Field


class Tools:
    """A file as it is written for Open WebUI, read as it is."""

    class Valves(BaseModel):
        """What an operator sets."""

        words_per_minute: int = Field(default=230, ge=50, le=1000, description="Of a usual reader.")

    class UserValves(BaseModel):
        """What each user sets."""

        words_per_minute: int | None = Field(
            default=None, ge=50, le=1000, description="Your own speed."
        )

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def reading_time(
        self,
        text: str,
        __user__: dict[str, Any] | None = None,
        __event_emitter__: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
    ) -> str:
        """
        Tell how long it takes to read a text, at the speed of the user if it is known.

        :param text: The text to be read.
        :return: The number of words and the time.

        Examples:
            >>> import asyncio
            >>> asyncio.run(Tools().reading_time("word " * 460))
            '460 words, 2 min'
        """
        words = len(re.findall(r"\w+", text))
        own = getattr((__user__ or {}).get("valves"), "words_per_minute", None)
        minutes = max(1, round(words / (own or self.valves.words_per_minute)))
        if __event_emitter__ is not None:
            await __event_emitter__({"type": "status", "data": {"done": True}})
        return f"{words} words, {minutes} min"

    def readability(self, text: str) -> dict[str, float]:
        """
        Rate how easy an English text is to read, by Flesch's formula.

        :param text: The text to be rated; a few sentences at least.
        :return: The score, from about 0 (hard) to 100 (easy), and the averages behind it.

        Examples:
            >>> Tools().readability("It reads a program without running it. Nothing happens.")
            {'score': 70.7, 'words_per_sentence': 4.5, 'syllables_per_word': 1.56}
        """
        words = re.findall(r"[A-Za-z']+", text)
        if not words:
            return {"score": 0.0, "words_per_sentence": 0.0, "syllables_per_word": 0.0}
        length = len(words) / max(1, len(re.findall(r"[.!?]+", text)))
        syllables = sum(map(_syllables, words)) / len(words)
        return {
            "score": round(206.835 - 1.015 * length - 84.6 * syllables, 1),
            "words_per_sentence": round(length, 1),
            "syllables_per_word": round(syllables, 2),
        }


def _syllables(word: str) -> int:
    """Groups of vowels, a silent e at the end left out: an estimate."""
    found = len(re.findall(r"[aeiouy]+", re.sub(r"(?<=[a-z])e\b", "", word.lower())))
    return max(1, found)
