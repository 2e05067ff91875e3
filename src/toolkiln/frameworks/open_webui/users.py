"""Stand-in for `open_webui.models.users`: the caller is the only user that a call knows."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from toolkiln.define import ToolError
from toolkiln.frameworks.open_webui import parameters
from toolkiln.frameworks.unavailable import Unavailable


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


class _Users(Unavailable):
    def get_user_by_id(self, id: str | None, *_: object, **__: object) -> UserModel:  # noqa: A002
        return self._caller("id", id)

    def get_user_by_email(self, email: str | None, *_: object, **__: object) -> UserModel:
        return self._caller("email", email)

    def _caller(self, field: str, value: str | None) -> UserModel:
        if value != parameters.user.get(field):
            raise ToolError(
                f"{self._name}.get_user_by_{field} is not available in the sandbox for other "
                "users than the caller"
            )
        return UserModel(**parameters.user)


Users = _Users("open_webui.models.users.Users")
