"""Requirements: the packages a file lists, and imports of packages it does not list.

A file lists packages in its PEP 723 block, in `@tool(requirements=[…])`, in a `requirements:`
line of the module docstring or in `# requirements:` comments. Only names with versions are
accepted, not direct URLs, paths or installer options. Nothing is resolved or installed here,
no index is queried, and `packaging` is imported only when there is something to parse.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkiln.frameworks.modules import is_provided
from toolkiln.spec.findings import Findings
from toolkiln.spec.local_imports import NEVER_HELPERS
from toolkiln.spec.namespace import Import, Module
from toolkiln.spec.syntax import split_list

if TYPE_CHECKING:
    from packaging.requirements import Requirement


class RequirementProblem(NamedTuple):
    """An invalid requirement, or an invalid list of them."""

    line: int
    message: str
    fix: str


class Requirements(NamedTuple):
    """The requirements of a file, and the problems found while reading them."""

    packages: tuple[str, ...]
    """Normalised requirement strings, in order of appearance."""
    table: dict[str, Any]
    """The `[tool.toolkiln]` table of the PEP 723 block."""
    requires_python: str | None
    problems: tuple[RequirementProblem, ...]

    def provide(self, module: str) -> bool:
        """Return whether a required package provides a module, by its dotted name."""
        if not self.packages:
            return False
        listed = {_normalised(_PACKAGE_NAME.split(item, maxsplit=1)[0]) for item in self.packages}
        return _is_among(listed, module)


def _is_among(packages: Set[str], module: str) -> bool:
    names = (module.partition(".")[0], distribution_of(module))
    return any(name is not None and _normalised(name) in packages for name in names)


_OPENING = re.compile(r"^# /// (?P<type>[a-zA-Z0-9-]+)$", re.MULTILINE)
_COMMENTS = re.compile(r"(?:\n#(?: [^\n]*)?(?=\n|\Z))*")
_COMMENT = re.compile(r"# ?requirements:([^\n]*)")
_FRONTMATTER = re.compile(r"^[ \t]*requirements:(.*)$", re.MULTILINE)
_TOML_LINE = re.compile(r"at line (\d+)")
_ARCHIVE = (".whl", ".zip", ".tar.gz", ".egg")
_PACKAGE_NAME = re.compile(r"[^\w.-]")
_MAX_LENGTH = 500
"""Characters per requirement."""
_MAX_REQUIREMENTS = 200
"""Requirements per file; bounds the pairwise checks."""
_LISTED = re.compile(r"[ \t]*([A-Za-z0-9][\w.-]*)")
_MAX_LISTED = 1_000_000
"""Bytes of a `requirements.txt`."""


def listed_packages(folder: Path) -> frozenset[str]:
    """Return the names in the `requirements.txt` of a folder, which applies to all its tools.

    Whether its lines are valid is checked when an environment is built.
    """
    file = folder / "requirements.txt"
    try:
        if not file.is_file():  # reading a pipe would block
            return frozenset()
        with file.open(encoding="utf-8-sig", errors="replace") as stream:
            lines = stream.read(_MAX_LISTED).splitlines()
    except OSError:
        return frozenset()
    return frozenset(_normalised(match[1]) for line in lines if (match := _LISTED.match(line)))


def read_requirements(
    source: str, module_docstring: str | None, declared: Sequence[tuple[str, int]] = ()
) -> Requirements:
    """Read the requirements of a file; `declared` are those of its decorators, with lines."""
    has_block, has_list = "# /// script" in source, "requirements:" in source
    if not (declared or has_block or has_list):
        return Requirements((), {}, None, ())
    if "\r" in source:
        source = source.replace("\r\n", "\n").replace("\r", "\n")
    collector = _Collector()
    if has_block:
        collector.read_block(source)
    for text, line in declared:
        collector.add(text, line)
    if has_list:
        for text, line in (*_in_docstring(module_docstring or "", source), *_in_comments(source)):
            for item in split_list(text):
                collector.add(item, line)
    return collector.result()


class _Collector:
    def __init__(self) -> None:
        self._requirements: dict[str, Requirement] = {}
        self._table: dict[str, Any] = {}
        self._requires_python: str | None = None
        self._problems: list[RequirementProblem] = []
        self._count = 0

    def result(self) -> Requirements:
        problems = tuple(dict.fromkeys(self._problems))
        packages = tuple(self._requirements)
        return Requirements(packages, self._table, self._requires_python, problems)

    def read_block(self, source: str) -> None:
        blocks = list(_blocks(source))
        for line, _ in blocks[1:]:
            self._report(line, "a second PEP 723 script block", "keep one `# /// script` block")
        if not blocks:
            return
        line, content = blocks[0]
        if content is None:
            message = "the PEP 723 block has no closing line"
            self._report(line, message, "end the comment with a line `# ///`")
            return
        try:
            document = tomllib.loads(content)
        except (ValueError, RecursionError) as error:  # ValueError: also numbers too large for int
            match = _TOML_LINE.search(str(error))
            line += int(match[1]) if match else content.count("\n") + 1
            self._report(line, f"the PEP 723 block is not valid TOML: {error}", "correct the TOML")
            return
        self._read_dependencies(document.get("dependencies", []), line, content)
        self._read_python(
            document.get("requires-python"), line + _offset(content, "requires-python")
        )
        tool = document.get("tool", {})
        table = tool.get("toolkiln", {}) if isinstance(tool, dict) else tool
        if isinstance(table, dict):
            self._table = table
        else:
            line += _offset(content, "toolkiln")
            self._report(line, "`tool.toolkiln` is not a table", "write it as [tool.toolkiln]")

    def _read_dependencies(self, value: Any, line: int, content: str) -> None:
        here = line + _offset(content, "dependencies")
        if not isinstance(value, list):
            fix = 'write dependencies = ["name>=1"]'
            self._report(here, "`dependencies` is not a list of strings", fix)
            return
        for item in value[: _MAX_REQUIREMENTS + 1]:
            if isinstance(item, str):
                self.add(item, line + _offset(content, item))
            else:
                self._report(here, f"the dependency {item!r} is not a string", "quote it")

    def _read_python(self, value: Any, line: int) -> None:
        if value is None:
            return
        self._requires_python = _version_range(value) if isinstance(value, str) else None
        if self._requires_python is None:
            message = f"requires-python {_quoted(str(value))} is not a version range"
            self._report(line, message, 'write it like requires-python = ">=3.11"')

    def add(self, text: str, line: int) -> None:
        if self._count == _MAX_REQUIREMENTS:
            self._report(line, f"more than {_MAX_REQUIREMENTS} requirements", "split the file")
        self._count += 1
        if self._count > _MAX_REQUIREMENTS:
            return
        from packaging.requirements import InvalidRequirement

        text = text.strip()
        if problem := _problem(text):
            self._report(line, *problem)
            return
        try:
            requirement, normalised = _parsed(text)
        except InvalidRequirement as error:
            reason = str(error).partition("\n")[0]
            self._report(line, f"{_quoted(text)} is not a requirement: {reason}", _fix(text))
            return
        if requirement.url:
            self._report(line, *_url_problem(text))
            return
        for other in self._requirements.values():
            if _contradict(requirement, other):
                message = f"{requirement} contradicts {other}"
                self._report(line, message, f"require one version of {requirement.name}")
                return
        self._requirements.setdefault(normalised, requirement)

    def _report(self, line: int, message: str, fix: str) -> None:
        self._problems.append(RequirementProblem(line, message, fix))


# Many files share the same few requirements, and parsing one takes as long as reading a file.
@lru_cache(maxsize=1024)
def _parsed(text: str) -> "tuple[Requirement, str]":
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    requirement = Requirement(text)
    requirement.name = canonicalize_name(requirement.name)
    return requirement, str(requirement)


@lru_cache(maxsize=128)
def _version_range(text: str) -> str | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        return None


def _blocks(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield the line and content of each `script` block, as PEP 723's own pattern finds them.

    That pattern takes quadratic time on a file of opening lines; this takes linear time.
    """
    at = 0
    while opening := _OPENING.search(source, at):
        comments = _COMMENTS.match(source, opening.end())
        at = comments.end() if comments else opening.end()
        lines = source[opening.end() : at].split("\n")[1:]
        content = None
        if "# ///" in lines:
            last = len(lines) - 1 - lines[::-1].index("# ///")
            content = "\n".join([line[2:] for line in lines[:last]])
            at = opening.end() + sum(len(line) + 1 for line in lines[: last + 1])
        if opening["type"] == "script":
            yield _line(source, opening.start()), content


