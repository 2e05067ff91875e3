"""Test packages, and an index on loopback that serves them and can be delayed."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from typing import Self

WAIT = 60.0
"""Seconds after which something that never comes is given up."""


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    *,
    requires: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel; `links` are symbolic links in the archive."""
    info = f"{name}-{version}.dist-info"
    content = dict(files) if files else {f"{name}.py": f"VERSION = {version!r}\n"}
    content[f"{info}/METADATA"] = metadata(name, version, requires)
    content[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        for path, target in (links or {}).items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o120777 << 16
            archive.writestr(entry, target)
    return file


def installed_wheel(folder: Path, name: str) -> Path:
    """Write the wheel that an installed distribution came from."""
    found = distribution(name)
    tags = [line for line in (found.read_text("WHEEL") or "").splitlines() if "Tag: " in line]
    tag = tags[0].removeprefix("Tag: ")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name.replace('-', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path in found.files or ():
            if path.parts[0] != ".." and path.suffix != ".pyc":
                archive.write(str(path.locate()), str(path))
    return file


def metadata(name: str, version: str, requires: Sequence[str] = ()) -> str:
    lines = [f"Requires-Dist: {item}" for item in requires]
    return "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, ""])


def offline(cache: Path, links: Path) -> dict[str, str]:
    """Variables with which uv installs only from a folder of wheels."""
    return {"UV_CACHE_DIR": str(cache), "UV_FIND_LINKS": str(links), "UV_NO_INDEX": "1"}


def source_distribution(folder: Path, name: str, version: str, setup: str) -> Path:
    """Write a source distribution with a `setup.py`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for path, text in {"setup.py": setup, "PKG-INFO": metadata(name, version)}.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return file


class Index:
    """A package index; `held` stops downloads until `release`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requested: list[str] = []
        self.reached = threading.Event()
        """Somebody asked for a wheel."""
        self.uploaded: dict[str, str] = {}
        """When a file was uploaded, by its name."""
        self._free = threading.Event()
        self._free.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index._answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}/simple"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.release()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(WAIT)
            self._server.server_close()

    def hold(self) -> None:
        self.reached.clear()
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    @property
    def downloads(self) -> list[str]:
        return [name for name in self.requested if name.endswith(".whl")]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        kind, _, name = request.path.strip("/").partition("/")
        self.requested.append(name)
        if kind == "simple":
            body = json.dumps(self._page(name)).encode()
        elif name.endswith(".metadata"):
            package, version = name.split("-")[:2]
            body = metadata(package, version).encode()
        else:
            self.reached.set()
            self._free.wait(WAIT)
            body = (self.folder / name).read_bytes()
        try:
            request.send_response(200)
            request.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            request.send_header("Content-Length", str(len(body)))
            request.send_header("Date", formatdate())
            request.end_headers()
            request.wfile.write(body)
        except OSError:  # the other side was killed
            request.close_connection = True

    def _page(self, name: str) -> dict[str, object]:
        files = [
            {
                "filename": file.name,
                "url": f"http://{self.host}/files/{file.name}",
                "hashes": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
                "core-metadata": True,
                "upload-time": self.uploaded.get(file.name, "2020-01-01T00:00:00Z"),
            }
            for file in sorted(self.folder.glob(f"{name}-*.whl"))
        ]
        return {"meta": {"api-version": "1.1"}, "name": name, "files": files}


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"
