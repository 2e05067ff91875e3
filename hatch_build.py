"""The build hook: no sdist and no wheel without the page's bundle.

`make web` creates the bundle from npm packages, and git does not track it. An editable install
reads the files where they are, so it may come before `make web`.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUNDLE = "src/toolkiln/surfaces/web/static/vendor"


class BundleCheck(BuildHookInterface[Any]):
    """Stops a build whose bundle is not the one that `web/hashes.json` describes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Check the bundle, except for an editable install."""
        if version == "editable":
            return
        root = Path(self.root)
        hashes = json.loads((root / "web/hashes.json").read_text("utf-8"))
        files = {name: root / _BUNDLE / name for name in hashes}
        if missing := [name for name, file in files.items() if not file.is_file()]:
            self._stop("missing", missing)
        found = {name: sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
        if outdated := [name for name in hashes if found[name] != hashes[name]]:
            self._stop("out of date", outdated)

    def _stop(self, what: str, names: list[str]) -> None:
        listed = ", ".join(names)
        self.app.abort(f"the page's bundle is {what} ({listed}): run `make web` first (needs npm)")