def _in_docstring(docstring: str, source: str) -> Iterator[tuple[str, int]]:
    for match in islice(_FRONTMATTER.finditer(docstring), _MAX_REQUIREMENTS + 1):
        yield match[1], _line(source, max(0, source.find(match[0].strip())))


def _in_comments(source: str) -> Iterator[tuple[str, int]]:
    found = (m for m in _COMMENT.finditer(source) if source[m.start() - 1 : m.start()] in "\n")
    for match in islice(found, _MAX_REQUIREMENTS + 1):
        yield re.sub(r"\s#.*", "", match[1]), _line(source, match.start())


def _problem(text: str) -> tuple[str, str] | None:
    """Return message and fix for a text that an installer may accept but Toolkiln rejects."""
    if not text:
        return "an empty requirement", "remove it"
    if len(text) > _MAX_LENGTH:
        return f"a requirement of {len(text)} characters", f"keep it under {_MAX_LENGTH}"
    if text.startswith("-"):
        message = f"{_quoted(text)} is a pip option, not a requirement"
        return message, "list each package with its version, such as 'httpx>=0.27'"
    if "://" in text or re.match(r"(?:git|hg|svn|bzr)\+|git@", text):
        return _url_problem(text)
    head = text.partition(";")[0].rstrip()
    is_path = head.startswith((".", "~")) or "/" in head or "\\" in head
    if is_path or head.lower().endswith(_ARCHIVE):
        message = f"{_quoted(text)} is a path; packages are installed from an index only"
        return message, "publish it to an index and require it by name, or put it beside the tool"
    return None


