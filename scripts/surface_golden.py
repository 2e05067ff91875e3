"""Golden values for `surface_snapshot.py`: what is hashed, stored or sent, byte for byte.

These need functions of the package. `_HOMES` is the only place that says where they are.
"""

import importlib
import inspect
import pkgutil
import zlib
from typing import Any

import toolkiln
from surface_sessions import Files, as_json

_HOMES = {
    "Admission": "toolkiln.model.catalog.Admission",
    "AuditRecord": "toolkiln.model.audit.AuditRecord",
    "CallError": "toolkiln.model.call.CallError",
    "Caller": "toolkiln.model.identity.Caller",
    "Event": "toolkiln.model.call.Event",
    "Grant": "toolkiln.model.call.Grant",
    "Refusal": "toolkiln.model.catalog.DecisionRecord",
    "Result": "toolkiln.model.call.Result",
    "SentFile": "toolkiln.model.call.SentFile",
    "ToolkilnError": "toolkiln.errors.ToolkilnError",
    "Manifest": "toolkiln.catalog.manifest.Manifest",
    "encode_manifest": "toolkiln.catalog.manifest.encode",
    "version_digest": "toolkiln.spec.local_imports.version_digest",
    "hash_of": "toolkiln.store.codec.hash_of",
    "key_of": "toolkiln.store.codec.key_of",
    "scope_of": "toolkiln.store.codec.scope_of",
    "write_result": "toolkiln.store.codec.write_result",
    "write_sources": "toolkiln.store.codec.write_sources",
    "Chain": "toolkiln.store.audit_log.Chain",
    "pruned_detail": "toolkiln.store.audit_log.pruned_detail",
    "token_hash": "toolkiln.security.sessions.token_hash",
    "end_codes": "toolkiln.fleet.wire.CODES",
    "ended": "toolkiln.fleet.wire.end_result",
    "http_statuses": "toolkiln.surfaces.http.responses.STATUSES",
    "exit_statuses": "toolkiln.surfaces.cli.calls.EXIT_STATUS",
    "redis_keys": "toolkiln.fleet.keys",
    "Envelope": "toolkiln.fleet.wire.Envelope",
    "Proof": "toolkiln.fleet.wire.Proof",
    "Reply": "toolkiln.fleet.wire.CallReply",
    "Raw": "msgspec.Raw",
    "pack": "toolkiln.fleet.wire.pack",
    "envelope_to_wire": "toolkiln.fleet.wire.envelope_to_wire",
    "reply_to_wire": "toolkiln.fleet.wire.reply_to_wire",
    "replies_to_wire": "toolkiln.fleet.wire.replies_to_wire",
    "signed_part": "toolkiln.fleet.wire.signed_part",
    "result_to_wire": "toolkiln.fleet.wire.result_to_wire",
    "event_to_wire": "toolkiln.fleet.wire.event_to_wire",
    "fingerprint": "toolkiln.fleet.wire.fingerprint",
    "FleetKeys": "toolkiln.fleet.message_auth.FleetKeys",
    "seal": "toolkiln.fleet.message_auth.seal",
    "sealed": "toolkiln.fleet.message_auth.seal_bytes",
    "Signer": "toolkiln.fleet.message_auth.Signer",
    "leaf_of": "toolkiln.fleet.message_auth.leaf_of",
}


class _Internals:
    """The names of `_HOMES`, loaded when they are used."""

    def __getattr__(self, name: str) -> Any:
        return pkgutil.resolve_name(_HOMES[name])


_toolkiln = _Internals()


def errors() -> Files:
    """Codes of errors with their statuses, and of calls that ended without a worker's answer."""
    for module in pkgutil.walk_packages(toolkiln.__path__, "toolkiln."):
        if not module.name.endswith("__main__") and ".runtime." not in module.name:
            importlib.import_module(module.name)
    found: dict[str, str | None] = {}

    def walk(error: type[Any], base: str | None) -> None:
        if error.code != base:
            found.setdefault(error.code, base)
        for below in error.__subclasses__():
            walk(below, error.code)

    walk(_toolkiln.ToolkilnError, None)
    ends = {
        code: _toolkiln.ended(code, call_id="c", tool="t") for code in sorted(_toolkiln.end_codes)
    }
    return {
        "errors.json": as_json(
            {
                "codes of errors, with those they are kinds of": dict(sorted(found.items())),
                "HTTP statuses by code": dict(sorted(_toolkiln.http_statuses.items())),
                "exit statuses by status": _toolkiln.exit_statuses,
                "ends of calls without an answer": {
                    code: {"status": end.status, "retryable": end.error.retryable}
                    for code, end in ends.items()
                },
            }
        )
    }


def golden() -> Files:
    """Hashes, stored texts and bytes on the wire."""
    parts = {
        "identities": _identities(),
        "versions": _versions(),
        "audit": _audit(),
        "keys in Redis": _keys(),
        "wire": _wire(),
    }
    return {"golden.json": as_json(parts)}


def _callers() -> dict[str, Any]:
    make = _toolkiln.Caller
    return {
        "no user": make(),
        "ann": make(user_id="ann", session="s", workspace="w", groups=frozenset({"staff"})),
        "ann of slack, by an agent": make(user_id="ann", platform="slack", agent_id="helper"),
        "another script": make(user_id="Åsa 🙂", agent_id='"quoted"'),
    }


def _identities() -> dict[str, Any]:
    return {
        "scope": {name: _toolkiln.scope_of(caller) for name, caller in _callers().items()},
        "key of call-1": {
            name: _toolkiln.key_of(who, "call-1") for name, who in _callers().items()
        },
        "hash": [_toolkiln.hash_of(parts) for parts in ([], ["a", None], ["é", "\ud800"])],
        "token": _toolkiln.token_hash("ts_token"),
    }


