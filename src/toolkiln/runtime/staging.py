"""Root's way into bwrap: bind what it needs to where an unprivileged user can reach it.

Runs outside of any sandbox, as a short program of its own that becomes bwrap. In a mount
namespace that nobody else sees, a small file system takes the place of /mnt, and the
folders that bwrap is to show are bound there; the host does not change. Then it becomes
another user, for whom limits hold.
"""

from __future__ import annotations

import os
import stat
import sys

from toolkiln.runtime import linux, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_STAGE = "/mnt"


def main() -> NoReturn:
    """The program: its argument says what to bind, whom to become and what to run."""
    order = wire.decode(sys.argv[1])
    try:
        _stage(order["sources"])
        os.setgroups([])
        os.setresgid(order["user"], order["user"], order["user"])
        os.setresuid(order["user"], order["user"], order["user"])
        os.execve(order["command"][0], order["command"], {})
    except OSError as error:
        os.write(2, f"toolkiln: the folders cannot be staged: {error}\n".encode())
    os._exit(119)


def _stage(sources: list[str]) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    # Opened first: one of them may lie below the stage itself.
    descriptors = [os.open(source, os.O_PATH) for source in sources]
    linux.mount("tmpfs", _STAGE, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=755")
    for number, descriptor in enumerate(descriptors):
        target = f"{_STAGE}/{number}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        source = f"/proc/self/fd/{descriptor}"
        linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
        os.close(descriptor)
