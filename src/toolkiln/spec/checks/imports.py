"""Imports of packages that the file does not list, and the distributions of well-known ones.

Nothing is looked up on an index. A distribution is suggested only if the table has it: anyone can
register the name of a module on an index, so an unknown one must not become an installation.
"""

import ast
import re
from collections.abc import Iterator

from toolkiln.spec.modules import Import, Module
from toolkiln.spec.neighbours import NEVER_HELPERS
from toolkiln.spec.report import Findings
from toolkiln.spec.requirements import Requirements

ADVICE = "put your own module next to the file, or list the distribution that provides it"
"""What to do about a module whose distribution is not known."""


def check_imports(module: Module, needed: Requirements, findings: Findings) -> None:
    """Report packages that are imported but not among the requirements."""
    listed = {_normalised(re.split(r"[^\w.-]", item, maxsplit=1)[0]) for item in needed.packages}
    reported = set()
    for dotted, line in _imports(module):
        top = dotted.partition(".")[0]
        distribution = distribution_of(dotted)
        if top in NEVER_HELPERS or (distribution or top) in reported:
            continue
        if not listed.isdisjoint({_normalised(top), _normalised(distribution or top)}):
            continue
        if module.loader is None or module.loader.helper(module, top, 0) is None:
            reported.add(distribution or top)
            block = f'list it: # /// script, # dependencies = ["{distribution}"], # ///'
            findings.warn(
                "unlisted-import",
                f"{top!r} is neither in the standard library, nor beside the file, "
                "nor among its requirements",
                line,
                block if distribution else ADVICE,
            )


def distribution_of(module: str) -> str | None:
    """The distribution that provides a well-known module, by its dotted name."""
    while module:
        if module in _SAME_NAME:
            return module
        if module in _OTHER_NAMES:
            return _OTHER_NAMES[module]
        module = module.rpartition(".")[0]
    return None


def imported_modules(node: ast.AST) -> list[str]:
    """The dotted names that an import statement may bring in, those of a package's parts too."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _imports(module: Module) -> Iterator[tuple[str, int]]:
    """The modules that the file's top level imports, with their lines."""
    bound = [*module.bindings.values(), *module.stars]
    imports = [one for one in bound if isinstance(one, Import) and one.level == 0]
    whole: dict[tuple[int, str], str] = {}
    if any(one.module in _NAMESPACES for one in imports):
        # `import google.cloud.storage` binds `google` only; the statement has the whole name.
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                whole |= {(node.lineno, a.name.partition(".")[0]): a.name for a in node.names}
    for one in imports:
        name = f"{one.module}.{one.attribute}" if one.attribute else one.module
        yield whole.get((one.line, name), name), one.line


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


_SAME_NAME = {
    "aiofiles", "aiohttp", "aiosqlite", "anthropic", "anyio", "arrow", "asyncpg", "attrs",
    "babel", "bcrypt", "boto3", "botocore", "cachetools", "cattrs", "certifi", "chardet",
    "click", "colorama", "croniter", "cryptography", "django", "docker", "duckdb",
    "elasticsearch", "faker", "fastapi", "feedparser", "flask", "geopy", "html5lib", "httpx",
    "humanize", "icalendar", "imageio", "jinja2", "jsonschema", "kubernetes", "langchain",
    "lxml", "markdown", "markupsafe", "matplotlib", "mcp", "msgpack", "msgspec", "networkx",
    "nltk", "numpy", "openai", "openpyxl", "orjson", "pandas", "paramiko", "passlib",
    "pdfplumber", "pendulum", "phonenumbers", "playwright", "plotly", "polars", "psutil",
    "psycopg", "pyarrow", "pycountry", "pygments", "pymongo", "pymysql", "pyparsing", "pypdf",
    "pytest", "pytz", "qrcode", "rapidfuzz", "redis", "regex", "reportlab", "requests", "rich",
    "scipy", "seaborn", "selenium", "setuptools", "shapely", "simplejson", "spacy",
    "sqlalchemy", "starlette", "statsmodels", "stripe", "sympy", "tabulate", "tenacity",
    "tensorflow", "tiktoken", "toml", "tomli", "tomlkit", "torch", "tqdm", "transformers",
    "typer", "tzdata", "tzlocal", "unidecode", "urllib3", "uvicorn", "validators", "websockets",
    "werkzeug", "xlrd", "xlsxwriter", "xmltodict",
}  # fmt: skip
"""Modules whose distribution has the same name."""
_OTHER_NAMES = {
    "Crypto": "pycryptodome",
    "Levenshtein": "levenshtein",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "PyPDF2": "pypdf2",
    "attr": "attrs",
    "azure.identity": "azure-identity",
    "azure.storage.blob": "azure-storage-blob",
    "bs4": "beautifulsoup4",
    "bson": "pymongo",
    "charset_normalizer": "charset-normalizer",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "discord": "discord.py",
    "dns": "dnspython",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "email_validator": "email-validator",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "google.api_core": "google-api-core",
    "google.auth": "google-auth",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "google_auth_oauthlib": "google-auth-oauthlib",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "more_itertools": "more-itertools",
    "nacl": "pynacl",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pymupdf": "pymupdf",
    "ruamel.yaml": "ruamel.yaml",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slack_sdk": "slack-sdk",
    "slugify": "python-slugify",
    "snowflake.connector": "snowflake-connector-python",
    "socks": "pysocks",
    "telegram": "python-telegram-bot",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Modules whose distribution has another name; packages that several share, by their parts."""
_NAMESPACES = frozenset(name.partition(".")[0] for name in _OTHER_NAMES if "." in name)
