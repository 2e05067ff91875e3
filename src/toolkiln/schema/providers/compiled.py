"""What a compiler hands back: a payload for a provider and the way back from it.

Values only. `losses` are constraints that a provider does not enforce for us any more;
`errors` are reasons why the provider would refuse the tool altogether.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Loss(NamedTuple):
    """A constraint that the payload states in words at best."""

    path: str
    """JSON pointer into the parameters."""
    keyword: str
    reason: str


class Gap(NamedTuple):
    """A place where a provider cannot hold a model to the schema."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """One tool in the form that one provider wants."""

    payload: dict[str, Any]
    """An element of the provider's list of tools."""
    losses: tuple[Loss, ...]
    errors: tuple[str, ...]
    decode: Callable[[dict[str, Any]], dict[str, Any]]
    """From the arguments that a model sent to the tool's own; never raises."""
    encode: Callable[[dict[str, Any]], dict[str, Any]]
    """From the tool's own arguments to those that a model would send."""