def _url_problem(text: str) -> tuple[str, str]:
    message = f"{_quoted(text)} is a direct URL; packages are installed from an index only"
    return message, "require the package by name and version, such as 'httpx>=0.27'"


def _fix(text: str) -> str:
    if match := re.fullmatch(r"([\w.\[\],-]+)\s*=\s*([\w.*]+)", text):
        return f"write {match[1]}=={match[2]}"
    if re.fullmatch(r"[\w.-]+(?:\s+[\w.-]+)+", text):
        return f"separate with commas: {', '.join(text.split())}"
    return "write a name and versions, such as 'httpx>=0.27,<1'"


def _contradict(left: "Requirement", right: "Requirement") -> bool:
    """Return whether one requirement pins a version that the other excludes."""
    if left.name != right.name or str(left.marker) != str(right.marker):
        return False
    for pinned, allowed in ((left, right.specifier), (right, left.specifier)):
        for part in pinned.specifier:
            is_exact = part.operator == "==" and not part.version.endswith(".*")
            if is_exact and not allowed.contains(part.version, prereleases=True):
                return True
    return False


def _offset(content: str, text: str) -> int:
    """Return how many lines below the block's first line a text occurs."""
    return content.count("\n", 0, max(0, content.find(text))) + 1


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:77]!r}…"


def check_imports(
    module: Module, requirements: Requirements, listed: Set[str], findings: Findings
) -> None:
    """Report imported packages that neither the file nor its folder lists.

    The fix names a distribution only if it is in the tables below: anyone can register a
    module's name on an index, so a guess must not be installed.
    """
    reported = set()
    framework = framework_of(module)
    for dotted, line in _imports(module):
        top = dotted.partition(".")[0]
        distribution = distribution_of(dotted)
        if top in NEVER_HELPERS or (distribution or top) in reported:
            continue
        if requirements.provide(dotted) or _is_among(listed, dotted):
            continue
        parent = dotted.rpartition(".")[0]
        if any(is_provided(name, framework=framework) for name in (dotted, parent)):
            continue  # the sandbox has a stand-in
        if module.loader.helper(module, top, 0) is None:
            reported.add(distribution or top)
            fix = UNKNOWN_DISTRIBUTION
            if distribution:
                fix = f'list it: # /// script, # dependencies = ["{distribution}"], # ///'
            message = (
                f"{top!r} is neither in the standard library, nor beside the file, "
                "nor among its requirements"
            )
            findings.warn("unlisted-import", message, line, fix)


