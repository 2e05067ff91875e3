"""A manifest that other processes replace while this one reads it."""

from pathlib import Path

import pytest

from toolkiln.catalog import manifest as manifests
from toolkiln.catalog.transaction import ManifestFile


def test_a_manifest_replaced_while_it_is_read_is_not_mistaken_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = ManifestFile(tmp_path, ""), ManifestFile(tmp_path, "")
    writer.write(lambda manifest: manifest)
    before = (tmp_path / manifests.FILE_NAME).read_bytes()

    def load_late(folder: Path, key: str) -> manifests.Manifest:
        monkeypatch.undo()
        writer.write(lambda manifest: manifest.model_copy(update={"enabled": {"pay": False}}))
        return manifests.load(folder, key)

    monkeypatch.setattr(manifests, "load", load_late)
    replaced = reader.read()
    (tmp_path / manifests.FILE_NAME).write_bytes(before)

    assert replaced.enabled == {"pay": False}
    assert reader.read().enabled == {}
