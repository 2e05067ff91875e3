"""Entries in other programs' files: put in so that everything else stays, byte for byte."""

import json
import tomllib
from typing import Any

import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from toolkiln.surfaces.cli.mcp_clients import Format, JsonFormat, TomlFormat, YamlFormat

STRICT, COMMENTED = JsonFormat(), JsonFormat(comments=True)
TOML, YAML = TomlFormat(), YamlFormat()
FORMATS: list[Format] = [STRICT, COMMENTED, TOML, YAML]
KEYS = ("servers", "kiln")
OLD = {"command": "/opt/kiln", "args": ["mcp"]}
NEW = {"command": "/usr/bin/kiln", "args": ["-C", "/home/ann", "mcp"]}
STALE = ("url", "headers")


def parsed(form: Format, text: str) -> Any:
    """What a text means, by another reader than the one under test."""
    if isinstance(form, JsonFormat):
        return json.loads(bare(text) if form.comments else text) if text.strip() else {}
    if isinstance(form, TomlFormat):
        return tomllib.loads(text, parse_float=str)
    return yaml.safe_load(text) or {}


def bare(text: str) -> str:
    """JSON without comments and last commas, read character by character."""
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            out.append(text[at : end + 1])
            at = end + 1
        elif text.startswith("//", at):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif text.startswith("/*", at):
            at = text.index("*/", at) + 2
        else:
            if text[at] in "]}":
                while out and (out[-1].isspace() or out[-1] == ","):
                    out.pop()
            out.append(text[at])
            at += 1
    return "".join(out)


def after(before: Any, entry: Any) -> Any:
    """A document with an entry."""
    servers = (before.get("servers") or {}) | {"kiln": entry}
    return before | {"servers": servers}


def is_kept(before: str, changed: str) -> bool:
    """Whether all that can be seen of a text is still there, in its order."""
    left = iter(changed)
    return all(char in left for char in before if not char.isspace())


# Any document

BLANKS = st.sampled_from(["", "", " ", "\n", "\n  ", "\t", "\r\n"])
ASIDES = BLANKS | st.sampled_from([' /* {"a": 1}, */ ', ' // "servers": {\n', "/**/", "//\n"])
NAMES = st.sampled_from(["kiln", "a", "servers", "//", "/*", 'q"', "\\", "é", "", "command"])
SCALARS = st.sampled_from(["1", "-2.5e3", "true", "null", '""', '"}, // no"', '"/* \\" */"', '"ü"'])


@st.composite
def json_texts(draw: st.DrawFn, asides: st.SearchStrategy[str], depth: int = 3) -> str:
    """An object that someone wrote by hand."""
    members = []
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        is_ours = name in ("servers", "kiln")
        if depth and (is_ours or draw(st.booleans())):
            value = draw(json_texts(asides, depth - 1))
            value = value if is_ours or draw(st.booleans()) else f"[{value}]"
        else:
            value = "{}" if is_ours else draw(SCALARS)
        gaps = [draw(asides) for _ in range(4)]
        key = json.dumps(name, ensure_ascii=draw(st.booleans()))
        members.append(f"{gaps[0]}{key}{gaps[1]}:{gaps[2]}{value}{gaps[3]}")
    last = "," if members and asides is ASIDES and draw(st.booleans()) else ""
    return f"{{{','.join(members)}{last}{draw(asides)}}}"


