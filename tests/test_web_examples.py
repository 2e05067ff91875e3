"""The examples for web frameworks: served as they are, and called by fifty threads at once."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from operations.test_exit import not_ended, opened_below

FOLDER = Path(__file__).parent.parent / "examples"
BOUND = 120.0
AFTER = {"after": "2026-11-13T10:00:00"}
SERVERS = {
    "fastapi_app": ["uvicorn", "fastapi_app:app", "--port=0"],
    "flask_app": ["flask", "--app=flask_app", "run", "--port=0"],
}


@contextmanager
def serving(folder: Path, example: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address of an example on a free port, and its process."""
    copied = folder / "examples"
    shutil.copytree(
        FOLDER, copied, ignore=shutil.ignore_patterns(".toolkiln", "_manifest.json", "__pycache__")
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TOOLKILN_")}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", *SERVERS[example]],
        cwd=copied, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    output = ""
    while not (found := re.search(r"http://127\.0\.0\.1:\d+", output)):
        line = process.stdout.readline()
        assert line, output
        output += line
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(process.stdout.read)
        try:
            yield found[0], process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(BOUND)
            lines = rest.result(BOUND).splitlines()
            print("\n".join(line for line in lines if '" 200 ' not in line)[-4000:])
            process.stdout.close()


@pytest.mark.parametrize("example", SERVERS)
def test_fifty_threads_make_twenty_requests_each_and_a_wrong_one_is_422(
    tmp_path: Path, example: str
) -> None:
    def work(thread: int) -> list[str]:
        """What the requests of one thread answered wrongly."""
        wrong: list[str] = []
        with httpx2.Client(base_url=url, timeout=BOUND, trust_env=False) as client:
            for number in range(10):
                value = thread * 10 + number
                given = {"value": str(value), "source": "km", "target": "m"}
                converted = client.get("/convert", params=given)
                if converted.status_code != 200 or converted.json() != value * 1000:
                    wrong.append(converted.text)
                given = AFTER | {"expression": f"{value % 60} * * * *"}
                explained = client.get("/cron", params=given)
                if explained.status_code != 200 or "explanation" not in explained.text:
                    wrong.append(explained.text)
        return wrong

    with serving(tmp_path, example) as (url, process), ThreadPoolExecutor(50) as pool:
        wrong = [one for answers in pool.map(work, range(50)) for one in answers]
        given = {"value": "1", "source": "mi", "target": "parsec"}
        refused = httpx2.get(f"{url}/convert", params=given, timeout=BOUND, trust_env=False)
        below = opened_below(process.pid)

    assert wrong == []
    assert refused.status_code == 422
    assert "'parsec' is not one of" in refused.text
    assert below
    assert not_ended(below) == set()
