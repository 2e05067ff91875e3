"""From served files to snapshots: which tool has which name, and whether it is offered.

Pure bookkeeping in memory: each change touches the names that it is about and no others,
however many tools there are.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from toolkiln.catalog.manifest import Manifest
from toolkiln.catalog.switches import is_on
from toolkiln.model import Finding, Served, Severity, Snapshot, Tools

_PROGRAM = "Toolkiln or this program"


class Snapshots:
    """Makes one snapshot after another."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._reserved = reserved
        self.served: dict[str, Served] = {}
        """By file."""
        self._claims: dict[str, set[str]] = defaultdict(set)
        """Files by the name of a tool: several may want one."""
        self._offered: dict[str, Served] = {}
        """Enabled tools by name."""
        self._contested: set[str] = set()
        self.current = Snapshot(0)

    def publish(
        self,
        changes: Mapping[str, Served | None],
        manifest: Manifest,
        problems: tuple[Finding, ...],
    ) -> None:
        """The next snapshot: these files are served like this, or no longer."""
        names: set[str] = set()
        for file, served in changes.items():
            old = self.served.pop(file, None)
            for name in old.read.names if old else ():
                self._claims[name].discard(file)
                names.add(name)
            if served is not None:
                self.served[file] = served
                for name in served.read.names:
                    self._claims[name].add(file)
                    names.add(name)
        by_name, offered = dict(self.current.served), dict(self._offered)
        for name in sorted(names):
            by_name.pop(name, None)
            offered.pop(name, None)
            owner = self._owner(name)
            if owner is not None:
                served = by_name[name] = self.served[owner]
                if not manifest.enabled or is_on(served.read.tool(name), manifest):
                    offered[name] = served
        self._offered = offered
        findings = (*problems, *self._taken_names())
        self.current = Snapshot(self.current.number + 1, Tools(offered), by_name, findings)

    def _owner(self, name: str) -> str | None:
        """Of several files that want a name, the one admitted first; unadmitted ones come last."""
        claims = self._claims[name]
        if not claims:
            del self._claims[name]
            self._contested.discard(name)
            return None
        if name in self._reserved:
            self._contested.add(name)
            return None
        if len(claims) == 1:
            self._contested.discard(name)
            return next(iter(claims))
        self._contested.add(name)
        return min(claims, key=self._precedence)

    def _precedence(self, file: str) -> tuple[bool, str, str]:
        admission = self.served[file].admission
        return admission is None, admission.since if admission else "", file

    def _taken_names(self) -> Iterator[Finding]:
        for name in sorted(self._contested):
            owner = self._owner(name)
            for file in sorted(self._claims[name]):
                if file != owner:
                    spec = self.served[file].read.tool(name)
                    yield Finding(
                        rule="duplicate-name",
                        severity=Severity.ERROR,
                        message=f"{name!r} is a tool of {owner or _PROGRAM} already, and this one "
                        "is not served",
                        line=spec.line,
                        fix="give one of them another name",
                        tool=name,
                        path=spec.path,
                    )