UNKNOWN_DISTRIBUTION = (
    "put your own module next to the file, or list the distribution that provides it"
)


def distribution_of(module: str) -> str | None:
    """Return the distribution that provides a well-known module, by its dotted name."""
    while module:
        if module in _SAME_NAME:
            return module
        if module in _OTHER_NAMES:
            return _OTHER_NAMES[module]
        module = module.rpartition(".")[0]
    return None


def framework_of(module: Module) -> str:
    """Return the package of the framework that a file is written for: `core` is Suna's.

    Only those that cannot be required matter here; "" stands for all others.
    """
    if any(node.name == "Tools" for node in module.classes):
        return "open_webui"
    is_suna = any(
        name.startswith(("agentpress.", "core.agentpress.")) for name, _ in _imports(module)
    )
    return "core" if is_suna else ""


def requirements_of_framework(
    module: Module, helpers: Iterable[ast.Module], requirements: Requirements
) -> list[tuple[str, int]]:
    """Return packages that a file imports, itself or by helpers, and its framework installs."""
    installed = _INSTALLED_WITH.get(framework_of(module))
    if installed is None:
        return []
    found: dict[str, int] = {}
    for node in chain(*map(ast.walk, (module.tree, *helpers))):
        for name in imported_modules(node):
            distribution = distribution_of(name)
            if distribution in installed and not requirements.provide(name):
                found.setdefault(distribution, getattr(node, "lineno", 1))
    return list(found.items())


