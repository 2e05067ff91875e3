"""What `uv build` and `pip wheel` produce: distributions that contain the page's bundle."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
UV = Path(sysconfig.get_path("scripts"), "uv")
STATIC = "toolkiln/surfaces/web/static"
HASHES: dict[str, str] = json.loads((ROOT / "web/hashes.json").read_text("utf-8"))
BUNDLE = {f"{STATIC}/vendor/{name}" for name in HASHES}
BOUND = 120.0
# The build backend is part of the development environment, so that nothing is downloaded.
HERE = ["--no-build-isolation", "--offline", "--python", sys.executable]


def run(command: list[str | Path], **options: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*map(str, command)],
        cwd=options.get("cwd"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of the repository, and the wheel that uv builds from it."""
    target = tmp_path_factory.mktemp("built")
    done = run([UV, "build", *HERE, "--out-dir", target, ROOT])
    assert done.returncode == 0, done.stdout
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


def bundle_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith(f"{STATIC}/vendor/")}


def bundle_in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
    return {name for name in names if name.startswith(f"{STATIC}/vendor/")}


def make_venv(folder: Path) -> Path:
    """A virtual environment with the dependencies of this one, but without Toolkiln."""
    done = run([UV, "venv", "--offline", "--quiet", "--python", sys.executable, folder])
    assert done.returncode == 0, done.stdout
    (site,) = folder.glob("lib/python*/site-packages")
    # Of a folder that is added this way no .pth file counts, ours of the editable install neither.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def install(scripts: Path, *what: str | Path) -> None:
    options = ["--offline", "--quiet", "--no-deps", f"--python={scripts / 'python'}"]
    done = run([UV, "pip", "install", *options, *what])
    assert done.returncode == 0, done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What building needs of the repository, as in a clone in which `make web` never ran."""
    folder = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "vendor", "node_modules")
    for name in ("src", "web"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for file in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / file, folder)
    return folder


def test_sdist_and_every_wheel_contain_the_bundle(built: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, wheel = built

    pip = [f"{sys.base_prefix}/bin/python3", "-m", "pip", f"--python={sys.executable}"]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = run([*pip, "wheel", *options, "--wheel-dir", tmp_path, sdist])

    assert done.returncode == 0, done.stdout
    assert bundle_in_sdist(sdist) == BUNDLE
    assert bundle_in_wheel(wheel) == BUNDLE
    assert [bundle_in_wheel(file) for file in tmp_path.iterdir()] == [BUNDLE]


def test_installed_wheel_serves_the_page_where_there_is_no_npm(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    scripts = make_venv(tmp_path / "venv")
    install(scripts, built[1])
    tools = tmp_path / "tools"
    tools.mkdir()
    environ = {"PATH": str(scripts), "TOOLKILN_STATE": str(tmp_path / "state")}

    with subprocess.Popen(
        [scripts / "toolkiln", "serve", "--port", "0", "--tools", tools],
        env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            url = address(server)
            page = fetched(f"{url}/ui/").decode()
            (static,) = set(re.findall(r"/ui/(static/\w+)/", page))
            received = {
                name: sha256(fetched(f"{url}/ui/{static}/vendor/{name}")).hexdigest()
                for name in HASHES
            }
        finally:
            server.kill()

    assert "/vendor/preact.js" in page
    assert received == HASHES
    assert shutil.which("npm", path=environ["PATH"]) is None


def address(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    lines = []
    for line in server.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
        lines.append(line)
    raise AssertionError("".join(lines))


def fetched(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=BOUND) as response:
        content: bytes = response.read()
    return content


@pytest.mark.parametrize("kind", ["--sdist", "--wheel"])
def test_building_without_the_bundle_fails_and_names_the_next_step(
    kind: str, checkout: Path, tmp_path: Path
) -> None:
    done = run([UV, "build", *HERE, kind, "--out-dir", tmp_path / "dist", checkout])

    assert done.returncode != 0
    assert "the page's bundle is missing" in done.stdout
    assert "run `make web` first" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list(tmp_path.glob("dist/toolkiln*"))


def test_building_with_an_outdated_bundle_fails(checkout: Path, tmp_path: Path) -> None:
    vendor = checkout / "src" / STATIC / "vendor"
    shutil.copytree(ROOT / "src" / STATIC / "vendor", vendor)
    (vendor / "uplot.js").write_text("of an earlier version")

    done = run([UV, "build", *HERE, "--out-dir", tmp_path / "dist", checkout])

    assert done.returncode != 0
    assert "the page's bundle is out of date (uplot.js)" in done.stdout


def test_bundle_is_made_without_a_python_environment(checkout: Path) -> None:
    installed = ROOT / "web/node_modules"
    if not installed.exists():
        pytest.skip("no npm")
    shutil.copy(ROOT / "Makefile", checkout)
    shutil.copytree(installed, checkout / "web/node_modules", symlinks=True)

    done = run(["make", "-C", checkout, "web"])

    assert done.returncode == 0, done.stdout
    made = checkout / "src" / STATIC / "vendor"
    assert {file.name for file in made.iterdir()} == {*HASHES, ".made"}
    assert not (checkout / ".venv").exists()


def test_editable_install_needs_no_bundle(checkout: Path, tmp_path: Path) -> None:
    scripts = make_venv(tmp_path / "venv")

    install(scripts, "--no-build-isolation", "--editable", checkout)

    done = run([scripts / "toolkiln", "--version"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_package_runs_as_a_module_with_the_same_status(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "toolkiln"]
    as_module = run([*module, "--help"], cwd=tmp_path)
    as_command = run([Path(sysconfig.get_path("scripts"), "toolkiln"), "--help"], cwd=tmp_path)
    failing = run([*module, "call", "missing"], cwd=tmp_path)

    assert as_module.returncode == 0
    usage, _, rest = as_module.stdout.partition("\n")
    assert usage.startswith("Usage: python -m toolkiln ")
    assert rest == as_command.stdout.partition("\n")[2]
    assert failing.returncode not in (0, 1)
    assert failing.stdout.startswith("error: ")


def test_locks_hold_a_hash_for_every_package_and_agree() -> None:
    development = locked(ROOT / "requirements-dev.lock")
    image = locked(ROOT / "deploy/container/requirements.lock")

    assert all(development.values())
    assert image.keys() < development.keys()
    assert all(hashes == development[package] for package, hashes in image.items())
    assert "://" not in (ROOT / "requirements-dev.lock").read_text()


def test_everything_that_installs_a_lock_requires_its_hashes() -> None:
    for file in ("Makefile", "deploy/container/Dockerfile"):
        text = (ROOT / file).read_text().replace("\\\n", " ")
        installs = re.findall(r"^.*-r \S+\.lock.*$", text, re.MULTILINE)

        assert installs
        assert [line for line in installs if "--require-hashes" not in line] == []


def test_the_compose_file_declares_its_volumes_and_keeps_the_keys_of_the_server() -> None:
    compose = yaml.safe_load((ROOT / "deploy/container/compose.yaml").read_text("utf-8"))
    services = compose["services"].values()
    mounts = [one.split(":") for service in services for one in service["volumes"]]
    named = {source for source, *_ in mounts if not source.startswith(".")}
    serve = compose["services"]["serve"]

    assert named == compose["volumes"].keys()
    assert {name for service in services for name in service["networks"]} == {"fleet"}
    assert compose["networks"].keys() == {"fleet"}
    assert "state:/var/lib/toolkiln" in serve["volumes"]
    assert serve["tmpfs"] == ["/tmp"]


def locked(file: Path) -> dict[str, set[str]]:
    """The hashes of each pinned package."""
    found: dict[str, set[str]] = {}
    for stanza in re.split(r"\n(?=[a-z0-9])", file.read_text()):
        if pin := re.match(r"[a-z0-9.-]+(\[[a-z,]+\])?==[^ ]+", stanza):
            found[pin[0]] = set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", stanza))
    return found
