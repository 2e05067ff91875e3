"""The manifest as allow-list: what is not exactly what was written admits nothing."""

import json
import os
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.catalog.manifest import (
    MANIFEST,
    Manifest,
    ManifestError,
    ManifestFile,
    MissingManifest,
    Switch,
    encode,
)
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission, DecisionRecord

from .conftest import Workshop

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_grants = st.builds(
    Grant,
    network=st.lists(_text, max_size=2).map(tuple),
    workspace=st.sampled_from(["read", "write", None]),
    sandbox=st.booleans(),
)
_admissions = st.builds(
    Admission,
    sha256=_text,
    version=st.integers(),
    admitted_by=_text,
    admitted_at=_text,
    since=_text,
    rights=st.dictionaries(_text, _grants, max_size=2),
)
_refusals = st.builds(DecisionRecord, sha256=_text, by=_text, at=_text)
_switches = st.builds(
    Switch, enabled=st.booleans(), methods=st.dictionaries(_text, st.booleans(), max_size=2)
)
_manifests = st.builds(
    Manifest,
    catalog=_text,
    files=st.dictionaries(_text, _admissions, max_size=2),
    proposed=st.dictionaries(_text, _refusals, max_size=2),
    rejected=st.dictionaries(_text, _refusals, max_size=2),
    enabled=st.dictionaries(_text, st.booleans() | _switches, max_size=2),
)
ADMISSION = Admission(
    sha256="ab" * 32,
    version=3,
    admitted_by="Ünal",
    admitted_at="2030-01-01T00:00:00Z",
    since="2030-01-01T00:00:00Z",
    rights={"fetch": Grant(network=("example.org",))},
)
SAMPLE = Manifest(
    catalog="c", files={"a.py": ADMISSION}, enabled={"kit": Switch(methods={"m": False})}
)


def write(folder: Path, data: bytes) -> Path:
    (folder / MANIFEST).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifest")


@given(manifest=_manifests, key=_text)
def test_any_manifest_is_read_as_it_was_written(place: Path, manifest: Manifest, key: str) -> None:
    write(place, encode(manifest, key))

    assert ManifestFile(place, key).read() == manifest


@given(data=st.data(), key=st.sampled_from(["", "secret"]))
def test_any_changed_byte_is_refused_unless_it_says_the_same(
    place: Path, data: st.DataObject, key: str
) -> None:
    whole = bytearray(encode(SAMPLE, key))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    write(place, bytes(whole))

    found = SAMPLE
    with suppress(ManifestError):
        found = ManifestFile(place, key).read()

    assert found == SAMPLE


@given(data=st.data())
def test_any_cut_manifest_is_refused(place: Path, data: st.DataObject) -> None:
    whole = encode(SAMPLE)
    write(place, whole[: data.draw(st.integers(0, len(whole) - 2))])

    with pytest.raises(ManifestError):
        ManifestFile(place, "").read()


def test_missing_manifest_comes_with_how_to_admit(tmp_path: Path) -> None:
    with pytest.raises(MissingManifest, match="no tool has been admitted") as caught:
        ManifestFile(tmp_path, "").read()

    assert f"toolkiln admit {tmp_path}" in (caught.value.hint or "")


FETCH = ("files", "a.py", "rights", "fetch")


@each_row("key", ["", "secret"])
@each_row(
    "place, value",
    [
        (FETCH, {"network": ["*"]}),
        (("files", "a.py", "sha256"), "cd" * 32),
        (("files", "b.py"), ADMISSION.model_dump(mode="json")),
        (("seal",), None),
        (("seal",), ""),
        (("seal",), "\ud800"),
        (("format",), 2),
        (("enabled",), {}),
    ],
)
def test_manifest_edited_by_hand_is_refused(
    tmp_path: Path, place: tuple[str, ...], value: Any, key: str
) -> None:
    content = json.loads(encode(SAMPLE, key))
    *above, last = place
    part = reduce(getitem, above, content)
    if value is None:
        del part[last]
    else:
        part[last] = value
    write(tmp_path, json.dumps(content, indent=1).encode())

    with pytest.raises(ManifestError, match="nothing is served") as caught:
        ManifestFile(tmp_path, key).read()

    assert f"toolkiln admit --reset {tmp_path}" in (caught.value.hint or "")


