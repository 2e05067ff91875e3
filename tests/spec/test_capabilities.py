"""What a file can touch is found through aliases, and ordinary code has no findings."""

import ast
import sysconfig
from pathlib import Path
from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.model.spec import Capability
from toolkiln.spec.checks.capabilities import CapabilityUse, find_uses
from toolkiln.spec.syntax import walk


def uses(source: str) -> set[str]:
    return {f"{use.capability}: {use.api}" for use in find_uses(walk(ast.parse(dedent(source))))}


def kinds(source: str) -> set[str]:
    return {str(use.capability) for use in find_uses(walk(ast.parse(dedent(source))))}


@each_row(
    "source, expected",
    [
        ("import httpx", "network: import httpx"),
        ("import httpx as h", "network: import httpx"),
        ("from httpx import AsyncClient", "network: import httpx"),
        ("import urllib.request as r\nr.urlopen(u)", "network: import urllib.request"),
        ("from urllib import request", "network: import urllib.request"),
        ("import urllib\nurllib.request.urlopen(u)", "network: import urllib.request"),
        ("import google.cloud.storage", "network: import google.cloud"),
        ("from google.cloud import bigquery", "network: import google.cloud"),
        ("import _socket", "network: import socket"),
        ("def f():\n    import requests", "network: import requests"),
        ("try:\n    import requests\nexcept ImportError:\n    pass", "network: import requests"),
        ("import asyncio\nasyncio.open_connection('h', 1)", "network: asyncio.open_connection"),
        (
            "import asyncio\nloop = asyncio.get_running_loop()\nloop.create_connection(f)",
            "network: asyncio.loop.create_connection",
        ),
        ("import pandas as pd\npd.read_csv('https://x.org/a')", "network: pandas.read_csv"),
        ("import sqlalchemy as sa\nsa.create_engine(url)", "network: sqlalchemy.create_engine"),
        ("open('x')", "files: open"),
        ("import io\nio.open('x')", "files: io.open"),
        ("import builtins\nbuiltins.open('x')", "files: open"),
        ("from pathlib import Path\nPath('x').read_text()", "files: Path.read_text"),
        ("import pathlib as p\np.Path('x').open()", "files: Path.open"),
        ("from pathlib import Path as P\nq = P('x')\nq.rename(y)", "files: Path.rename"),
        ("from pathlib import Path\n(Path('a') / 'b' / c).exists()", "files: Path.exists"),
        ("from pathlib import Path\nPath.home().joinpath('a').stat()", "files: Path.stat"),
        ("from pathlib import Path\nPath('a').resolve().parent.glob('*')", "files: Path.glob"),
        ("from pathlib import Path\ndef f(p: Path): p.open()", "files: Path.open"),
        ("from pathlib import Path\ndef f(p: Path | None): p.open()", "files: Path.open"),
        ("from pathlib import Path\n(p := Path('x')).open()", "files: Path.open"),
        ("from pathlib import Path\ndef f(x): x.write_text('')", "files: Path.write_text"),
        (
            "from pathlib import Path\nclass T:\n def __init__(self): self.p = Path('x')\n"
            " def f(self): return self.p.stat()",
            "files: Path.stat",
        ),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pathlib import Path\n"
            "def f(p: Path): return p.open()",
            "files: Path.open",
        ),
        ("import os\nos.listdir('.')", "files: os.listdir"),
        ("import os.path as op\nop.exists('x')", "files: os.path.exists"),
        ("import posix\nposix.remove('x')", "files: os.remove"),
        ("import shutil\nshutil.rmtree('x')", "files: shutil.rmtree"),
        ("import sqlite3\nsqlite3.connect('a.db')", "files: sqlite3.connect"),
        ("import zipfile\nzipfile.ZipFile(path)", "files: zipfile.ZipFile"),
        (
            "import io, zipfile\nwith zipfile.ZipFile(io.BytesIO(b)) as z: z.extractall('x')",
            "files: zipfile.ZipFile.extractall",
        ),
        ("import pandas as pd\npd.read_csv(path)", "files: pandas.read_csv"),
        ("from PIL import Image\nImage.open(path)", "files: PIL.Image.open"),
        ("from subprocess import run", "subprocess: import subprocess"),
        ("import os as o\no.system('ls')", "subprocess: os.system"),
        ("from os import system as s\ns('ls')", "subprocess: os.system"),
        ("from os import *\nsystem('ls')", "subprocess: os.system"),
        ("import os\nrun = os.popen\nrun('ls')", "subprocess: os.popen"),
        ("import os\no = os\np = o\np.execv('a', [])", "subprocess: os.execv"),
        ("import os, re\no, r = os, re\no.fork()", "subprocess: os.fork"),
        ("import os\ndef f(o=os): o.system('x')", "subprocess: os.system"),
        ("import os\ndef f(*, o=os): o.system('x')", "subprocess: os.system"),
        ("import os\n(os if x else y).system('x')", "subprocess: os.system"),
        ("import os\n(x or os).system('x')", "subprocess: os.system"),
        ("import io as m\nimport os as m\nm.system('x')", "subprocess: os.system"),
        ("import os\ngetattr(os, 'system')('x')", "subprocess: os.system"),
        ("import os\ngetattr(os, 'sys' + 'tem')('x')", "subprocess: os.system"),
        ("import os\ngetattr(os, f'sys{\"tem\"}')('x')", "subprocess: os.system"),
        ("import os\nvars(os)['system']('x')", "subprocess: os.system"),
        ("import os\nos.__dict__['system']('x')", "subprocess: os.system"),
        ("__import__('os').system('x')", "subprocess: os.system"),
        ("import importlib\nimportlib.import_module('os').fork()", "subprocess: os.fork"),
        ("import sys\nsys.modules['os'].system('x')", "subprocess: os.system"),
        ("import sys\nsys.modules.get('os').system('x')", "subprocess: os.system"),
        ("import shutil\nshutil.os.system('x')", "subprocess: os.system"),
        ("import random\nrandom._os.system('x')", "subprocess: os.system"),
        (
            "import asyncio\nasyncio.create_subprocess_exec('x')",
            "subprocess: asyncio.create_subprocess_exec",
        ),
        ("import multiprocessing as mp\nmp.Pool(2)", "subprocess: multiprocessing.Pool"),
        (
            "from concurrent.futures import ProcessPoolExecutor as E\nE()",
            "subprocess: concurrent.futures.ProcessPoolExecutor",
        ),
        ("import os\nos.environ['A']", "environment: os.environ"),
        ("from os import environ\nenviron.get('A')", "environment: os.environ"),
        ("from os import getenv as g\ng('A')", "environment: os.getenv"),
        ("from dotenv import load_dotenv", "environment: import dotenv"),
        ("import ctypes.util", "native: import ctypes"),
        ("from cffi import FFI", "native: import cffi"),
        ("eval('1')", "dynamic_code: eval"),
        ("e = eval\ne('1')", "dynamic_code: eval"),
        ("list(map(eval, x))", "dynamic_code: eval"),
        ("exec(compile(x, 'f', 'exec'))", "dynamic_code: compile"),
        ("import builtins as b\nb.eval('1')", "dynamic_code: eval"),
        ("from builtins import exec as e\ne('1')", "dynamic_code: exec"),
        ("__builtins__['eval']('1')", "dynamic_code: eval"),
        ("__builtins__.eval('1')", "dynamic_code: eval"),
        ("globals()['__builtins__']", "dynamic_code: __builtins__"),
        ("globals().get('__builtins__')", "dynamic_code: __builtins__"),
        ("f.__builtins__", "dynamic_code: __builtins__"),
        ("import pickle\npickle.loads(x)", "dynamic_code: pickle.loads"),
        ("from pickle import load\nload(f)", "dynamic_code: pickle.load"),
        ("import yaml\nyaml.load(x)", "dynamic_code: yaml.load"),
        ("import yaml\nyaml.load(x, Loader=yaml.Loader)", "dynamic_code: yaml.load"),
        ("import types\ntypes.FunctionType(c, {})", "dynamic_code: types.FunctionType"),
        ("from code import interact", "dynamic_code: import code"),
        ("__import__('json')", "dynamic_import: __import__"),
        (
            "from importlib import import_module as i\ni(x)",
            "dynamic_import: importlib.import_module",
        ),
        ("import importlib.util", "dynamic_import: import importlib.util"),
        ("import sys\nsys.path.append('x')", "dynamic_import: sys.path.append"),
        ("import sys\nsys.path = []", "dynamic_import: sys.path"),
        ("import sys\nsys.path += ['x']", "dynamic_import: sys.path"),
        ("import sys\nsys.path[:0] = ['x']", "dynamic_import: sys.path"),
        ("from sys import path\npath.insert(0, 'x')", "dynamic_import: sys.path.insert"),
        ("import sys\ndel sys.modules['json']", "dynamic_import: sys.modules"),
        ("__loader__.load_module('os')", "dynamic_import: __loader__"),
        ("__spec__.loader.load_module('os')", "dynamic_import: __spec__.loader"),
        ("().__class__.__bases__[0].__subclasses__()", "introspection: __subclasses__"),
        ("getattr(x, '__subclasses__')()", "introspection: __subclasses__"),
        ("getattr(x, '__sub' + 'classes__')()", "introspection: __subclasses__"),
        ("n = '__subclasses__'\ngetattr(x, n)()", "introspection: __subclasses__"),
        ("object.__getattribute__(f, '__globals__')", "introspection: __globals__"),
        (
            "from operator import attrgetter\nattrgetter('a.__globals__')",
            "introspection: __globals__",
        ),
        ("'{0.__init__.__globals__}'.format(x)", "introspection: __globals__"),
        ("match f:\n    case object(__globals__=g): pass", "introspection: __globals__"),
        ("e.__traceback__.tb_frame.f_back", "introspection: f_back"),
        ("import gc\ngc.get_objects()", "introspection: gc.get_objects"),
        ("from inspect import currentframe\ncurrentframe()", "introspection: inspect.currentframe"),
        ("import sys\nsys._getframe(1)", "introspection: sys._getframe"),
        ("import os\ngetattr(os, name)('x')", "introspection: getattr(os, …)"),
        ("import os\ngetattr(os, 'metsys'[::-1])('x')", "introspection: getattr(os, …)"),
        ("import os\nvars(os)", "introspection: vars(os)"),
        ("import os\nvars(os)[name]", "introspection: vars(os)"),
    ],
)
def test_a_capability_is_found_however_it_is_spelt(source: str, expected: str) -> None:
    assert expected in uses(source)


