"""Canary: a tool that reports what it can access, run to verify that the sandbox works."""

import os


def look(secret: str) -> dict[str, object]:
    """Report what this process can see and do."""
    with open("/proc/self/status", "rb") as file:
        lines = file.read().decode().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {
        "capabilities": int(status["CapEff"], 16),
        "no_new_privileges": status["NoNewPrivs"] == "1",
        "seccomp": status["Seccomp"] == "2",
        "user": os.getuid(),
        "sees_host_files": _can(lambda: os.stat(secret)),
        "reads_host_files": _can(lambda: os.close(os.open(secret, os.O_RDONLY))),
        "lists_home": _can(lambda: os.listdir("/home")) or _can(lambda: os.listdir("/root")),
        "writes_usr": _can(lambda: os.mkdir("/usr/toolkiln-canary")),
        "writes_itself": _can(lambda: os.rename(__file__, __file__ + ".old")),
        "opens_sockets": _can(_open_socket),
        "exceeds_process_limit": _exceeds_process_limit(),
        "sees_processes": sum(name.isdigit() for name in _names("/proc")),
        "namespaces": {name: _link(f"/proc/self/ns/{name}") for name in _NAMESPACES},
        "environment": sorted(os.environ),
        "host_name": os.uname().nodename,
        "sees_other_processes": os.getppid() > 1 and _can(lambda: os.getpgid(os.getppid())),
        "reads_usr": _can(lambda: os.listdir("/usr/lib")),
        "sees_load": _can(os.getloadavg),
    }


def reach(host: str, ports: list[int]) -> list[int]:
    """Return the ports of a granted host that accept plain sockets."""
    import socket

    accepted = []
    for port in ports:
        try:
            socket.create_connection((host, port), 5).close()
        except ConnectionResetError:
            pass  # accepted; the proxy found no host
        except OSError:
            continue
        accepted.append(port)
    return accepted


_NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")


def _can(attempt: object) -> bool:
    try:
        attempt()  # type: ignore[operator]
    except OSError:
        return False
    return True


def _open_socket() -> None:
    import socket

    socket.socket(socket.AF_INET).close()


def _exceeds_process_limit() -> bool:
    """Return whether a process limit of 0 still allows a fork: it does for the host's root."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
    try:
        pid = os.fork()
    except OSError:
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
