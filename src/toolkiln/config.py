"""Settings: `toolkiln.toml`, overridden by `TOOLKILN_*` variables. The only reader of either."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from toolkiln.errors import ConfigError, nearest_hint

FILE_NAME = "toolkiln.toml"
_PREFIX = "TOOLKILN_"


@dataclass(frozen=True)
class Settings:
    """What an operator can set."""

    tools: Path = Path("tools")
    """The file or folder that holds the tools."""


def load(folder: Path, environ: Mapping[str, str]) -> Settings:
    """The settings for work in `folder`.

    Raises:
        ConfigError: the file cannot be parsed, or sets something that does not exist.
    """
    file = folder / FILE_NAME
    known = {field.name for field in fields(Settings)}
    values = {name: (value, str(file)) for name, value in _table(file).items()}
    for name in values:
        if name not in known:
            hint = nearest_hint(name, known) or f"known settings: {', '.join(sorted(known))}"
            raise ConfigError(f"{file}: there is no setting {name!r}", hint=hint)
    for name in known:
        variable = _PREFIX + name.upper()
        if variable in environ:
            values[name] = (environ[variable], variable)
    tools, origin = values.get("tools", (str(Settings.tools), ""))
    if not isinstance(tools, str) or not tools or "\0" in tools:
        raise ConfigError(f"{origin}: tools is {tools!r}, not a path", hint='write tools = "tools"')
    return Settings(tools=folder / tools)


def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="correct the file") from error
