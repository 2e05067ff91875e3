"""Landlock: restricts the files that a process and its descendants may access.

A second layer behind the mount namespace; in mode C the only one for files. It blocks neither
stat and chmod nor connecting to Unix sockets; `seccomp` and the namespaces do that. `lockdown`
chooses the paths of a call.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from toolkiln.runtime import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR = 1 << 4, 1 << 5, 1 << 6, 1 << 7
_MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 8, 1 << 9, 1 << 10, 1 << 11
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 12, 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_READ = _READ_FILE | _READ_DIR
# Without device nodes and device ioctls, which no tool needs.
_WRITE = (
    _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK
    | _MAKE_FIFO | _MAKE_SYM | _REFER | _TRUNCATE
)  # fmt: skip

_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1


def abi() -> int:
    """Return the kernel's Landlock ABI version; 0 if Landlock is unavailable."""
    try:
        return linux.syscall("landlock", _CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(
    read: Sequence[str],
    write: Sequence[str],
    *,
    execute: Sequence[str] | None = None,
    network: bool,
) -> int:
    """Restrict this thread and its descendants to these paths; return the ABI version applied.

    Writable paths are readable too. Programs run from `execute`, by default from `read`, never
    from `write`. Missing paths are ignored. Without `network`, ABI 4 and later deny TCP; ABI 6
    and later also block signals and abstract sockets to processes outside.

    Call `linux.set_no_new_privs` first.

    Raises:
        OSError: nothing was restricted.
    """
    version = abi()
    if not version:
        raise OSError(errno.EOPNOTSUPP, "this kernel has no Landlock")
    files = _known_rights(version)
    tcp = _BIND_TCP | _CONNECT_TCP if version >= 4 and not network else 0
    scopes = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if version >= 6 else 0
    # Older kernels know fewer fields and accept the others if they are zero.
    attributes = struct.pack("=QQQ", files, tcp, scopes)
    ruleset = linux.syscall("landlock", _CREATE_RULESET, attributes, len(attributes), 0)
    try:
        executable = _EXECUTE if execute is None else 0
        for paths, rights in (
            (read, _READ | executable),
            (write, _WRITE),
            (execute or (), _READ | _EXECUTE),
        ):
            for path in paths:
                _allow(ruleset, path, rights & files)
        linux.syscall("landlock: restrict", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _known_rights(version: int) -> int:
    """Return the file rights of an ABI version: the kernel rejects rulesets with unknown ones."""
    rights = _MAKE_SYM * 2 - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        rights |= right if version >= since else 0
    return rights


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        linux.syscall(f"landlock: {path}", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
