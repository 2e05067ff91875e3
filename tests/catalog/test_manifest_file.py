"""A manifest that other processes replace while this one reads it."""

from pathlib import Path

import pytest

from toolkiln.catalog.manifest import MANIFEST, ManifestFile


def test_a_manifest_replaced_around_each_read_is_never_mistaken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, writer, reader = (
        tmp_path / MANIFEST,
        ManifestFile(tmp_path, ""),
        ManifestFile(tmp_path, ""),
    )
    writer.write(lambda manifest: manifest)
    enabled = file.read_bytes()
    writer.write(lambda manifest: manifest.model_copy(update={"enabled": {"pay": False}}))
    disabled = file.read_bytes()
    file.write_bytes(enabled)
    read_bytes = Path.read_bytes

    def read_and_replace(path: Path) -> bytes:
        data = read_bytes(path)
        path.write_bytes(disabled if data == enabled else enabled)
        return data

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_and_replace)
        reader.read()

    for data, expected in ((enabled, {}), (disabled, {"pay": False}), (enabled, {})):
        file.write_bytes(data)
        assert reader.read().enabled == expected
