"""From served files to snapshots: whoever was first keeps a name, and nothing published changes."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from toolkiln.catalog.manifest import Manifest
from toolkiln.catalog.snapshots import Snapshots
from toolkiln.model.catalog import Admission, FileVersion, ServedVersion, Snapshot
from toolkiln.model.source import Severity
from toolkiln.spec.reader import read

from .conftest import tool

RESERVED = frozenset({"own"})
_changes = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "c.py"]),
    st.none()
    | st.tuples(
        st.lists(st.sampled_from(["x", "y", "z", "own"]), unique=True),
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    max_size=3,
)
_switches = st.dictionaries(st.sampled_from(["x", "y"]), st.booleans(), max_size=2)


def served(file: str, names: list[str], value: int = 1, since: int = 1) -> ServedVersion:
    source = "".join(tool(name, value) for name in names)
    reading = read(source, file)
    admission = Admission(
        sha256=reading.digest, version=1, admitted_by="", admitted_at="", since=str(since)
    )
    return ServedVersion(file, FileVersion(reading, {file: source.encode()}), admission)


def manifest_of(enabled: dict[str, bool]) -> Manifest:
    return Manifest(catalog="c", enabled=dict(enabled))


def publish(snapshots: Snapshots, *files: ServedVersion, **gone: None) -> Snapshot:
    changes: dict[str, ServedVersion | None] = {item.file: item for item in files}
    snapshots.publish(changes | dict(gone), manifest_of({}), ())
    return snapshots.current


def contents(snapshot: Snapshot) -> object:
    findings = sorted(finding.model_dump_json() for finding in snapshot.findings)
    return dict(snapshot.tools), dict(snapshot.served), findings, snapshot.digest


@given(st.lists(_changes, max_size=6), _switches)
def test_any_way_leads_to_the_same_snapshot_as_a_fresh_start(
    steps: list[dict[str, tuple[list[str], int, int] | None]], enabled: dict[str, bool]
) -> None:
    manifest = manifest_of(enabled)
    snapshots = Snapshots(RESERVED)
    end: dict[str, ServedVersion] = {}
    published: list[tuple[Snapshot, object]] = []
    for step in steps:
        changes = {file: served(file, *how) if how else None for file, how in step.items()}
        snapshots.publish(changes, manifest, ())
        end = {f: s for f, s in (end | changes).items() if s is not None}
        published.append((snapshots.current, deepcopy(contents(snapshots.current))))

    fresh = Snapshots(RESERVED)
    fresh.publish(dict(sorted(end.items(), reverse=True)), manifest, ())

    if steps:
        assert contents(snapshots.current) == contents(fresh.current)
    assert [snapshot.number for snapshot, _ in published] == list(range(1, len(steps) + 1))
    assert all(contents(snapshot) == then for snapshot, then in published)


def test_first_admitted_file_keeps_a_name_until_it_goes() -> None:
    snapshots = Snapshots(frozenset())
    late = served("a.py", ["y", "x"], since=2)

    snapshot = publish(snapshots, late, served("b.py", ["x"]))
    after = publish(snapshots, **{"b.py": None})

    (finding,) = snapshot.findings
    assert {name: s.file for name, s in snapshot.served.items()} == {"x": "b.py", "y": "a.py"}
    assert (finding.rule, finding.severity) == ("duplicate-name", Severity.ERROR)
    assert (finding.path, finding.tool) == ("a.py", "x")
    assert finding.line == late.reading.tools[1].line > late.reading.tools[0].line
    assert "b.py" in finding.message
    assert after.served["x"].file == "a.py"
    assert after.findings == ()


def test_name_of_our_own_is_never_taken() -> None:
    snapshots = Snapshots(RESERVED)

    snapshot = publish(snapshots, served("a.py", ["own", "x"]))

    assert list(snapshot.tools) == ["x"]
    assert [finding.tool for finding in snapshot.findings] == ["own"]
    assert "Toolkiln or this program" in snapshot.findings[0].message


def test_tools_and_findings_come_in_the_same_order_on_every_start() -> None:
    names = [f"t{number}" for number in range(20)]

    snapshot = publish(Snapshots(frozenset()), served("b.py", names[::-1]), served("a.py", names))

    assert list(snapshot.tools) == sorted(names)
    assert [finding.tool for finding in snapshot.findings] == sorted(names)


def test_digest_names_the_content_whatever_the_number() -> None:
    first, second = Snapshots(frozenset()), Snapshots(frozenset())
    publish(first, served("a.py", ["x"]))

    again = publish(first, served("a.py", ["x"]))
    other = publish(second, served("b.py", ["x"]))
    changed = publish(second, served("b.py", ["x"], 2))

    assert again.digest == other.digest
    assert again.number == 2
    assert changed.digest != other.digest