def imported_modules(node: ast.AST) -> list[str]:
    """Return the dotted names that an import statement may load, including submodules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _imports(module: Module) -> Iterator[tuple[str, int]]:
    bindings = [*module.bindings.values(), *module.stars]
    imports = [item for item in bindings if isinstance(item, Import) and item.level == 0]
    full_names: dict[tuple[int, str], str] = {}
    if any(item.module in _NAMESPACES for item in imports):
        # `import google.cloud.storage` only binds `google`; the statement has the full name.
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                full_names |= {(node.lineno, a.name.partition(".")[0]): a.name for a in node.names}
    for item in imports:
        name = f"{item.module}.{item.attribute}" if item.attribute else item.module
        yield full_names.get((item.line, name), name), item.line


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_SAME_NAME = {
    "aiofiles", "aiohttp", "aiosqlite", "anthropic", "anyio", "arrow", "asyncpg", "attrs", "babel",
    "bcrypt", "boto3", "botocore", "cachetools", "cattrs", "certifi", "chardet", "chromadb",
    "click", "colorama", "croniter", "cryptography", "django", "docker", "duckdb", "elasticsearch",
    "faker", "fastapi", "feedparser", "flask", "geopy", "html5lib", "httpx", "humanize",
    "icalendar", "imageio", "jinja2", "jsonschema", "kubernetes", "langchain", "litellm", "loguru",
    "lxml", "markdown", "markupsafe", "matplotlib", "mcp", "msgpack", "msgspec", "networkx", "nltk",
    "numpy", "openai", "openpyxl", "orjson", "pandas", "paramiko", "passlib", "pdfplumber",
    "pendulum", "phonenumbers", "playwright", "plotly", "polars", "psutil", "psycopg", "pyarrow",
    "pycountry", "pygments", "pymongo", "pymysql", "pyparsing", "pypdf", "pytest", "pytz", "qrcode",
    "rapidfuzz", "realitydefender", "redis", "regex", "replicate", "reportlab", "requests", "rich",
    "scipy", "seaborn", "selenium", "setuptools", "shapely", "simplejson", "spacy", "sqlalchemy",
    "starlette", "statsmodels", "stripe", "structlog", "svglib", "sympy", "tabulate", "tenacity",
    "tensorflow", "tiktoken", "toml", "tomli", "tomlkit", "torch", "tqdm", "transformers", "typer",
    "tzdata", "tzlocal", "unidecode", "urllib3", "uvicorn", "validators", "websockets", "werkzeug",
    "xlrd", "xlsxwriter", "xmltodict",
}  # fmt: skip
"""Modules whose distribution has the same name."""
_OTHER_NAMES = {
    "Crypto": "pycryptodome", "Levenshtein": "levenshtein", "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl", "PIL": "pillow", "PyPDF2": "pypdf2", "apify_client": "apify-client",
    "attr": "attrs", "azure.identity": "azure-identity", "azure.storage.blob": "azure-storage-blob",
    "bs4": "beautifulsoup4", "bson": "pymongo", "charset_normalizer": "charset-normalizer",
    "chunkr_ai": "chunkr-ai", "cv2": "opencv-python", "dateutil": "python-dateutil",
    "daytona_sdk": "daytona-sdk", "discord": "discord.py", "dns": "dnspython",
    "docx": "python-docx", "dotenv": "python-dotenv", "email_validator": "email-validator",
    "exa_py": "exa-py", "fitz": "pymupdf", "git": "gitpython", "github": "pygithub",
    "google.api_core": "google-api-core", "google.auth": "google-auth",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage", "google.genai": "google-genai",
    "google.generativeai": "google-generativeai", "google.oauth2": "google-auth",
    "google.protobuf": "protobuf", "google_auth_oauthlib": "google-auth-oauthlib",
    "googleapiclient": "google-api-python-client", "grpc": "grpcio", "jose": "python-jose",
    "jwt": "pyjwt", "langchain_community": "langchain-community", "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "more_itertools": "more-itertools", "nacl": "pynacl", "pkg_resources": "setuptools",
    "pptx": "python-pptx", "psycopg2": "psycopg2-binary", "pymupdf": "pymupdf",
    "ruamel.yaml": "ruamel.yaml", "sentence_transformers": "sentence-transformers",
    "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "slack_sdk": "slack-sdk", "slugify": "python-slugify",
    "snowflake.connector": "snowflake-connector-python", "socks": "pysocks",
    "tavily": "tavily-python", "telegram": "python-telegram-bot", "usb": "pyusb",
    "websocket": "websocket-client", "yaml": "pyyaml",
    "youtube_transcript_api": "youtube-transcript-api", "zmq": "pyzmq",
}  # fmt: skip
"""Modules whose distribution has a different name. Namespace packages are listed by submodule."""
_INSTALLED_WITH = {
    "core": frozenset({
        "aiohttp", "anthropic", "apify-client", "beautifulsoup4", "boto3", "chardet", "chunkr-ai",
        "croniter", "cryptography", "daytona-sdk", "email-validator", "exa-py", "fastapi",
        "google-api-python-client", "google-auth", "google-auth-oauthlib", "httpx", "litellm",
        "mcp", "openai", "openpyxl", "orjson", "paramiko", "phonenumbers", "pillow", "psutil",
        "psycopg", "pyjwt", "pypdf2", "python-docx", "python-dotenv", "python-pptx", "pyyaml",
        "realitydefender", "redis", "replicate", "reportlab", "requests", "sqlalchemy", "stripe",
        "structlog", "svglib", "tavily-python",
    }),
    "open_webui": frozenset({
        "aiofiles", "aiohttp", "anthropic", "anyio", "azure-identity", "azure-storage-blob",
        "bcrypt", "beautifulsoup4", "boto3", "chardet", "chromadb", "cryptography",
        "google-api-python-client", "google-auth", "google-auth-oauthlib", "google-cloud-storage",
        "google-genai", "httpx", "jinja2", "langchain", "langchain-community", "loguru", "lxml",
        "markdown", "mcp", "nltk", "numpy", "openai", "openpyxl", "pandas", "pillow", "psutil",
        "pyjwt", "pymongo", "pymysql", "pypdf", "python-dateutil", "python-dotenv", "python-jose",
        "python-pptx", "pytz", "pyyaml", "redis", "regex", "requests", "rich",
        "sentence-transformers", "sqlalchemy", "tenacity", "tiktoken", "torch", "tqdm",
        "transformers", "urllib3", "validators", "websockets", "xlrd", "youtube-transcript-api",
    }),
}  # fmt: skip
"""Distributions that frameworks install, so that their tool files do not list them."""
_NAMESPACES = frozenset(name.partition(".")[0] for name in _OTHER_NAMES if "." in name)