@each_row(
    "source",
    [
        "",
        "import os\nos.path.join('a', os.getcwd(), os.sep)",
        "import os",
        "import sys\nprint(sys.argv, sys.path, sys.version_info)",
        "import sys\nthis = sys.modules[__name__]",
        "import sys\nif 'numpy' in sys.modules: pass",
        "from pathlib import PurePath\nPurePath('x').name",
        "from pathlib import Path\nPath('x') / 'y'",
        "from pathlib import Path\nPath('x').with_suffix('.y').name.replace('a', 'b')",
        "from pathlib import Path\npath = Path('x')\npath = str(path)\npath.replace('a', 'b')",
        "import re\nre.compile('x')",
        "from re import compile\ncompile('x')",
        "client.open()\nmodel.eval()\ncursor.exec('x')\ndf.eval('a + b')",
        "def open(x): ...\nopen('x')",
        "async def run(x): ...\nrun('x')",
        "class compile: ...\ncompile()",
        "def f(open): return open('x')",
        "def f(x, eval=None): return eval(x) if eval else x",
        "def f():\n    def exec(x): ...\n    return lambda: exec('x')",
        "[open for open in doors]",
        "lambda compile: compile(1)",
        "open = make_opener()\nopen('x')",
        "from .door import open\nopen('x')",
        "from door import open\nopen('x')",
        "def f(doors):\n    for open in doors: print(open)",
        "try: ...\nexcept E as eval: print(eval)",
        "from .requests import get",
        "from . import socket",
        "import requests_mock_of_mine",
        "from requests.exceptions import HTTPError",
        "from http import HTTPStatus",
        "from urllib.parse import quote",
        "import importlib.metadata\nimportlib.metadata.version('x')",
        "import asyncio\nasyncio.run(asyncio.gather(f()))",
        "import io\nio.BytesIO(b'').read()",
        "import gzip\ngzip.decompress(b)",
        "import io, zipfile\nzipfile.ZipFile(io.BytesIO(b)).namelist()",
        "import io, zipfile\nb = io.BytesIO(x)\nwith zipfile.ZipFile(b) as z: z.read('a')",
        "import io, pandas as pd\npd.read_csv(io.StringIO(text), sep=';')",
        "import sqlite3\nsqlite3.connect(':memory:')",
        "import yaml\nyaml.safe_load(x)\nyaml.load(x, Loader=yaml.SafeLoader)",
        "import pickle\npickle.dumps(x)",
        "import json\njson.loads(x)",
        "import types\nisinstance(x, types.FunctionType)",
        "import inspect\ninspect.signature(f)",
        "import ast\nast.literal_eval(x)",
        "import shutil\nshutil.get_terminal_size()",
        "import multiprocessing\nmultiprocessing.cpu_count()",
        "import os\nos.cpu_count()\nos.urandom(8)\nos.getpid()",
        "import os\nos.path.basename(p)\nos.path.splitext(p)",
        "import os\ngetattr(os, 'O_BINARY', 0)",
        "getattr(x, name)\ngetattr(x, '__name__', '')\nsetattr(x, 'a', 1)",
        "x.__class__.__name__\nx.__dict__\ntype(x).__doc__\nvars(x)\nvars()",
        "super().__init__()\nself.__class__(1)",
        "'call __globals__ in prose'",
        "globals()['name']",
        "'__all__'",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import requests\n"
        "def f(s: requests.Session): ...",
        "import typing as t\nif t.TYPE_CHECKING:\n    from socket import socket",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import socket",
        "match x:\n    case Point(x=1): pass",
    ],
)
def test_ordinary_code_uses_nothing(source: str) -> None:
    assert uses(source) == set()


