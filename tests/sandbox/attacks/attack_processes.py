"""Processes that multiply, hide, outlive or hurt others."""
# mypy: ignore-errors

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from trying import run_on, tried

from toolkiln import tool


@tool(timeout=5, processes=16)
def fork_for_ever() -> int:
    """Fork until it is refused."""
    while True:
        if os.fork() == 0:
            signal.pause()


@tool(timeout=5, processes=16)
def fork_bomb() -> int:
    """Fork, everybody, whatever happens."""
    while True:
        tried(os.fork)


@tool(timeout=5, processes=16)
def threads_for_ever() -> int:
    """Start threads until it is refused."""
    while True:
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()


@tool
def leave_daemon(marker: str) -> str:
    """Leave a process that is in no way ours any more."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            run_on(marker)
        os._exit(0)
    return "left"


@tool
def leave_many(marker: str) -> str:
    """Leave a crowd."""
    for _ in range(10):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            run_on(marker)
    return "left"


@tool(timeout=1)
def forget_parent(marker: str) -> str:
    """Undo dying with the parent."""
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    run_on(marker)
    return "never"


@tool(timeout=1)
def change_thread(marker: str) -> str:
    """Become a program from another thread, whose death no parent signals."""
    threading.Thread(target=run_on, args=(marker,)).start()
    time.sleep(60)
    return "never"


@tool(timeout=1, processes=8)
def rise_again(name: str) -> str:
    """Be a new process all the time, so that it is hard to kill."""
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, ctypes.c_char_p(name.encode()), 0, 0, 0)
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
    return "left"


@tool(timeout=1)
def ignore_signals() -> str:
    """Be deaf."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        tried(lambda: signal.signal(number, signal.SIG_IGN))
    while True:
        time.sleep(1)


@tool(timeout=1)
def kill_all(number: int) -> str:
    """Kill whatever can be killed."""
    return tried(lambda: os.kill(-1, number))


@tool(timeout=1)
def kill_one(pid: int, number: int) -> str:
    """Send a signal to a process."""
    return tried(lambda: os.kill(pid or os.getppid(), number))


@tool(timeout=1)
def kill_group(number: int) -> str:
    """Send a signal to one's own group."""
    signal.signal(number, signal.SIG_IGN)
    return tried(lambda: os.killpg(0, number))


@tool
def endless_thread() -> int:
    """Return while a thread goes on."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    return 1


@tool
def hanging_exit() -> int:
    """Return, and hang when the process ends."""
    atexit.register(time.sleep, 60)
    return 1


@tool
def shell(script: str) -> list[str | int]:
    """Run a shell."""
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    return [done.returncode, done.stdout]


@tool
def fresh_python(secret: str) -> str:
    """Run another Python, which knows nothing of the runtime."""
    code = f"""
import socket
for attempt in (lambda: open({secret!r}), lambda: open("/etc/passwd"), socket.socket):
    try: attempt(); print("done")
    except OSError: print("no")
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout


@tool
def identities() -> dict[str, str]:
    """Try to become another user."""
    return {
        "uid": tried(lambda: os.setuid(0)),
        "gid": tried(lambda: os.setgid(0)),
        "groups": tried(lambda: os.setgroups([0])),
        "nice": tried(lambda: os.nice(-10)),
        "own priority": tried(lambda: os.setpriority(os.PRIO_USER, 0, 19)),
        "hostname": tried(lambda: __import__("socket").sethostname("x")),
    }


@tool
def raise_limits() -> dict[str, str]:
    """Raise one's own limits."""
    import resource

    outcomes = {}
    for name in ("AS", "CPU", "FSIZE", "NPROC", "NOFILE", "CORE", "MEMLOCK", "MSGQUEUE"):
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        try:
            resource.setrlimit(number, (hard + 1, hard + 1))
            outcomes[name] = "done"
        except (OSError, ValueError):
            outcomes[name] = "no"
    return outcomes


@tool(timeout=1)
def die_by(number: int) -> int:
    """Kill oneself."""
    os.kill(os.getpid(), number)
    signal.raise_signal(number)
    return os.getpid()


@tool(timeout=60)
def run_on_and_wait(marker: str) -> str:
    """Start a program and wait for it."""
    if os.fork() == 0:
        run_on(marker)
    os.wait()
    return "never"
