"""How all tests run: how hard hypothesis tries, and what keeps a run from wasting time.

The usual run repeats the same examples, so that it says the same of the same code twice;
`make thorough` looks for new ones.
"""

import gc
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from properties import THOROUGH, USUAL

# Shells start what runs in the background with Ctrl-C ignored, and children inherit that:
# without this, commands that tests interrupt would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says nothing on a busy machine; speed belongs to `bench/`.
settings.register_profile(
    "usual", max_examples=USUAL, deadline=None, print_blob=True, derandomize=True
)
settings.register_profile(
    "thorough", settings.get_profile("usual"), max_examples=THOROUGH, derandomize=False
)
settings.load_profile("usual")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have all modules and tests, which stay to the end, looked through for garbage never again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the whole, the longest ones: short ones fill the end of a run."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.parent != here)
