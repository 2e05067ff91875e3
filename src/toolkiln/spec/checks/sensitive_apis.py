"""Tables of modules, functions and attributes that give a tool capabilities.

`capabilities` finds their uses in a syntax tree. The tables list what ordinary tools use and
are not exhaustive: the sandbox enforces what code can do.
"""

from toolkiln.model.spec import Capability


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Importing one of these is a use.
_MODULES = {
    Capability.NETWORK: """
        socket ssl socketserver urllib.request http.client http.server xmlrpc ftplib smtplib smtpd
        imaplib poplib nntplib telnetlib asyncore asynchat wsgiref.simple_server
        requests httpx aiohttp urllib3 httplib2 pycurl niquests requests_html curl_cffi treq
        websockets websocket wsproto socketio grpc zmq nats paho pika aio_pika kafka aiokafka
        paramiko asyncssh fabric ldap3 dns whois scapy
        boto3 botocore aioboto3 aiobotocore azure googleapiclient google.cloud google.auth
        google.generativeai google.genai vertexai kubernetes docker
        openai anthropic cohere mistralai groq replicate together litellm ollama huggingface_hub
        redis pymongo motor psycopg psycopg2 asyncpg aiopg pymysql MySQLdb mysql.connector aiomysql
        elasticsearch opensearchpy cassandra snowflake clickhouse_connect neo4j influxdb_client
        qdrant_client pinecone weaviate supabase
        stripe twilio sendgrid slack_sdk discord telegram telethon tweepy praw atlassian jira
        notion_client github gitlab selenium playwright scrapy twisted tornado.httpclient
        yfinance wikipedia wikipediaapi feedparser tavily duckduckgo_search ddgs serpapi yt_dlp
    """,
    Capability.FILES: """
        tempfile glob fileinput linecache dbm mmap aiofiles filecmp watchfiles watchdog fsspec
    """,
    Capability.SUBPROCESS: """
        subprocess pty pexpect plumbum invoke sh webbrowser pip ensurepip venv git
    """,
    Capability.ENVIRONMENT: "dotenv decouple environs pydantic_settings",
    Capability.NATIVE: "ctypes cffi cppyy numpy.ctypeslib",
    Capability.DYNAMIC_CODE: "code codeop shelve dill cloudpickle jsonpickle",
    Capability.DYNAMIC_IMPORT: "importlib.util importlib.machinery runpy pkgutil zipimport imp",
}

