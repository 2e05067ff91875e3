"""Finding tools: how well on the development queries, and what it costs.

The queries are not part of the repository: `TOOLKILN_BENCH_DATA` names the folder that holds
`retrieval/`, else `../shared/data` beside it is taken. Weights were searched for on the first
half of the queries. The second was looked at with every trial and settled some choices, so
that it guards against over-fitting but is no held-out set. Bounds are compared at two decimals.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one core is what is promised

import hashlib
import importlib
import inspect
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.timing import Figure
from toolkiln.search.bundled_embedder import BundledEmbedder
from toolkiln.search.documents import SearchDocument, parameter_texts
from toolkiln.search.evaluation import Case, evaluate
from toolkiln.search.index import SearchIndex

_DATA = Path(__file__).parents[1] / ".." / "shared" / "data"
_BOUNDS = {
    "metatool": (0.50, 0.76, 0.71),
    "bfcl": (0.67, 0.89, 0.82),
    "toolbench": (0.27, 0.62, 0.62),
    "sealtools": (0.44, 0.95, 0.96),
}
"""Recall@1, recall@5 and NDCG@10 that the measured prototype had on its test queries."""
_UNION_BOUND = (0.34, 0.62, 0.60)
_USAGE_BOUNDS = {5: (0.70, 0.87, 0.0), 20: (0.77, 0.93, 0.0)}
_MODULES = """argparse array ast asyncio base64 bisect calendar cmath codecs collections colorsys
concurrent.futures configparser contextlib csv ctypes datetime decimal difflib dis email enum
filecmp fileinput fractions ftplib functools gc glob gzip hashlib heapq hmac html http.client
imaplib inspect io ipaddress itertools json locale logging lzma mailbox math mimetypes mmap
multiprocessing operator os pathlib pickle platform plistlib poplib posixpath pprint queue random
re secrets selectors shelve shlex shutil signal smtplib socket sqlite3 ssl statistics string
struct subprocess tarfile tempfile textwrap threading time timeit tokenize trace types typing
unicodedata unittest urllib.parse urllib.request uuid warnings wave weakref xml.dom.minidom
xmlrpc.client zipfile zlib zoneinfo""".split()  # noqa: SIM905

Row = dict[str, Any]


def figures() -> Iterator[Figure]:
    """Quality on every set and on all of them together, then cost."""
    folder = Path(os.environ.get("TOOLKILN_BENCH_DATA", _DATA)) / "retrieval"
    embedder = BundledEmbedder()
    if folder.is_dir():
        yield from _quality(folder, embedder)
    else:
        yield Figure("search: quality", f"no data in {folder}", "see SEARCH.md", None)
    for count in (10_000, 100_000):
        yield from _cost(count, embedder)


def _quality(folder: Path, embedder: BundledEmbedder) -> Iterator[Figure]:
    tools = {name: _rows(folder / name / "tools.jsonl") for name in _BOUNDS}
    queries = {name: _rows(folder / name / "queries_dev.jsonl") for name in _BOUNDS}
    for name, bound in _BOUNDS.items():
        index = SearchIndex.build([_document(tool) for tool in tools[name]], embedder)
        yield _found(f"{name}, {len(index):,} tools", index, queries[name], bound)
    everything = [_document(tool, f"{name}/") for name in tools for tool in tools[name]]
    asked = [
        {**query, "gold": [f"{name}/{gold}" for gold in query["gold"]]}
        for name in queries
        for query in queries[name]
    ]
    index = SearchIndex.build(everything, embedder)
    yield _found(f"all four, {len(index):,} tools", index, asked, _UNION_BOUND)
    usages = defaultdict(list)
    for row in _rows(folder / "metatool" / "examples.jsonl"):
        usages[row["tool"]].append(row["query"])
    for count, bound in _USAGE_BOUNDS.items():
        taught = [_document(t, "", usages[t["name"]][:count]) for t in tools["metatool"]]
        name = f"metatool, {count} usages a tool"
        yield _found(name, SearchIndex.build(taught, embedder), queries["metatool"], bound)


def _found(
    name: str, index: SearchIndex, queries: Sequence[Row], bound: tuple[float, float, float]
) -> Figure:
    """Recall@1, recall@5 and NDCG@10: of all queries, and of each half."""
    halves: list[list[Row]] = [[], []]
    for query in queries:
        halves[hashlib.sha256(query["id"].encode()).digest()[0] & 1].append(query)
    whole, *parts = (_measured(index, rows) for rows in (queries, *halves))
    return Figure(
        f"search {name}: recall@1 / recall@5 / NDCG@10 (first half; second half)",
        f"{_shown(whole)} ({_shown(parts[0])}; {_shown(parts[1])})",
        f"≥ {' / '.join('–' if least == 0 else f'{least:.2f}' for least in bound)}, rounded",
        all(round(value, 2) >= least for value, least in zip(whole, bound, strict=True)),
    )


def _measured(index: SearchIndex, queries: Sequence[Row]) -> tuple[float, float, float]:
    cases = [Case(query=query["query"], gold=tuple(query["gold"])) for query in queries]
    result = evaluate(
        cases, lambda text, k: [hit.key for hit in index.query(text, k).hits], index.fingerprints
    )
    return result.recall_at(1), result.recall_at(5), result.ndcg


def _shown(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" if value else "–" for value in values)


def _rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _document(tool: Row, prefix: str = "", usages: Sequence[str] = ()) -> SearchDocument:
    names, texts = parameter_texts(tool["parameters"] or {})
    fields = {
        "name": tool["name"],
        "toolkit": tool.get("server") or "",
        "description": tool["description"],
        "parameters": names,
        "arguments": texts,
        "documentation": tool.get("docs") or "",
    }
    return SearchDocument(prefix + tool["name"], fields, tuple(usages))


def _cost(count: int, embedder: BundledEmbedder) -> Iterator[Figure]:
    """What a query, a change and a start take, made of the standard library's docstrings."""
    documents, queries = _catalog(count)
    index = SearchIndex.build(documents, embedder)
    vectors = embedder.embed(["row"] * count)
    dot = _best(lambda: vectors @ vectors[0])
    each = [_best(lambda query=query: index.query(query, 10)) for query in queries]  # type: ignore[misc]
    typical, longest = median(each), max(each)
    bound = 1.5 if count == 10_000 else 15
    allowed = 5 * dot if count == 10_000 else bound
    yield Figure(
        f"search query at {count:,} tools",
        f"{typical:.2f} ms, at most {longest:.2f} ms; the dot product alone {dot:.2f} ms",
        f"≤ {bound} ms" + (" beside 0.3 ms" if count == 10_000 else ""),
        typical <= allowed,
    )
    if count != 10_000:
        return
    changed = SearchDocument(documents[7].key, documents[8].fields)
    for name, work in (
        ("replacing one", lambda: index.apply([changed], [])),
        ("adding one", lambda: index.apply([SearchDocument("fresh", changed.fields)], [])),
        ("removing one", lambda: index.apply([], [changed.key])),
    ):
        taken = _best(work)
        yield Figure(f"search: {name} of {count:,}", f"{taken:.2f} ms", "≤ 5 ms", taken <= 5)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder, "index"))
        taken = _best(lambda: SearchIndex.load(Path(folder, "index"), embedder), 5)
    yield Figure(
        f"search: start from the cache at {count:,}", f"{taken:.0f} ms", "≤ 1,000 ms", taken <= 1000
    )


def _best(work: Callable[[], object], rounds: int = 15) -> float:
    """Milliseconds of wall clock, at its best: what other processes take does not count."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best * 1000


def _catalog(count: int) -> tuple[list[SearchDocument], list[str]]:
    """Documents that mix the names and docstrings of functions, and prompts of one to three."""
    known = []
    for module in _MODULES:
        for name, item in vars(importlib.import_module(module)).items():
            text = inspect.getdoc(item) if callable(item) and not name.startswith("_") else None
            if text and text != type(item).__doc__:
                known.append((name, text[:300]))
    chance = random.Random(4)
    documents = []
    for number in range(count):
        (name, _), (_, text), (_, more) = chance.choices(known, k=3)
        fields = {"name": name, "description": text[:100], "arguments": more[:120]}
        documents.append(SearchDocument(f"{name}_{number}", fields))
    prompts = []
    for number in range(60):
        wanted = [text.partition("\n")[0] for _, text in chance.choices(known, k=1 + number % 3)]
        prompts.append("Please help me: " + ". Then ".join(wanted))
    return documents, prompts