def _result() -> Any:
    return _toolkiln.Result(
        call_id="call-1",
        tool="greet",
        digest="0" * 64,
        status="failed",
        value={"a": [1, 2.5, None, True, "é\ud800", 1 << 70]},
        text="text",
        error=_toolkiln.CallError(code="exception", message="no", type="ValueError", line=3),
        notes=("a note",),
        files=(_toolkiln.SentFile(name="a.bin", data=b"\x00\xff"),),
        sandbox="A",
    )


def _versions() -> dict[str, Any]:
    admitted = _toolkiln.Admission(
        sha256="0" * 64,
        version=2,
        admitted_by="ann",
        admitted_at="2026-01-02T03:04:05.000006Z",
        since="2026-01-01T00:00:00.000000Z",
        rights={"greet": _toolkiln.Grant(network=("example.org",), workspace="write")},
        reviewed=True,
    )
    manifest = _toolkiln.Manifest(
        catalog="0" * 32,
        files={"greet.py": admitted},
        rejected={
            "bad.py": _toolkiln.Refusal(sha256="1" * 64, by="ann", at="2026-01-01T00:00:00Z")
        },
        enabled={"greet": False},
    )
    digest = _toolkiln.version_digest
    return {
        "digest of a file": digest(b"def one(): ...\n", {}),
        "digest with others": digest(b"import other\n", {"b.csv": b"1", "a/other.py": b"x = 1\n"}),
        "manifest": _toolkiln.encode_manifest(manifest).decode().splitlines(),
        "manifest's seal with a key": _toolkiln.encode_manifest(manifest, "key")
        .decode()
        .split()[-2],
        "result": _toolkiln.write_result(_result()),
        "sources": zlib.decompress(_toolkiln.write_sources({"é.py": b"\xff\x00"})).decode(),
    }


def _audit() -> dict[str, Any]:
    make, chain = _toolkiln.AuditRecord, _toolkiln.Chain(b"a key")
    first = make(at=1767225600.25, act="admit", outcome="ok", user="ann", tool="greet")
    second = make(at=1767225601.5, act="call", outcome="failed", duration=0.125, arguments="{}")
    link = chain.link("0" * 64, 1, first)
    following = chain.link(link, 2, second)
    return {
        "fields": make._fields,
        "key id": chain.key_id,
        "hashes": [link, following],
        "seal of the head": chain.seal(2, following),
        "detail of pruning": _toolkiln.pruned_detail(1, link),
    }


def _keys() -> list[str]:
    """Every constant, and every function with the same words."""
    found = []
    for name, value in vars(_toolkiln.redis_keys).items():
        if isinstance(value, str) and name.isupper():
            found.append(value)
        elif inspect.isfunction(value) and not name.startswith("_"):
            expected = inspect.signature(value).parameters
            words = ["toolkiln:calls:x" if name == "stream" else "é 1" for name in expected]
            found.append(value(*words))
    return sorted(found)


def _wire() -> dict[str, Any]:
    keys = _toolkiln.FleetKeys(sealing=bytes(range(32)))
    arguments = _toolkiln.Raw(_toolkiln.pack({"b": 1, "a": ["é"]}))
    whole = _toolkiln.Envelope(
        id="call-1", record="r" * 64, tool="greet", digest="0" * 64, arguments=arguments,
        session="5" * 64, surface="http", timeout_ms=5000, repeatable=True, remember=True,
        events=True, reply_to="client:1", pool="default", traceparent="00-1-2-01", depth=1,
        asks=("form",),
    )  # fmt: skip
    small = _toolkiln.Envelope(id="call-2", record="r2", tool="greet")
    proof = _toolkiln.Proof(subject=b"about", target="1-0", signature=b"s", path=b"p")
    reply = _toolkiln.Reply(record="r2", kind="result", body=b"body", proof=proof)
    signer = _toolkiln.Signer("ed25519-private:" + "A" * 43)
    values = [None, 1.5, "é\ud800", 1 << 70, -1, b"\x00", {"\ud800": [1]}]
    ok = _toolkiln.Result(call_id="c", tool="t", status="ok", value=[1], text="1")
    event = _toolkiln.Event(kind="progress", text="half", done=1, total=2)
    leaves = [_toolkiln.leaf_of(data) for data in (b"a", b"b", b"c")]
    return {
        "fields of an envelope": _toolkiln.Envelope.__struct_fields__,
        "fields of a proof": _toolkiln.Proof.__struct_fields__,
        "fields of a reply": _toolkiln.Reply.__struct_fields__,
        "envelopes": [_toolkiln.envelope_to_wire(one).hex() for one in (whole, small)],
        "fingerprint": _toolkiln.fingerprint(whole),
        "seals": [_toolkiln.seal(keys, one).hex() for one in (whole, small)],
        "sealed": _toolkiln.sealed(keys, "purpose", b"data").hex(),
        "reply": _toolkiln.reply_to_wire(reply).hex(),
        "replies": _toolkiln.replies_to_wire([reply, reply]).hex(),
        "signed part": _toolkiln.signed_part(reply).hex(),
        "results": [_toolkiln.result_to_wire(one).hex() for one in (ok, _result())],
        "event": _toolkiln.event_to_wire(event).hex(),
        "values": [_toolkiln.pack(value).hex() for value in values],
        "public key": signer.public,
        "signature": signer.sign(b"purpose", b"data").hex(),
        "tree": [[part.hex() for part in one] for one in signer.sign_all(leaves)],
    }
