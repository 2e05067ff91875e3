"""A private PostgreSQL server that ends with the tests."""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

_PLACES = ["/usr/local/bin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1])]


def _server_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if any(user.pw_name == "postgres" for user in pwd.getpwall()) else "nobody"


def _die_with_the_tests() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)


@contextmanager
def postgres_server(folder: str, *, port: int | None = None) -> Iterator[str]:
    """Run a server with its data in a folder and give its URL.

    It listens on a socket in the folder, and with `port` on loopback as well.
    """
    search = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    initdb, postgres = shutil.which("initdb", path=search), shutil.which("postgres", path=search)
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server: install Debian's `postgresql` package")
    user = _server_user()
    if user:
        shutil.chown(folder, user)
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
    data, log = f"{folder}/data", Path(folder, "log")
    flags = ["--username=toolkiln", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
    made = subprocess.run(
        [initdb, "-D", data, *flags], env=environ, cwd=folder, capture_output=True, user=user
    )
    assert made.returncode == 0, made.stderr.decode()
    addresses = "127.0.0.1" if port else ""
    options = ["-k", folder, "-c", f"listen_addresses={addresses}", "-c", "fsync=off"]
    options += ["-p", str(port)] if port else []
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [postgres, "-D", data, *options],
            env=environ,
            cwd=folder,
            stdout=output,
            stderr=output,
            preexec_fn=_die_with_the_tests,
            user=user,
        ) as process,
    ):
        try:
            url = f"postgresql://toolkiln@/postgres?host={quote(folder)}"
            url += f"&port={port}" if port else ""
            _wait_until_ready(url, process, log)
            yield url
        finally:
            process.send_signal(signal.SIGQUIT)


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(600):
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
        else:
            return
    raise AssertionError(log.read_text())
