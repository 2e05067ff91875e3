"""Run one fuzz target for some seconds; the exit status is not 0 if it found a bug."""

import argparse
import importlib.util
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

HANG = 20
"""Seconds after which one input counts as endless."""


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", help="without one, the targets are listed")
    parser.add_argument("--seconds", type=int, default=600, help="how long (default: 600)")
    parser.add_argument("--hypothesis", action="store_true", help="do not use atheris")
    options = parser.parse_args()
    guided = not options.hypothesis and importlib.util.find_spec("atheris") is not None
    if guided and options.target:
        _run_atheris(options.target, options.seconds)
    from fuzz.targets import TARGETS

    if not options.target:
        print("\n".join(TARGETS))
    elif options.target not in TARGETS:
        parser.error(f"there is no target {options.target!r}, only {', '.join(TARGETS)}")
    else:
        _run_hypothesis(options.target, options.seconds)


def _run_hypothesis(name: str, seconds: int) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis.database import InMemoryExampleDatabase

    from fuzz.inputs import inputs
    from fuzz.targets import TARGETS

    target, tried = TARGETS[name], 0
    signal.signal(signal.SIGALRM, _hang)

    def check(data: bytes) -> None:
        nonlocal tried
        tried += 1
        signal.alarm(HANG)
        target.check(data)
        signal.alarm(0)

    options = settings(
        max_examples=2000, deadline=None, print_blob=True, database=InMemoryExampleDatabase(),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        options(given(inputs(target))(check))()
    print(f"{name}: {tried:,} inputs in {seconds} s, no bug")


def _hang(*_: object) -> NoReturn:
    raise TimeoutError(f"one input took more than {HANG} s")


def _run_atheris(name: str, seconds: int) -> NoReturn:
    """Hand over to libFuzzer, which ends the process; a bug is in the file that it names."""
    import atheris

    with atheris.instrument_imports(include=["toolkiln"]):
        from fuzz.targets import MAX_INPUT, TARGETS
    target, folder = TARGETS[name], Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    corpus, words = folder / "corpus", folder / "words"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(seed)
    escaped = ("".join(f"\\x{byte:02x}" for byte in word[:60]) for word in target.words)
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    limits = [f"-max_total_time={seconds}", f"-timeout={HANG}", f"-max_len={MAX_INPUT}"]
    files = [f"-artifact_prefix={folder}{os.sep}", f"-dict={words}", str(corpus)]
    atheris.Setup([sys.argv[0], *limits, *files], target.check)
    atheris.Fuzz()
    sys.exit(0)


if __name__ == "__main__":
    main()