@each_row(
    "source, expected",
    [
        ("class T:\n    def open(self): ...\n    def f(self): return open('x')", "files"),
        ("class T:\n    def eval(self, x): return eval(x)", "dynamic_code"),
        ("def f(eval): ...\ndef g(x): return eval(x)", "dynamic_code"),
        ("[0 for eval in ()]\neval('x')", "dynamic_code"),
        ("def f(x, open=open): return open(x)", "files"),
        ("eval = eval\neval('x')", "dynamic_code"),
        ("def eval(x): ...\ndel eval\neval('x')", "dynamic_code"),
        ("TYPE_CHECKING = True\nif TYPE_CHECKING:\n    import socket", "network"),
        ("from mine import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket", "network"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING: ...\nelse:\n    import socket",
            "network",
        ),
        ("def f():\n    os = 1\nimport os\nos.system('x')", "subprocess"),
    ],
)
def test_a_redefinition_elsewhere_hides_nothing(source: str, expected: str) -> None:
    assert expected in kinds(source)


def test_each_use_is_reported_once_where_it_comes_first() -> None:
    source = (
        "import httpx, os\n\ndef f():\n    os.getenv('A')\n    import httpx\n\nos.getenv('B')\n"
    )

    found = find_uses(walk(ast.parse(source)))

    assert found == [
        CapabilityUse(Capability.NETWORK, 1, 1, "import httpx"),
        CapabilityUse(Capability.ENVIRONMENT, 4, 5, "os.getenv"),
    ]


