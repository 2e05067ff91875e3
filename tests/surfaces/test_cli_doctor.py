"""`toolkiln doctor` and calls in a user namespace that maps one uid only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "toolkiln"]
ONE_UID = ["unshare", "--user", "--map-root-user"]
TOOL = '''
def add(left: int, right: int = 2) -> int:
    """Add two numbers, and return their sum.

    Args:
        left: The first.
        right: The second.
    """
    return left + right
'''
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes root of the host")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "add.py").write_text(TOOL)
    return tmp_path


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "TOOLKILN_STATE": str(folder / "state"), "TOOLKILN_DEV": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done


def test_doctor_explains_every_mode_in_a_namespace_with_one_uid(folder: Path) -> None:
    done = run(folder, *ONE_UID, *COMMAND, "doctor")

    assert done.stderr == ""
    assert "Errno 22" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("user ")] == [
        "user         root of a user namespace with a single user; calls run as the same user"
    ]
    assert done.stdout.count("\nmode ") == 3
    if os.geteuid() == 0:
        assert done.returncode == 1
        assert "mode B: no: failed layers: process limit" in done.stdout
        assert done.stdout.count("run Toolkiln as an ordinary user, or map uid") == 3
    else:
        assert done.returncode == 0
        assert "mode A: in use" in done.stdout


@AS_ROOT
def test_calls_are_refused_where_no_limit_on_processes_holds(folder: Path) -> None:
    outside = run(folder, *COMMAND, "call", "add", "left=1")

    inside = run(folder, *ONE_UID, *COMMAND, "call", "add", "left=1")

    assert (outside.returncode, outside.stdout) == (0, "3\n")
    assert (inside.returncode, inside.stdout) == (3, "")
    # The mode that was remembered outside does not count.
    assert inside.stderr.startswith("error: add: no sandbox works here (A: ")
    assert "B: failed layers: process limit" in inside.stderr
    assert "hint: run `toolkiln doctor` for details" in inside.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="as root, the attacks on an ordinary user's service")
def test_calls_run_in_the_full_sandbox_for_an_ordinary_user(folder: Path) -> None:
    done = run(folder, *ONE_UID, *COMMAND, "call", "--json", "add", "left=1")

    assert done.returncode == 0
    assert '"sandbox": "A"' in done.stdout
