# /// script
# requires-python = ">=3.11"
#
# [tool.toolkiln]
# workspace = "write"
# destructive = true
# ///
"""A `BaseTool` that works on the session's files and asks a person before it changes any.

A class cannot carry `@tool`, so that its rights stand in the PEP 723 block.
"""

import re
from pathlib import Path
from typing import Any

from toolkiln import BaseTool, OutputKind, ToolResult


class RenameFilesTool(BaseTool):
    r"""Rename the files of the workspace whose names match a regular expression.

    Without `apply` it only returns what it would do. It never overwrites a file.

    Args:
        pattern (str): The regular expression that a file's whole name has to match.
        replacement (str): The name to give, with `\1` for the first group.
        apply (bool, optional): Whether to rename rather than to tell. Defaults to False.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> tool = RenameFilesTool()
        >>> with TemporaryDirectory() as folder:
        ...     tool.workspace = Path(folder)
        ...     _ = (tool.workspace / "IMG_7.JPG").write_text("")
        ...     result = tool.execute({"pattern": r"IMG_(\d)\.JPG", "replacement": r"\1.jpg"})
        >>> result.stdout
        'IMG_7.JPG -> 7.jpg'
        >>> tool.needs_permission({"pattern": "x", "replacement": "y", "apply": True})
        True
    """

    name = "rename_files"
    description = "Rename files of the workspace by a regular expression, or show what would be."
    output_semantic_type = OutputKind.STATUS
    workspace = Path("/workspace")

    def execute(self, args: dict[str, Any]) -> ToolResult:
        pattern = re.compile(args["pattern"])
        files = sorted(path for path in self.workspace.iterdir() if path.is_file())
        moves = {
            path: path.with_name(match.expand(args["replacement"]))
            for path in files
            if (match := pattern.fullmatch(path.name))
        }
        targets = list(moves.values())
        taken = [target.name for target in targets if target.exists() or targets.count(target) > 1]
        if taken:
            return ToolResult(ok=False, stderr=f"names taken: {', '.join(sorted(set(taken)))}")
        if args.get("apply", False):
            for path, target in moves.items():
                path.rename(target)
        lines = [f"{path.name} -> {target.name}" for path, target in moves.items()]
        return ToolResult(ok=True, stdout="\n".join(lines), meta={"files": len(moves)})

    def validate_args(self, args: dict[str, Any]) -> tuple[bool, str]:
        try:
            re.compile(args["pattern"])
        except re.error as error:
            return False, f"pattern: {error}"
        if "/" in args["replacement"]:
            return False, "replacement: a name, not a path"
        return True, ""

    def needs_permission(self, args: dict[str, Any]) -> bool:
        return bool(args.get("apply", False))