def test_chains_longer_than_pythons_stack_are_read() -> None:
    chain = "import os\nos" + ".a" * 2_000 + "\nx" + ".a" * 2_000 + "()" * 500

    assert uses(chain) == set()


def test_the_walk_finds_every_node_that_ast_walk_does() -> None:
    left_out = ast.expr_context | ast.operator | ast.boolop | ast.unaryop | ast.cmpop
    source = dedent(
        """
        def f(a, /, b=1, *c: int, d, e=2, **g) -> {**x, "k": 1}:
            global h, i
            async with j as k, m: pass
            match n:
                case {"o": P(q, r=1), **rest} | [1, *s]: pass
                case None: pass
            return [t for u in v if w], f"{x!r:>{y}}", a < b < c, not -z
        """
    )
    for text in [source, Path(ast.__file__).read_text(), Path(dis_file()).read_text()]:
        tree = ast.parse(text)

        found = walk(tree)

        assert len(found) == len(set(map(id, found)))
        expected = {id(node) for node in ast.walk(tree) if not isinstance(node, left_out)}
        assert set(map(id, found)) == expected


def dis_file() -> str:
    return str(Path(sysconfig.get_paths()["stdlib"]) / "dis.py")


@each_row(
    "module", ["json.decoder", "textwrap", "statistics", "colorsys", "html.parser", "bisect", "csv"]
)
def test_pure_modules_of_the_standard_library_use_nothing(module: str) -> None:
    path = Path(sysconfig.get_paths()["stdlib"], *module.split(".")).with_suffix(".py")

    assert uses(path.read_text()) == set()


NAMES = st.sampled_from(["os", "open", "eval", "Path", "getattr", "x", "sys", "__import__", "self"])
EXPRESSIONS = st.recursive(
    NAMES | st.sampled_from(["'system'", "'__globals__'", "1"]),
    lambda inner: st.one_of(
        st.tuples(inner, NAMES).map(lambda p: f"({p[0]}).{p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]})({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]})[{p[1]}]"),
        st.tuples(inner, inner, inner).map(lambda p: f"getattr({p[0]}, {p[1]}, {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} + {p[1]})"),
        inner.map(lambda p: f"(lambda open: {p})"),
        inner.map(lambda p: f"[{p} for eval in {p}]"),
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(NAMES.filter(lambda n: n != "__import__"), EXPRESSIONS), max_size=4))
def test_no_expression_raises(assignments: list[tuple[str, str]]) -> None:
    header = "import os, sys\nfrom pathlib import Path\n"
    lines = [f"{name} = {value}\n" for name, value in assignments]

    found = find_uses(walk(ast.parse(header + "".join(lines))))

    assert found == sorted(found, key=lambda use: (use.line, use.column, use.api))
