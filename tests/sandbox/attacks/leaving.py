"""What a call may try to hand to the next one, and how it would be noticed."""
# mypy: ignore-errors

import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from trying import run_on, tried

IMPORTED = time.time()
TOKEN = os.urandom(8).hex()
KEPT: list[str] = []


def leave(marker: str) -> str:
    """Leave traces wherever there is room."""
    KEPT.append("here")
    for folder in (os.environ["TMPDIR"], "/dev/shm"):
        tried(lambda: open(f"{folder}/left", "w").close())
        tried(lambda: os.makedirs(f"{folder}/folder/inner", 0o000))
    os.environ["LEFT"] = "here"
    json.kept = "here"
    sys.path.insert(0, "/left")
    sys.modules["left"] = sys
    os.umask(0)
    os.chdir("/usr")
    os.nice(5)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            run_on(marker)
    return "left"


def look(since: float) -> dict[str, Any]:
    """What there is to be seen of earlier calls."""
    mask = os.umask(0o22)
    folders = [os.environ["TMPDIR"], "/dev/shm"]
    return {
        "kept": KEPT,
        "files": [os.listdir(folder) for folder in folders if os.path.isdir(folder)],
        "variable": os.environ.get("LEFT"),
        "patch": getattr(json, "kept", None),
        "path": "/left" in sys.path,
        "module": "left" in sys.modules,
        "mask": mask == 0,
        "folder": os.getcwd() == "/usr",
        "nice": os.nice(0),
        "signal": signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN,
        "threads": threading.active_count(),
        "sleepers": sum(_is_sleeper(pid) for pid in filter(str.isdigit, os.listdir("/proc"))),
        "random": random.random(),
        "warm": since > IMPORTED,
        "token": TOKEN,
    }


def _is_sleeper(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            return name.read() == b"sleep\n"
    except OSError:
        return False
