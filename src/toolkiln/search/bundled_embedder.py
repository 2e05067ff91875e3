"""Bundled embedder: static token vectors from the data files of the wordllama package.

A text's vector is the sum of its tokens' vectors, which takes two data files and numpy, but
no model and no download. The package itself is never imported: it would load much more and
look for its files on the network.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkiln.search.embedder import EmbeddingFailed

_SPACE = "\u2581"
"""The vocabulary's spelling of a space."""
_WORD = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
"""No token has a space after another character, so each word is split on its own."""
_MAX_WORD = 500
"""Longer words are split in chunks, because merging takes quadratic time."""
_CACHED_WORDS = 20_000
"""About 4 MB."""
_NO_MERGE = sys.maxsize
"""The rank of two tokens that are never merged."""
_MODEL = {"type": "BPE", "byte_fallback": True, "ignore_merges": False}
_NORMALIZERS = [
    {"type": "Prepend", "prepend": _SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
]


class Tokenizer:
    """Byte-pair tokenizer; thread-safe."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Use the content of a tokenizer file.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: The content is not supported.
        """
        model = description["model"]
        if any(model[key] != value for key, value in _MODEL.items()):
            raise ValueError("it is not a supported byte-pair encoding")
        if description["normalizer"]["normalizers"] != _NORMALIZERS or description["pre_tokenizer"]:
            raise ValueError("its normalizers are not supported")
        self._ids: dict[str, int] = dict(model["vocab"])
        if min(self._ids.values()) < 0:
            raise ValueError("it has negative token ids")
        self._ranks = {str(merge): rank for rank, merge in enumerate(model["merges"])}
        self._bytes = [self._ids[f"<0x{byte:02X}>"] for byte in range(256)]
        special = [str(token["content"]) for token in description["added_tokens"]]
        if not special or not self._ids.keys() >= set(special):
            raise ValueError("its special tokens have no ids")
        self._special = re.compile(f"({'|'.join(map(re.escape, special))})")
        self._split_cached = lru_cache(_CACHED_WORDS)(self._split)

    @property
    def vocabulary_size(self) -> int:
        """One more than the highest token id."""
        return max(self._ids.values()) + 1

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, in order."""
        ids: list[int] = []
        for index, part in enumerate(self._special.split(text)):
            if index % 2:
                ids.append(self._ids[part])
            elif part:
                for word in _WORD.findall(_SPACE + part.replace(" ", _SPACE)):
                    if len(word) <= _MAX_WORD:
                        ids += self._split_cached(word)
                    else:
                        for start in range(0, len(word), _MAX_WORD):
                            ids += self._split(word[start : start + _MAX_WORD])
        return ids

    def _split(self, word: str) -> Sequence[int]:
        """Merge neighbours by ascending rank until none can be merged."""
        parts = list(word)
        ranks = [self._rank(a, b) for a, b in pairwise(parts)]
        while ranks and (best := min(ranks)) != _NO_MERGE:
            index = ranks.index(best)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
            del ranks[index]
            if index > 0:
                ranks[index - 1] = self._rank(parts[index - 1], parts[index])
            if index < len(ranks):
                ranks[index] = self._rank(parts[index], parts[index + 1])
        ids: list[int] = []
        for part in parts:
            token_id = self._ids.get(part)
            if token_id is None:
                ids += (self._bytes[byte] for byte in part.encode("utf-8", "replace"))
            else:
                ids.append(token_id)
        return tuple(ids)

    def _rank(self, left: str, right: str) -> int:
        return self._ranks.get(f"{left} {right}", _NO_MERGE)


_PACKAGE = "wordllama"
_VECTORS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_DIMENSIONS = 256
_MAX_HEADER = 100_000
_BATCH = 4096
"""Vectors added at once; limits the memory for a huge text."""
_INSTALL = f"pip install --no-deps --only-binary :all: --force-reinstall {_PACKAGE}"


class BundledEmbedder:
    """Embeds on this machine; loads the data files with the first text."""

    name = "wordllama-l2_supercat-256"
    dimensions = _DIMENSIONS

    def __init__(self, folder: Path | None = None) -> None:
        """Use the data files in `folder` instead of the installed ones."""
        self._folder = folder
        self._lock = Lock()
        self._model: tuple[Tokenizer, NDArray[np.float16]] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector for each text; zeros for an empty text.

        Raises:
            EmbeddingFailed: The data files are missing or damaged.
        """
        tokenizer, table = self._load()
        rows = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for index, text in enumerate(texts):
            ids = tokenizer.token_ids(text)
            for start in range(0, len(ids), _BATCH):
                batch = table[ids[start : start + _BATCH]]
                rows[index] += batch.astype(np.float32).sum(axis=0)
        return unit_rows(rows)

    def _load(self) -> tuple[Tokenizer, NDArray[np.float16]]:
        with self._lock:
            if self._model is None:
                self._model = _load(self._folder or _installed_folder())
            return self._model


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length one; a row without a direction becomes zeros."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    usable = (lengths > 0) & np.isfinite(lengths)
    unit = np.zeros_like(rows)
    np.divide(rows, lengths, out=unit, where=usable)
    return unit


def _installed_folder() -> Path:
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise EmbeddingFailed(f"the package {_PACKAGE} is not installed", hint=_INSTALL)
    return Path(folders[0])


def _load(folder: Path) -> tuple[Tokenizer, NDArray[np.float16]]:
    try:
        table = _read_table(folder / _VECTORS)
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise EmbeddingFailed(f"{folder / _VECTORS} is damaged: {error}", hint=_INSTALL) from error
    try:
        tokenizer = Tokenizer(json.loads((folder / _TOKENIZER).read_text("utf-8")))
        if tokenizer.vocabulary_size > len(table):
            raise ValueError("it has more tokens than there are vectors")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise EmbeddingFailed(
            f"{folder / _TOKENIZER} is damaged: {error}", hint=_INSTALL
        ) from error
    return tokenizer, table


def _read_table(file: Path) -> NDArray[np.float16]:
    # The safetensors format: header length, JSON header, numbers.
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= _MAX_HEADER:
            raise ValueError("it has no header")
        tensor = json.loads(stream.read(length))[_TENSOR]
        rows, columns = tensor["shape"]
        if tensor["dtype"] != "F16" or columns != _DIMENSIONS or not rows > 0:
            raise ValueError("its vectors have an unexpected shape or type")
        stream.seek(8 + length + tensor["data_offsets"][0])
        numbers = np.fromfile(stream, "<f2", rows * columns)
    return numbers.reshape(rows, columns)
