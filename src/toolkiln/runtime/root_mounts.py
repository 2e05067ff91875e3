"""Program that makes files of root available to an unprivileged bwrap.

Runs outside the sandbox, started by root if bwrap's bind sources are below folders closed to
other users. In a private mount namespace it covers /mnt with a tmpfs, binds the sources there,
drops to the sandbox user, for whom process limits apply, and executes bwrap.
"""

from __future__ import annotations

import os
import stat
import sys

from toolkiln.runtime import linux, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the program; its argument is JSON with `sources`, `user` and `command`."""
    settings = wire.decode(sys.argv[1])
    user, command = settings["user"], settings["command"]
    try:
        _bind(settings["sources"])
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        os.execve(command[0], command, {})
    except OSError as error:
        os.write(2, f"toolkiln: cannot bind the sandbox's folders: {error}\n".encode())
    os._exit(wire.SETUP_FAILED)


def _bind(sources: list[str]) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    # Open all of them first: one may be below /mnt itself.
    descriptors = [os.open(source, os.O_PATH) for source in sources]
    linux.mount("tmpfs", "/mnt", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=755")
    for number, descriptor in enumerate(descriptors):
        target = f"/mnt/{number}"
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        source = f"/proc/self/fd/{descriptor}"
        linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)
        os.close(descriptor)
