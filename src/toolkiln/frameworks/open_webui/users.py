"""Stand-in for `open_webui.models.users`: the caller is the only user that a call knows."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from toolkiln.define import ToolError
from toolkiln.frameworks.open_webui import parameters


class UserModel(BaseModel):
    """A user; fields that a call does not know are None."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    name: str | None = None
    email: str | None = None
    role: str = "user"
    username: str | None = None
    profile_image_url: str | None = None
    settings: Any = None
    info: Any = None
    oauth: Any = None
    last_active_at: int = 0
    updated_at: int = 0
    created_at: int = 0

    def __await__(self) -> Any:
        """Return the user: Open WebUI's functions are asynchronous in some versions only."""
        yield from ()
        return self


class Users:
    """The users of Open WebUI, of whom a call knows its caller."""

    @staticmethod
    def get_user_by_id(id: str | None, *_: object, **__: object) -> UserModel:  # noqa: A002
        """Return the caller.

        Raises:
            ToolError: the id is not the caller's.
        """
        if id != parameters.user.get("id"):
            raise ToolError(
                "Users.get_user_by_id is not available in the sandbox for other users than the "
                "caller"
            )
        return UserModel(**parameters.user)

    @staticmethod
    def get_user_by_email(email: str, *_: object, **__: object) -> UserModel:
        """Return the caller.

        Raises:
            ToolError: the address is not the caller's.
        """
        if not email or email != parameters.user.get("email"):
            raise ToolError(
                "Users.get_user_by_email is not available in the sandbox for other users than "
                "the caller"
            )
        return UserModel(**parameters.user)
