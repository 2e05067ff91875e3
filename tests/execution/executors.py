"""Executors of a sandbox mode, and tools imported into this process. Not a test itself."""

import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from toolkiln.execution.executor import Executor
from toolkiln.sandbox.executor import SandboxExecutor
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.sandbox import make_launcher, try_mode


@asynccontextmanager
async def sandbox_executor(state: Path, *modes: str) -> AsyncIterator[Executor]:
    """Open an executor of the first mode that works; skip the test where none does."""
    for mode in modes:
        trial = await try_mode(mode, state)
        if trial.works:
            break
    else:
        pytest.skip(trial.reason)
    executor = SandboxExecutor(make_launcher(mode, state), state, Networks())
    yield executor
    await executor.close()


@contextmanager
def imported(file: Path, source: str) -> Iterator[ModuleType]:
    """Write a module, and import it for as long as the block runs."""
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[file.stem]