@each_row(
    "data",
    [
        b"", b" ", b"{}", b"[]", b"null", b"7", b'"text"', b"{", b"\xff\xfe", b"\x00" * 9,
        b"[" * 100_000, b'{"seal":' * 100_000, b'{"format": 1, "seal": ' + b"9" * 5000 + b"}",
        b'{"format": 1, "seal": {"a": 1}}', b'{"format": [1], "seal": "x"}',
    ],
)  # fmt: skip
def test_file_that_is_no_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, data)

    with pytest.raises(ManifestError) as caught:
        ManifestFile(tmp_path, "").read()

    assert caught.value.hint
    assert not isinstance(caught.value, MissingManifest)


@each_row(
    "content",
    [
        {"catalog": 5},
        {"files": []},
        {"files": {"a.py": {}}},
        {"files": {"a.py": "x"}},
        {"enabled": {"a": [1]}},
        {"unknown": 1},
    ],
)
def test_sealed_content_of_other_types_is_refused(tmp_path: Path, content: Any) -> None:
    class Forged(Manifest):
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return dict(content)

    write(tmp_path, encode(Forged()))

    with pytest.raises(ManifestError, match="is damaged"):
        ManifestFile(tmp_path, "").read()


def test_folder_in_place_of_the_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).mkdir()

    with pytest.raises(ManifestError, match="cannot be read"):
        ManifestFile(tmp_path, "").read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_manifest_is_refused(tmp_path: Path) -> None:
    write(tmp_path, encode(SAMPLE))
    (tmp_path / MANIFEST).chmod(0)

    with pytest.raises(ManifestError, match="Permission denied"):
        ManifestFile(tmp_path, "").read()


@each_row(
    "sealed, given, message",
    [
        ("secret", "", "the setting manifest_key is empty"),
        ("secret", "other", "sealed without this manifest_key"),
        ("", "secret", "sealed without this manifest_key"),
    ],
)
def test_manifest_of_another_key_is_refused(
    tmp_path: Path, sealed: str, given: str, message: str
) -> None:
    write(tmp_path, encode(SAMPLE, sealed))

    with pytest.raises(ManifestError, match=message):
        ManifestFile(tmp_path, given).read()


def test_in_dev_a_damaged_manifest_is_a_finding_until_it_is_restored(shop: Workshop) -> None:
    shop.add("a.py")
    catalog = shop.catalog(dev=True)
    good = (shop.tools / MANIFEST).read_bytes()
    assert not catalog.snapshot.served["a"].dev

    (shop.tools / MANIFEST).write_bytes(good.replace(b"ann", b"eve"))
    catalog.refresh([shop.tools / MANIFEST])

    for one in (catalog, shop.catalog(dev=True)):
        (finding,) = one.snapshot.findings
        assert (finding.rule, finding.path) == ("manifest-unusable", str(shop.tools / MANIFEST))
        assert "was changed since Toolkiln wrote it" in finding.message
        assert "toolkiln admit --reset" in finding.fix
        assert one.snapshot.served["a"].dev

    (shop.tools / MANIFEST).write_bytes(good)
    catalog.refresh([shop.tools / MANIFEST])

    assert catalog.snapshot.findings == ()
    assert not catalog.snapshot.served["a"].dev


def test_admitting_afresh_replaces_a_manifest_that_cannot_be_trusted(shop: Workshop) -> None:
    shop.add("a.py")
    shop.add("b.py")
    write(shop.tools, b"?")
    admissions = shop.admissions()
    candidates = [admissions.candidate("a.py")]

    with pytest.raises(ManifestError):
        admissions.admit(candidates, AdmissionDecision("ann"))
    admissions.admit(candidates, AdmissionDecision("ann"), reset=True)

    assert shop.served() == {"a": "a.py"}


def test_a_manifest_replaced_around_each_read_is_never_mistaken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / MANIFEST
    writer, reader = ManifestFile(tmp_path, ""), ManifestFile(tmp_path, "")
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
