"""Stand-in for Open WebUI's users and uploads.

The caller is the only user that a call knows. An uploaded file goes to the caller.
"""

from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from toolkiln.define import ToolError
from toolkiln.frameworks.open_webui import parameters
from toolkiln.frameworks.unavailable import Unavailable


class _Model(BaseModel):
    """A value that can be awaited: Open WebUI's functions are asynchronous in some versions."""

    model_config = ConfigDict(extra="allow")

    def __await__(self) -> Any:
        yield from ()
        return self


class UserModel(_Model):
    """A user; fields that a call does not know are None."""

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


class FileModel(_Model):
    """A file that was uploaded."""

    id: str
    filename: str
    meta: dict[str, Any] = {}


def upload_file_handler(request: object, file: Any, *_: object, **__: object) -> FileModel:  # noqa: ARG001
    """Send a file to the caller."""
    name = file.filename or "file"
    body = file.file.read()
    parameters.send_bytes(name, body)
    meta = {"name": name, "content_type": file.content_type, "size": len(body)}
    return FileModel(id=uuid4().hex, filename=name, meta=meta)