# Importing one of these is not a use; referring to a listed member is.
_MEMBERS = {
    Capability.NETWORK: {
        "asyncio": "open_connection open_unix_connection start_server start_unix_server",
        "asyncio.loop()": """create_connection create_server create_datagram_endpoint
            create_unix_connection create_unix_server sock_connect sock_accept getaddrinfo""",
        "anyio": "connect_tcp connect_unix create_tcp_listener create_udp_socket",
        "trio": "open_tcp_stream open_ssl_over_tcp_stream serve_tcp socket",
        "logging.handlers": "SocketHandler DatagramHandler SysLogHandler SMTPHandler HTTPHandler",
        "sqlalchemy": "create_engine",
        "sqlalchemy.ext.asyncio": "create_async_engine",
    },
    Capability.FILES: {
        "builtins": "open",
        "io": "open open_code FileIO",
        "codecs": "open",
        "os": """remove unlink rename renames replace rmdir removedirs mkdir makedirs listdir
            scandir walk fwalk stat lstat access chmod lchmod chown lchown link symlink readlink
            truncate utime open mkfifo mknod statvfs chdir chroot setxattr getxattr""",
        "os.path": "exists lexists isfile isdir islink ismount getsize getmtime getctime getatime",
        "pathlib.Path()": """open read_text read_bytes write_text write_bytes exists is_file is_dir
            is_symlink is_mount stat lstat owner group iterdir glob rglob walk mkdir rmdir touch
            unlink rename replace chmod symlink_to hardlink_to readlink copy copy_into move
            move_into samefile""",
        "shutil": """copy copy2 copyfile copymode copystat copytree move rmtree make_archive
            unpack_archive disk_usage chown which""",
        "gzip": "open GzipFile",
        "bz2": "open BZ2File",
        "lzma": "open LZMAFile",
        "zipfile": "ZipFile PyZipFile",
        "zipfile.ZipFile()": "extract extractall",
        "tarfile": "open TarFile",
        "tarfile.open()": "extract extractall",
        "sqlite3": "connect",
        "aiosqlite": "connect",
        "anyio": "open_file Path",
        "trio": "open_file Path",
        "logging": "FileHandler",
        "logging.handlers": "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler",
        "xml.etree.ElementTree": "parse iterparse",
        "pandas": """read_csv read_table read_fwf read_excel read_json read_parquet read_feather
            read_orc read_hdf read_stata read_sas read_spss read_xml ExcelFile ExcelWriter""",
        "numpy": "load loadtxt genfromtxt fromfile memmap save savez savez_compressed savetxt",
        "PIL.Image": "open",
        "cv2": "imread imwrite VideoCapture VideoWriter",
        "openpyxl": "load_workbook",
    },
    Capability.SUBPROCESS: {
        "os": """system popen startfile fork forkpty posix_spawn posix_spawnp kill killpg
            execl execle execlp execlpe execv execve execvp execvpe
            spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe""",
        "asyncio": "create_subprocess_exec create_subprocess_shell subprocess",
        "asyncio.loop()": "subprocess_exec subprocess_shell",
        "anyio": "run_process open_process to_process",
        "trio": "run_process",
        "multiprocessing": """Process Pool Manager Pipe Queue SimpleQueue JoinableQueue get_context
            set_start_method managers connection context shared_memory process""",
        "multiprocessing.pool": "Pool",
        "concurrent.futures": "ProcessPoolExecutor",
        "concurrent.futures.process": "ProcessPoolExecutor",
        "joblib": "Parallel",
        "psutil": "Popen Process process_iter",
    },
    Capability.ENVIRONMENT: {
        "os": "environ environb getenv getenvb putenv unsetenv",
        "os.path": "expandvars",
    },
    Capability.NATIVE: {"os": "add_dll_directory", "sys": "setdlopenflags"},
    Capability.DYNAMIC_CODE: {
        "builtins": "eval exec compile __builtins__",
        "pickle": "load loads Unpickler",
        "marshal": "load loads",
        "joblib": "load",
        "torch": "load",
        "pandas": "read_pickle",
        "yaml": "load load_all unsafe_load unsafe_load_all full_load full_load_all",
        "types": "FunctionType CodeType LambdaType",
        "timeit": "timeit repeat Timer",
        "cProfile": "run runctx",
        "profile": "run runctx",
    },
    Capability.DYNAMIC_IMPORT: {
        "builtins": "__import__ __loader__",
        "builtins.__spec__": "loader",
        "importlib": "import_module reload __import__ invalidate_caches",
        "sys": "modules meta_path path_hooks path_importer_cache",
        "sys.path": "append insert extend remove pop clear",
        "site": "addsitedir main",
        "pydoc": "locate safeimport",
    },
    Capability.INTROSPECTION: {
        "sys": """_getframe _current_frames _current_exceptions settrace setprofile addaudithook
            monitoring""",
        "threading": "settrace setprofile",
        "gc": "get_objects get_referrers get_referents",
        "inspect": """currentframe stack trace getouterframes getinnerframes getclosurevars
            getgeneratorlocals getcoroutinelocals""",
    },
}

HARMLESS = _words(
    """requests.exceptions requests.structures requests.utils httpx.codes aiohttp.web_exceptions
    google.auth.exceptions urllib.request.pathname2url urllib.request.url2pathname
    urllib.request.parse_http_list discord.utils openai.types anthropic.types"""
)
"""Parts of the modules above that give no capability."""

CALL_ONLY = frozenset({"types.FunctionType", "types.CodeType", "types.LambdaType"})
"""Members whose call is a use but not a mere reference, as in `isinstance(x, FunctionType)`."""

INTROSPECTION_ATTRIBUTES = _words(
    """__subclasses__ __globals__ __bases__ __base__ __mro__ __code__ __closure__ __self__
    __builtins__ f_globals f_locals f_builtins f_back f_code tb_frame gi_frame gi_code cr_frame
    cr_code ag_frame ag_code cell_contents"""
)
"""Attributes that give access to the interpreter from any object."""

