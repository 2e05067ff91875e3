"""Saving: an index's arrays in one file, valid for the code and the embedder that made them.

The file is an archive of arrays that holds no code. It is a cache: whatever is wrong with it,
the answer is that there is none. What the arrays mean is `index`'s business.
"""

import hashlib
import json
import os
import tempfile
import unicodedata
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toolkiln.search.embedder import Embedder
from toolkiln.search.postings import Terms
from toolkiln.search.ranking import Floats

_MADE_BY = ("analysis.py", "documents.py", "index.py", "postings.py", "saving.py", "weighing.py")
"""The modules that decide what is in the file."""

_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""A cache that cannot be read for whatever reason is no cache, and the index is made anew:
numpy, zipfile and json each have their own errors for damage, up to a claim of encryption."""


class Saved(NamedTuple):
    """What a file holds: documents in one order, words in another."""

    keys: list[str]
    fingerprints: list[str]
    words: list[str]
    """By number."""
    terms: list[Terms]
    vectors: Floats


def write(path: Path, embedder: Embedder, saved: Saved) -> None:
    """Put the file in its place at once, whole.

    Raises:
        OSError: It cannot be written.
    """
    lengths = [len(terms.numbers) for terms in saved.terms]
    numbers = np.concatenate([np.zeros(0, np.int32), *(terms.numbers for terms in saved.terms)])
    weights = np.concatenate([np.zeros(0, np.float32), *(terms.weights for terms in saved.terms)])
    used, numbers = np.unique(numbers, return_inverse=True)  # words of the past stay behind
    words = [saved.words[number] for number in used.tolist()]
    texts = json.dumps([saved.keys, saved.fingerprints, words]).encode()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(
                stream,
                version=np.array(_version(embedder)),
                texts=np.frombuffer(texts, np.uint8),
                lengths=np.array(lengths, np.int64),
                numbers=numbers.astype(np.int32),
                weights=weights,
                vectors=saved.vectors,
            )
        Path(name).replace(path)
    except BaseException:  # not only errors: an interrupt must not leave half a file either
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path, embedder: Embedder) -> Saved | None:
    """What the file holds; None if there is no whole file of this version."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if str(arrays["version"]) != _version(embedder):
                return None
            keys, fingerprints, words = json.loads(arrays["texts"].tobytes())
            starts = [0, *np.cumsum(arrays["lengths"]).tolist()]
            numbers, weights, vectors = arrays["numbers"], arrays["weights"], arrays["vectors"]
        fits = (
            len(keys) == len(fingerprints) == len(starts) - 1
            and len(numbers) == len(weights) == starts[-1]
            and numbers.max(initial=-1) < len(words)
            and vectors.shape == (len(keys), embedder.dimensions)
        )
    except _DAMAGE:
        return None
    terms = [Terms(numbers[start:end], weights[start:end]) for start, end in pairwise(starts)]
    return Saved(keys, fingerprints, words, terms, vectors) if fits else None


def _version(embedder: Embedder) -> str:
    digest = hashlib.sha256()
    for name in _MADE_BY:
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(f"{embedder.name} {embedder.dimensions} {unicodedata.unidata_version}".encode())
    return digest.hexdigest()
