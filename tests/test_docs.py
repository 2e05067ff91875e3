"""The pages in docs/ are compared with the code: rules, commands, options, code blocks, links."""

import ast
import doctest
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from inspect import getmembers, isfunction, signature
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import preloaded
from tables import each_row
from toolkiln import define
from toolkiln.catalog.registry import NotAdmitted
from toolkiln.catalog.reports import check
from toolkiln.config import Settings, load
from toolkiln.errors import ToolkilnError
from toolkiln.execution.executor import MAXIMA, Bounds
from toolkiln.execution.outcomes import limit_error
from toolkiln.fleet.delivery import Counts, WorkerMetrics
from toolkiln.fleet.worker_process import WorkerDraining
from toolkiln.kiln import PROVIDERS, Kiln
from toolkiln.model.call import Result, Status
from toolkiln.model.identity import Privilege
from toolkiln.model.policy import ApprovalState
from toolkiln.model.source import Severity
from toolkiln.model.spec import Capability, Dialect, HealthLevel
from toolkiln.operations.engine import CallOptions
from toolkiln.search.embedder import EmbeddingFailed
from toolkiln.security.audit import AuditFailed
from toolkiln.security.sessions import NoSession
from toolkiln.surfaces.cli.app import app
from toolkiln.surfaces.cli.mcp_clients import CLIENTS, settings_file
from toolkiln.surfaces.http.metrics import Metrics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# (\S+\.py)\n")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text("utf-8")


# Names

METHODS = [name for name, _ in getmembers(define.Context, isfunction) if name[0] != "_"]
TOOLKIT_OPTIONS = {
    name
    for decorator in (define.tool_metadata, define.method_metadata)
    for name in signature(decorator).parameters
}


@each_row(
    "name, words, form",
    [
        ("cli", [*PROVIDERS, "schema", "docs", *Dialect], "`{}`"),
        ("providers", [*PROVIDERS, *HealthLevel], "| `{}` |"),
        ("calling", [*Result.model_fields], "`{}`"),
        ("calling", [*Status], "| `{}` |"),
        ("writing-tools", [*Capability, *TOOLKIT_OPTIONS], "`{}`"),
        ("writing-tools", METHODS, "\n| `{}("),
        ("security", [*Privilege, *get_args(ApprovalState)], "| `{}` |"),
    ],
)
def test_every_name_is_documented(name: str, words: list[str], form: str) -> None:
    assert words
    assert [word for word in words if form.format(word) not in page(name)] == []


def test_every_option_of_the_decorator_is_documented() -> None:
    options = define.ToolOptions.__annotations__

    assert options
    assert [one for one in options if not re.search(rf"`{one}\b", page("writing-tools"))] == []


# Findings


def test_every_rule_is_documented_and_every_documented_rule_exists() -> None:
    documented = re.findall(r"^### `([a-z-]+)`$", page("findings"), re.M)

    assert len(documented) == len(set(documented))
    assert set(documented) == rules_in_source()


def test_every_rule_says_its_severity_and_its_fix() -> None:
    parts = re.split(r"^### ", page("findings"), flags=re.M)[1:]
    words = "|".join(Severity)

    for part in parts:
        text = " ".join(part.split("\n## ")[0].split())
        assert re.match(rf"`[a-z-]+` Severity: (?:{words})\b", text), text
        assert " Fix: " in text


def test_rules_are_found_in_every_way_of_writing_them() -> None:
    source = """
class Remark(NamedTuple):
    rule: str
def report(node, rule, message): ...
class Reader:
    def fail(self, rule): ...
Finding(rule="a-a" if x else "b-b")
Remark("c-c")
report(n, "d-d", "not-this-one")
self.fail("e-e")
how = f.fail if x else f.fail
how("f-f")
rule = "not-this-either"
"""

    assert rules_in([ast.parse(source)]) == {"a-a", "b-b", "c-c", "d-d", "e-e", "f-f"}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def rules_in_source() -> set[str]:
    return rules_in([parsed(file) for file in sorted((ROOT / "src").rglob("*.py"))])


def rules_in(trees: list[ast.Module]) -> set[str]:
    """The rule names that are written down in source code.

    A rule is a string given as `rule` to anything that takes a `rule`: by name, or by its
    place among the parameters of a function or the fields of a class.
    """
    everywhere = {name: at for tree in trees for name, at in places_of_rule(tree) if name[0] != "_"}
    found: set[str] = set()
    for tree in trees:
        places = {**everywhere, **dict(places_of_rule(tree))}
        places |= dict(aliases(tree, places))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
            place = places.get(called(node))
            if place is not None:
                given += node.args[place : place + 1]
            for value in given:
                found.update(strings(value))
    return {rule for rule in found if re.fullmatch(r"[a-z]+(?:-[a-z]+)+", rule)}


