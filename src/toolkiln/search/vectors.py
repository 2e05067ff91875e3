"""The bundled embedder: the static vectors that come inside the wordllama package.

A text's vector is the sum of the vectors of its word pieces, so that it needs two data files
and numpy and neither a model at work nor a download. The package itself is never imported:
it would load much more, and look for its files on the network. `wordpieces` splits the text.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.search.wordpieces import WordPieces

_PACKAGE = "wordllama"
_TABLE = "weights/l2_supercat_256.safetensors"
_PIECES = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_DIMENSIONS = 256
_LONGEST_HEADER = 100_000
_AT_ONCE = 4096
"""Pieces whose vectors are added up at a time, so that a huge text takes little memory."""
_INSTALL = f"pip install --no-deps --only-binary :all: --force-reinstall {_PACKAGE}"


class Bundled:
    """Embeds on this machine; the files are read with the first text."""

    name = "wordllama-l2_supercat-256"
    dimensions = _DIMENSIONS

    def __init__(self, folder: Path | None = None) -> None:
        """Use the data files of a folder instead of the installed ones, if one is given."""
        self._folder = folder
        self._lock = Lock()
        self._model: tuple[WordPieces, NDArray[np.float16]] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length one for each text; zeros for an empty one.

        Raises:
            EmbeddingFailed: The data files are missing or damaged.
        """
        pieces, table = self._loaded()
        rows = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for index, text in enumerate(texts):
            numbers = pieces.numbers(text)
            for start in range(0, len(numbers), _AT_ONCE):
                some = table[numbers[start : start + _AT_ONCE]]
                rows[index] += some.astype(np.float32).sum(axis=0)
        return unit_rows(rows)

    def _loaded(self) -> tuple[WordPieces, NDArray[np.float16]]:
        with self._lock:
            if self._model is None:
                self._model = _load(self._folder or _installed_folder())
            return self._model


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows at length one; a row that has no direction becomes zeros."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
    usable = (lengths > 0) & np.isfinite(lengths)
    unit = np.zeros_like(rows)
    np.divide(rows, lengths, out=unit, where=usable)
    return unit


def _installed_folder() -> Path:
    found = find_spec(_PACKAGE)
    places = found.submodule_search_locations if found else None
    if not places:
        raise EmbeddingFailed(
            f"the vectors of the package {_PACKAGE} are not installed",
            hint=_INSTALL,
        )
    return Path(places[0])


def _load(folder: Path) -> tuple[WordPieces, NDArray[np.float16]]:
    try:
        table = _read_table(folder / _TABLE)
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise EmbeddingFailed(f"{folder / _TABLE} is damaged: {error}", hint=_INSTALL) from error
    try:
        pieces = WordPieces(json.loads((folder / _PIECES).read_text("utf-8")))
        if pieces.count > len(table):
            raise ValueError("it has more pieces than there are vectors")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise EmbeddingFailed(f"{folder / _PIECES} is damaged: {error}", hint=_INSTALL) from error
    return pieces, table


def _read_table(file: Path) -> NDArray[np.float16]:
    """The one matrix of a safetensors file: a length, a description in JSON, the numbers."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= _LONGEST_HEADER:
            raise ValueError("it has no header")
        described = json.loads(stream.read(length))[_TENSOR]
        rows, columns = described["shape"]
        if described["dtype"] != "F16" or columns != _DIMENSIONS or not rows > 0:
            raise ValueError("it holds other vectors than expected")
        stream.seek(8 + length + described["data_offsets"][0])
        numbers = np.fromfile(stream, "<f2", rows * columns)
    return numbers.reshape(rows, columns)
