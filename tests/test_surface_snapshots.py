"""What users, clients and stored files see changes only on purpose.

`scripts/surface_snapshot.py` takes the snapshots; `tests/snapshots` has them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "surface_snapshot.py"
GROUPS = (
    *("cli-catalog", "cli-search", "cli-security", "cli-tools", "errors", "fleet", "golden"),
    *("help", "old-state", "page", "server"),
)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the script."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("group", GROUPS)
def test_the_surface_is_as_the_snapshots_show_it(group: str) -> None:
    done = run(group)

    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_group_of_snapshots_is_compared() -> None:
    assert sorted(run("--list").stdout.split()) == sorted(GROUPS)


def test_snapshots_name_no_path_of_the_machine_that_took_them() -> None:
    files = [file for file in (ROOT / "tests" / "snapshots").rglob("*") if file.is_file()]

    texts = {file: file.read_text("utf-8") for file in files}

    assert not [file for file, text in texts.items() if "/tmp/" in text or str(ROOT) in text]
    assert sum(map(len, texts.values())) < 1_000_000