def places_of_rule(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            fields = [f for f in node.body if isinstance(f, ast.AnnAssign)]
            names = [f.target.id for f in fields if isinstance(f.target, ast.Name)]
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and "rule" in names:
            yield node.name, names.index("rule")


def aliases(tree: ast.Module, places: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Local names for one of two reporting functions, as in `report = f.warn if x else f.error`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.IfExp(body=ast.Attribute(attr=one), orelse=ast.Attribute(attr=other)),
            ) if one in places and other in places:
                yield name, places[one]


def called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def strings(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from strings(node.body)
        yield from strings(node.orelse)


# Command line


def test_every_command_and_option_is_documented_and_exists() -> None:
    text = page("cli")
    sections = re.findall(r"^## toolkiln ([\w -]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    documented = {
        name: {
            option
            for cell in re.findall(r"^\| (`-.*?) \|", body, re.M)
            for option in re.findall(r"`(--?[\w-]+)`", cell)
        }
        for name, body in sections
    }

    assert documented == options_of_commands()


def test_every_argument_of_a_command_is_shown() -> None:
    for name, command in commands().items():
        arguments = [
            f"{(p.name or '').upper()}{'…' if p.nargs == -1 else ''}"
            for p in command.params
            if p.param_type_name == "argument"
        ]
        assert f"`{' '.join(['toolkiln', name, *arguments])}" in page("cli")


def options_of_commands() -> dict[str, set[str]]:
    return {
        name: {
            option
            for p in command.params
            if p.param_type_name == "option" and not p.hidden
            for option in (*p.opts, *p.secondary_opts)
        }
        for name, command in commands().items()
    }


@cache
def commands() -> dict[str, Any]:
    # Typer carries its own copy of click, which has no public types.
    group: Any = typer.main.get_command(app)
    return dict(commands_of(group, ""))


def commands_of(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


# Calls


def test_every_error_code_is_documented_and_every_documented_code_exists() -> None:
    section = page("calling").split("## Error codes")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w, –]+) \|", section, re.M)

    assert len(rows) == len({code for code, _ in rows})
    assert {code for code, _ in rows} == codes_of_results() | codes_of_errors()
    assert {word for _, words in rows for word in words.split(", ")} <= {*Status, "–"}


def codes_of_results() -> set[str]:
    """What the source gives or assigns as `code`, alone or as the first of several; limits."""
    found = {limit_error(bound.name, Bounds())[1].code for bound in fields(Bounds)}
    for folder in ("execution", "runtime", "sandbox", "security"):
        for file in (ROOT / "src" / "toolkiln" / folder).rglob("*.py"):
            for node in ast.walk(parsed(file)):
                match node:
                    case (
                        ast.keyword(arg="code", value=value)
                        | ast.Assign(targets=[ast.Name(id="code")], value=value)
                        | ast.Assign(
                            targets=[ast.Tuple(elts=[ast.Name(id="code"), *_])],
                            value=ast.Tuple(elts=[value, *_]),
                        )
                    ):
                        found.update(strings(value))
    return found


def codes_of_errors() -> set[str]:
    """The codes of the error tree without the root, which is never raised."""
    # Their errors belong to the tree as well.
    assert all((AuditFailed, EmbeddingFailed, NoSession, NotAdmitted, WorkerDraining))
    tree = [ToolkilnError]
    for kind in tree:
        tree += kind.__subclasses__()
    return {kind.code for kind in tree[1:]}


def test_every_option_of_a_call_is_documented() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", page("calling").split("option of `call`")[1], re.M)
    options = {*signature(Kiln.call).parameters, *CallOptions.__annotations__}

    assert options - {"self", "name", "arguments", "options"} <= set(rows)


@pytest.mark.parametrize("name", ["calling", "authoring", "models", "frameworks"])
def test_blocks_about_calls_run_as_they_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    for block in _BLOCK.findall(page(name)):
        if file := _FILE.match(block):
            path = tmp_path / file[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(block, "utf-8")
        else:
            exec(block, {"__name__": "__main__"})

    assert capfd.readouterr() == ("", "")


# Settings

_OTHERWISE = {
    "sandbox": "B", "authoring": "off", "policy": "deny", "redis": "redis://x",
    "fleet": "redis://x", "telemetry": "http://x",
}  # fmt: skip
"""Values of settings that take only some."""


def test_every_setting_is_documented_with_its_variable_and_exists(tmp_path: Path) -> None:
    section = page("settings").split("## All settings")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (?:`(\w+)` )?\| .* \|$", section, re.M)
    known = {item.name: getattr(Settings(), item.name) for item in fields(Settings)}
    for not_set in ("environ", "source", "file_stamp", "loaded"):
        del known[not_set]

    assert {name for name, _ in rows} == set(known)
    for name, variable in rows:
        assert variable in ("", f"TOOLKILN_{name.upper()}")
        value = _OTHERWISE.get(name, "true" if isinstance(known[name], bool) else "1")
        changed = getattr(load(tmp_path, {f"TOOLKILN_{name.upper()}": value}), name)
        assert (changed != known[name]) == bool(variable), name


def test_defaults_are_as_documented() -> None:
    for name in (
        "workspace_bytes", "workspace_files", "sandbox", "host", "port", "body_bytes",
        "concurrent_requests", "request_seconds", "drain_seconds",
    ):  # fmt: skip
        row = rf"^\| `{name}` \| `?{getattr(Settings(), name)}`? \|"
        assert re.search(row, page("settings"), re.M), name


def test_every_limit_is_documented_with_its_default_and_its_maximum() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (\d+) \|", page("settings"), re.M)

    assert {name for name, _, _ in rows} == {bound.name for bound in fields(Bounds)}
    for name, default, most in rows:
        assert float(most) == getattr(MAXIMA, name)
        assert default == "as the timeout" or float(default) == getattr(Bounds(), name)


def test_the_settings_shown_can_be_used(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page("settings"), re.M | re.S)
    (tmp_path / "toolkiln.toml").write_text(block)

    settings = load(tmp_path, {})

    assert settings.grants["rename_files"] == {"workspace": "write"}
    assert settings.limits["timeout"] == 120


# Providers


def test_blocks_about_providers_run_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples" / "tools", "examples/tools")
    environ = {**os.environ, "TOOLKILN_STATE": str(tmp_path / "state")}
    admit = ["admit", "--yes", "--no-probe", "--tools", "examples/tools"]
    subprocess.run([preloaded.command(), *admit], env=environ, check=True)
    names: dict[str, object] = {}

    for block in _BLOCK.findall(page("providers")):
        exec(block, names)

    assert "compiled" in names


# Writing tools


def test_tools_in_the_guide_pass_the_strict_check_and_are_of_every_dialect(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rates.json").write_text("{}", "utf-8")  # what one of them declares
    dialects = set()

    for source in _BLOCK.findall(page("writing-tools")):
        file = tmp_path / "example.py"
        file.write_text(source, "utf-8")

        (report,) = check([file])

        assert report.reading.tools, source
        assert report.worst in (None, Severity.INFO), source
        dialects |= {spec.dialect for spec in report.reading.tools}
    assert dialects == set(Dialect)


def test_sessions_in_the_guide_are_true() -> None:
    text = page("writing-tools")
    before, session = re.findall(
        r"^```python\n([^`]*?)^```\n+```pycon\n(.*?)^```$", text, re.M | re.S
    )[0]
    names: dict[str, Any] = {}
    exec(before, names)

    example = doctest.DocTestParser().get_doctest(session, names, "guide", None, None)

    assert doctest.DocTestRunner().run(example) == doctest.TestResults(0, 3)


# Serving


def test_every_metric_is_documented_with_its_kind(tmp_path: Path) -> None:
    documented = dict(re.findall(r"^\| `(toolkiln_\w+)` \| (\w+) \|", page("serving"), re.M))

    with Kiln(tmp_path, settings=Settings(state=tmp_path)) as kiln:
        metrics = Metrics()
        metrics.watch(kiln)
        metrics.watch_worker(lambda: WorkerMetrics("default", 0, 0.0, Counts()))
        known = {
            f"{metric.name}_total" if metric.type == "counter" else metric.name: metric.type
            for metric in metrics.registry.collect()
            if metric.name.startswith("toolkiln_")
        }

    assert documented == known


# All pages


def test_links_lead_somewhere() -> None:
    for file in (*sorted(DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md"):
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", file.read_text("utf-8")):
            if "://" in target:
                continue
            other = (file.parent / target) if target else file
            assert other.exists(), (file, target)
            if anchor:
                assert anchor in anchors(other), (file, anchor)


def test_every_picture_is_shown_taken_by_the_script_and_small() -> None:
    pictures = {file.stem: file.stat().st_size for file in (DOCS / "images").iterdir()}
    shown = set(re.findall(r"\]\(images/([\w-]+)\.png\)", page("page")))
    script = (ROOT / "scripts/screenshots.py").read_text("utf-8")

    assert pictures.keys() == shown == set(re.findall(r'Shot\("([\w-]+)"', script))
    assert max(pictures.values()) <= 150_000


@cache
def anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


# Clients


def test_every_client_is_documented_with_its_files_and_its_place_in_them() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(.*)` \| (?:`(.*)` )?\| `(\w+)` \|$", page("clients"), re.M
    )
    here = Path("/here")

    assert {name: (user, project, (key,)) for name, user, project, key in rows} == {
        name: (
            str(settings_file(client.user, here, {"HOME": "~"})),
            str(settings_file(client.project, here, {"HOME": "~"}).relative_to(here))
            if client.project
            else "",
            client.keys,
        )
        for name, client in CLIENTS.items()
    }
