"""A folder that outlives the call, and what could be left in it."""
# mypy: ignore-errors

import os
import time

from trying import tried

from toolkiln import tool

FOLDER = "/workspace"


@tool(workspace="write", timeout=10)
def keep_bytes(megabytes: int) -> str:
    """Write more than the quota, and wait to be seen."""
    with open(f"{FOLDER}/large", "wb") as file:
        for _ in range(megabytes):
            file.write(bytes(1 << 20))
    time.sleep(9)
    return "kept"


@tool(workspace="write", timeout=10)
def keep_files(count: int) -> str:
    """Make more files than the quota, and wait to be seen."""
    for number in range(count):
        os.mkdir(f"{FOLDER}/{number}")
    time.sleep(9)
    return "kept"


@tool(workspace="write")
def keep_traps(secret: str) -> dict[str, str]:
    """Leave links and special files for the next who looks."""
    os.chdir(FOLDER)
    return {
        "link": tried(lambda: os.symlink(secret, "link")),
        "link up": tried(lambda: os.symlink("../../..", "up")),
        "pipe": tried(lambda: os.mkfifo("pipe")),
        "device": tried(lambda: os.mknod("device", 0o020600, os.makedev(1, 1))),
        "set user": tried(lambda: os.close(os.open("program", os.O_CREAT, 0o4755))),
        "hard link": tried(lambda: os.link("/tool/attack_workspace.py", "tool")),
    }


@tool(workspace="write")
def keep_note(text: str) -> str:
    """Leave a note for the same session."""
    return tried(lambda: open(f"{FOLDER}/note", "w").write(text))


@tool(workspace="read")
def look_around() -> dict[str, object]:
    """What is there, and what can be done with it."""
    return {
        "names": sorted(os.listdir(FOLDER)),
        "write": tried(lambda: open(f"{FOLDER}/new", "w")),
        "remove": tried(lambda: os.unlink(f"{FOLDER}/note")),
        "overwrite": tried(lambda: open(f"{FOLDER}/note", "w")),
        "move": tried(lambda: os.rename(f"{FOLDER}/note", f"{FOLDER}/moved")),
        "make": tried(lambda: os.mkdir(f"{FOLDER}/folder")),
        "change": tried(lambda: os.chmod(f"{FOLDER}/note", 0)),
        "through link": tried(lambda: open(f"{FOLDER}/link")),
        "above": tried(lambda: os.listdir(f"{FOLDER}/../kiln")),
    }