FACTORIES = {
    "pathlib.Path": "pathlib.Path()",
    "pathlib.PosixPath": "pathlib.Path()",
    "pathlib.WindowsPath": "pathlib.Path()",
    "pathlib.Path.cwd": "pathlib.Path()",
    "pathlib.Path.home": "pathlib.Path()",
    "asyncio.get_running_loop": "asyncio.loop()",
    "asyncio.get_event_loop": "asyncio.loop()",
    "asyncio.new_event_loop": "asyncio.loop()",
    "io.BytesIO": "io.memory()",
    "io.StringIO": "io.memory()",
    "zipfile.ZipFile": "zipfile.ZipFile()",
    "tarfile.open": "tarfile.open()",
    "tarfile.TarFile": "tarfile.open()",
    "tarfile.TarFile.open": "tarfile.open()",
} | {
    f"pathlib.Path().{name}": "pathlib.Path()"
    for name in _words("resolve absolute expanduser joinpath with_name with_suffix with_stem")
}
"""Functions whose results have members listed above."""

PATH_METHODS = _words(
    """read_text read_bytes write_text write_bytes iterdir rglob is_file is_dir is_symlink mkdir
    rmdir touch unlink symlink_to hardlink_to"""
)
"""Methods assumed to be those of a path on any object, in files that import `pathlib.Path`."""

GETTERS = _words(
    """builtins.getattr builtins.setattr builtins.delattr builtins.vars
    operator.attrgetter operator.methodcaller"""
)
"""Functions that access an attribute by name."""

MODULE_ALIASES = {
    "posix": "os",
    "nt": "os",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "_io": "io",
    "_socket": "socket",
    "_ssl": "ssl",
    "_posixsubprocess": "subprocess",
    "_winapi": "subprocess",
    "_ctypes": "ctypes",
    "_cffi_backend": "cffi",
    "_pickle": "pickle",
    "_imp": "imp",
    "_frozen_importlib": "importlib.machinery",
    "_frozen_importlib_external": "importlib.machinery",
    "importlib._bootstrap": "importlib.machinery",
    "importlib._bootstrap_external": "importlib.machinery",
    "cPickle": "pickle",
    "multiprocess": "multiprocessing",
}
"""Modules that are the same as another one."""

EXPOSED_MODULES = {
    name: name.lstrip("_")
    for name in _words("os _os sys _sys subprocess _subprocess socket _socket builtins importlib")
}
"""Modules that other modules expose as an attribute, such as `shutil.os`."""

DYNAMIC_ACCESS_MODULES = frozenset(
    {"os", "sys", "builtins", "importlib", "io", "asyncio", "types", "inspect"}
)
"""Modules for which access to members by computed name is a use."""


def _rules() -> dict[str, tuple[Capability, str]]:
    rules = {
        name: (capability, f"import {name}")
        for capability, names in _MODULES.items()
        for name in names.split()
    }
    for capability, members in _MEMBERS.items():
        for owner, names in members.items():
            for name in names.split():
                api = f"{owner}.{name}".removeprefix("builtins.").removeprefix("pathlib.")
                rules[f"{owner}.{name}"] = (capability, api.replace("()", ""))
    return rules


RULES = _rules()
"""Capability and displayed name of each sensitive API, by dotted name."""

MODULES = frozenset(name for names in _MODULES.values() for name in names.split())
"""The names in `RULES` whose import is a use."""

_NAMES = (*RULES, *FACTORIES, *GETTERS, *DYNAMIC_ACCESS_MODULES)
ROOTS = frozenset(name.partition(".")[0] for name in (*_NAMES, *MODULE_ALIASES))
"""Top-level modules of all names above; other imports can be skipped."""

PREFIXES = frozenset(
    ".".join(parts[:count])
    for parts in (name.split(".") for name in _NAMES)
    for count in range(1, len(parts) + 1)
)
"""All names above and the packages that contain them."""

BUILTINS = frozenset(
    name.split(".")[1] for name in (*RULES, *GETTERS) if name.startswith("builtins.")
)
"""Sensitive builtins."""