def documents(asides: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("{}{}{}".format, asides, json_texts(asides), asides) | st.just("")


TOML_TOP = [
    'model = "x" # servers.kiln',
    "# [servers.kiln]",
    'text = """\n[servers.kiln]\ncommand = 1\n"""',
    "list = [\n  1, # one\n  [2],\n]",
    "numbers = [nan, -inf, 1e3]",
    "",
    "day = 1979-05-27T07:32:00Z",
    "a.b.c = {x = 1}",
]
TOML_TABLES = [
    "[servers]\nfast = true",
    '[servers."other one"]\ncommand = "x"',
    "[servers.kiln.env]\nA = '''\n[servers.kiln]\n'''",
    '[servers.kiln]\nurl = "http://x" # where\n# kept\nenabled = false',
    '[ servers . "kiln" ]\nargs = [\n "1",\n]\ncommand = "/opt/kiln"\n\n# end',
    "[[tables]]\nx = 1\n[[tables]]",
    '["servers.kiln"]\ncommand = "not ours"',
]


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    """A file of tables; `servers.kiln` is there once at most."""
    top = draw(st.lists(st.sampled_from(TOML_TOP), unique=True))
    tables = draw(st.lists(st.sampled_from(TOML_TABLES), unique=True))
    ours = [table for table in tables if table.startswith(TOML_TABLES[3][:14])]
    ours += [table for table in tables if table.startswith("[ servers")]
    text = "\n".join([*top, *(table for table in tables if table not in ours[1:])])
    text += draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


YAML_TOP = [
    "GOOSE_MODEL: x # servers:",
    "# servers:\n#   kiln:",
    "text: |\n  servers:\n    kiln: 1\n\n  more",
    "folded: >-\n  a\n  # no comment",
    "list:\n- a: 1\n  b: 2\n- c",
    "'quoted key': \"a: b\"",
    "flow:\n  x: {a: [1, 2]}",
    "",
    "long: a text\n  that goes on",
]
YAML_OTHERS = [
    "other:\n  cmd: x\n  args:\n  - a\n  # of other",
    "# before what follows",
    "third:\n  envs: {}\n  deep:\n    kiln:\n      cmd: no",
    '"4th": {cmd: x}',
]
YAML_OURS = [
    "",
    "kiln:",
    "kiln: {}",
    "'kiln': # ours\n  command: /opt/kiln # where\n  # of args\n  args:\n  - mcp\n  enabled: false",
    "kiln:\n  url: http://x\n  headers:\n    A: b\n  timeout: 3\n\n  # end",
]


@st.composite
def yaml_texts(draw: st.DrawFn) -> str:
    """A file of settings as people and Goose write them."""
    top = draw(st.lists(st.sampled_from(YAML_TOP), unique=True))
    inside = [
        *draw(st.lists(st.sampled_from(YAML_OTHERS), unique=True)),
        draw(st.sampled_from(YAML_OURS)),
    ]
    lines = [line for part in draw(st.permutations(inside)) for line in part.splitlines()]
    step = " " * draw(st.sampled_from([1, 2, 4]))
    under = "".join(f"\n{step}{line}" if line else "\n" for line in lines)
    said = any(line.strip() and not line.startswith("#") for line in lines)
    block = f"servers:{draw(st.sampled_from(['', ' # ours']))}{under}" if said else "servers: {}"
    parts = [*top, *([block] if draw(st.booleans()) or said else [])]
    # A text in lines that ends without one means something else when the file goes on.
    ends = ["\n", "\n\n"] if YAML_TOP[2] in top else ["", "\n", "\n\n"]
    text = "\n".join(draw(st.permutations(parts))) + draw(st.sampled_from(ends))
    text = draw(st.sampled_from(["", "---\n"])) + text
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def texts(form: Format) -> st.SearchStrategy[str]:
    if isinstance(form, JsonFormat):
        return documents(ASIDES if form.comments else BLANKS)
    return toml_texts() if isinstance(form, TomlFormat) else yaml_texts()


FORMS: st.SearchStrategy[Format] = st.sampled_from(FORMATS)
CASES = FORMS.flatmap(lambda form: st.tuples(st.just(form), texts(form)))
ENTRIES = st.fixed_dictionaries(
    {
        "command": st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        "args": st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    }
)


@given(CASES, ENTRIES)
def test_an_entry_is_put_in_and_nothing_else_changes_its_meaning(
    case: tuple[Format, str], entry: dict[str, Any]
) -> None:
    form, text = case
    before = parsed(form, text)
    servers = before.get("servers") or {}
    old = (servers.get("kiln") if isinstance(servers, dict) else None) or {}

    changed = form.put(text, KEYS, entry, STALE)

    kept = {key: value for key, value in old.items() if key not in STALE}
    assert parsed(form, changed) == after(before, kept | entry)
    assert form.entry(changed, KEYS) is not None


@given(CASES)
def test_an_entry_that_is_there_leaves_the_file_as_it_is(case: tuple[Format, str]) -> None:
    form, text = case
    changed = form.put(text, KEYS, NEW, STALE)

    again = form.put(changed, KEYS, NEW, STALE)

    assert again == changed


@given(CASES)
def test_a_file_without_the_entry_keeps_every_visible_character(case: tuple[Format, str]) -> None:
    form, text = case

    changed = form.put(text, KEYS, NEW, STALE)

    if form.entry(text, KEYS) is None and "{}" not in text:
        assert is_kept(text, changed)


@given(CASES)
def test_an_entry_that_changes_to_and_fro_leaves_no_trace(case: tuple[Format, str]) -> None:
    form, text = case
    first = form.put(form.put(text, KEYS, NEW, STALE), KEYS, OLD, STALE)

    changed = form.put(form.put(first, KEYS, NEW, STALE), KEYS, OLD, STALE)

    assert changed == first


@given(FORMS, st.text() | st.text("{}[]:,\"'#/*\n -=ak."))
def test_a_text_that_is_no_such_file_is_an_error_or_keeps_its_meaning(
    form: Format, text: str
) -> None:
    try:
        changed = form.put(text, KEYS, NEW, STALE)
    except ValueError:
        return

    assert form.entry(changed, KEYS) is not None
    if means_something(form, text):
        assert without(parsed(form, changed)) == without(parsed(form, text))


def means_something(form: Format, text: str) -> bool:
    """Whether another reader understands it: of YAML, ours looks at little."""
    try:
        return isinstance(parsed(form, text), dict)
    except (ValueError, yaml.YAMLError):
        assert isinstance(form, YamlFormat)
        return False


def without(document: Any) -> Any:
    return {key: value for key, value in document.items() if key != "servers"}
