"""Reading a tool file, against parsing it; checking 10,000 files in one process."""

import ast
import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from bench.timing import Figure, at_most, ratio
from toolkiln.catalog.reports import check
from toolkiln.spec.reader import read

EXAMPLES = Path(__file__).parent.parent / "examples" / "tools"
FILES = 10_000
_PLAIN = '''
def word_count(text: str, ignore_case: bool = True, top: int = 10) -> dict[str, int]:
    """Count how often each word occurs in a text.

    Args:
        text: The text to look at.
        ignore_case: Whether upper and lower case count as the same.
        top: How many words to return at most.

    Returns:
        The words with their counts, most frequent first.
    """
    words = text.lower().split() if ignore_case else text.split()
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return dict(ranked[:top])
'''
_NETWORK = "import httpx\nfrom toolkiln import tool\n\n" + _PLAIN.replace(
    "\ndef ", '\n@tool(network=["api.example.com"])\ndef '
)


def figures() -> Iterator[Figure]:
    """Every example on its own, then ten thousand files."""
    sources = {path: path.read_text("utf-8") for path in sorted(EXAMPLES.glob("[!_]*.py"))}
    ratios = {
        path.stem: ratio(partial(read, text, path), partial(_parse, _texts(text, path)), rounds=100)
        for path, text in sources.items()
    }
    for name, text in (("a plain function", _PLAIN), ("one with a network import", _NETWORK)):
        measured = ratio(partial(read, text, EXAMPLES / "x.py"), partial(ast.parse, text))
        yield at_most(f"read {name} / ast.parse", measured, 5)
    for name, measured in ratios.items():
        yield at_most(f"read `{name}` / ast.parse", measured, 5)
    yield at_most("read, median of the examples / ast.parse", median(ratios.values()), 5)
    yield _flat_memory()


def _texts(text: str, path: Path) -> list[str]:
    """The text of a file and of the helpers that are read with it."""
    helpers = read(text, path).helpers
    return [text, *((path.parent / helper).read_text("utf-8") for helper in helpers)]


def _parse(texts: list[str]) -> None:
    for text in texts:
        ast.parse(text)


def _flat_memory() -> Figure:
    """The growth of live memory between the 2,000th file and the last, each its own tool."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            text = _PLAIN.replace("word_count", f"word_count_{number}")
            Path(folder, f"tool_{number}.py").write_text(text, "utf-8")
        reports = check([Path(folder)])
        tracemalloc.start()
        for _ in islice(reports, 2_000):
            pass
        early, _ = tracemalloc.get_traced_memory()
        for _ in islice(reports, FILES - 2_001):  # one left, so that the walk holds the same
            pass
        late, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    grown = (late - early) / (FILES - 2_000)
    return Figure(
        f"check of {FILES:,} files: growth per file",
        f"{grown:.0f} bytes",
        "≤ 100 bytes",
        grown <= 100,
    )
