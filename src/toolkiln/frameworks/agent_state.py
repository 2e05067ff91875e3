"""The state of an agent as Letta's tools use it, and stand-in for `letta.schemas.agent`.

Plain data: `runtime.context` creates it for a call and returns what the call changed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    State = dict[str, Any]
else:
    State = dict


class AgentState(State):
    """A JSON object whose members are attributes too, unless `dict` has a method of that name."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__({name: _copied(value) for name, value in members.items()})

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the agent's state has no {name!r}")
        value = self[name]
        if type(value) is dict:
            value = self[name] = AgentState(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if self.pop(name, self) is self:
            raise AttributeError(f"the agent's state has no {name!r}")

    def get_blocks(self) -> list[Any]:
        """Return the blocks of a memory."""
        blocks: list[Any] = self.__getattr__("blocks")
        return blocks

    def list_block_labels(self) -> list[str]:
        """Return the labels of a memory's blocks."""
        return [block["label"] for block in self.get_blocks()]

    def get_block(self, label: str) -> Any:
        """Return a block of a memory; raises KeyError if there is none with this label."""
        for block in self.get_blocks():
            if block["label"] == label:
                return block
        raise KeyError(f"the memory has no block {label!r}, only {self.list_block_labels()}")

    def set_block(self, block: Mapping[str, Any]) -> None:
        """Add a block to a memory, or replace the one with its label."""
        others = [other for other in self.get_blocks() if other["label"] != block["label"]]
        self["blocks"] = [*others, AgentState(block)]

    def update_block_value(self, label: str, value: str) -> None:
        """Replace the text of a block of a memory."""
        if not isinstance(value, str):
            raise TypeError("the value of a block is a string")
        self.get_block(label)["value"] = value


def _copied(value: Any) -> Any:
    if type(value) is list:
        return [*map(_copied, value)]
    return AgentState(value) if type(value) is dict else value
