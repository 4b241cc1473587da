"""What is untrusted, what is dangerous, and what is harmless: the tables of the analysis.

Names are dotted, as they are after imports are followed: ``from os import system as run`` makes ``run`` mean
``os.system``. Builtins have their bare name. ``module.Class.method`` is a method of an object whose class is known.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final

# Sources: values that are untrusted wherever they are read, and calls whose results are.
UNTRUSTED_VALUES: Final = {
    "sys.argv": "the command line (sys.argv)",
    "sys.orig_argv": "the command line (sys.orig_argv)",
    "sys.stdin": "standard input (sys.stdin)",
    "os.environ": "the environment (os.environ)",
    "os.environb": "the environment (os.environb)",
    "flask.request": "an HTTP request (flask.request)",
    "bottle.request": "an HTTP request (bottle.request)",
}

_HTTP_VERBS: Final = ("get", "post", "put", "patch", "delete", "head", "options", "request")

UNTRUSTED_RESULTS: Final = {
    "input": "standard input (input)",
    "raw_input": "standard input (raw_input)",
    "fileinput.input": "standard input (fileinput.input)",
    "getpass.getpass": "standard input (getpass.getpass)",
    "os.getenv": "the environment (os.getenv)",
    "os.getenvb": "the environment (os.getenvb)",
    "argparse.ArgumentParser.parse_args": "the command line (argparse)",
    "argparse.ArgumentParser.parse_known_args": "the command line (argparse)",
    "optparse.OptionParser.parse_args": "the command line (optparse)",
    "urllib.request.urlopen": "an HTTP response (urllib)",
    "urllib2.urlopen": "an HTTP response (urllib2)",
    "http.client.HTTPConnection.getresponse": "an HTTP response (http.client)",
    "http.client.HTTPSConnection.getresponse": "an HTTP response (http.client)",
    "socket.socket.recv": "a socket (recv)",
    "socket.socket.recvfrom": "a socket (recvfrom)",
    **{f"requests.{verb}": "an HTTP response (requests)" for verb in _HTTP_VERBS},
    **{f"requests.Session.{verb}": "an HTTP response (requests)" for verb in _HTTP_VERBS},
    **{f"httpx.{verb}": "an HTTP response (httpx)" for verb in _HTTP_VERBS},
    **{f"httpx.Client.{verb}": "an HTTP response (httpx)" for verb in _HTTP_VERBS},
}

# Attributes that are untrusted on anything that is called `request`, as Django's views call it.
REQUEST_ATTRIBUTES: Final = {
    "GET": "an HTTP request (request.GET)",
    "POST": "an HTTP request (request.POST)",
    "COOKIES": "an HTTP request (request.COOKIES)",
    "FILES": "an HTTP request (request.FILES)",
}

# Decorators that fill the parameters of a function from outside.
UNTRUSTED_PARAMETERS: Final = {
    "click.argument": "the command line (click)",
    "click.option": "the command line (click)",
}


@dataclass(frozen=True, slots=True)
class Danger:
    """What goes wrong when untrusted data reaches a sink."""

    key: str
    title: str
    cwe: int
    advice: str


CODE: Final = Danger(
    "code", "code injection", 95, "parse the data instead: ast.literal_eval, json.loads, a table of functions"
)
SHELL: Final = Danger(
    "shell", "command injection", 78, "pass a list without a shell, or quote each part with shlex.quote"
)
PICKLE: Final = Danger("pickle", "unsafe deserialization", 502, "use a format without code: json, or yaml.safe_load")
SQL: Final = Danger("sql", "SQL injection", 89, "pass the values as parameters: execute(sql, values)")


@dataclass(frozen=True, slots=True)
class Sink:
    """A call that must not get untrusted data: the dangerous argument by position and by keyword.

    ``condition`` restricts it: "shell" to calls that ask for a shell, "loader" to YAML loaders that build any object.
    """

    danger: Danger
    position: int = 0
    keyword: str = ""
    condition: str = ""


SINKS: Final = {
    "eval": Sink(CODE),
    "exec": Sink(CODE),
    "execfile": Sink(CODE),
    "runpy.run_path": Sink(CODE, keyword="path_name"),
    "os.system": Sink(SHELL, keyword="command"),
    "os.popen": Sink(SHELL, keyword="cmd"),
    "subprocess.getoutput": Sink(SHELL, keyword="cmd"),
    "subprocess.getstatusoutput": Sink(SHELL, keyword="cmd"),
    "commands.getoutput": Sink(SHELL),
    "commands.getstatusoutput": Sink(SHELL),
    "asyncio.create_subprocess_shell": Sink(SHELL, keyword="cmd"),
    **{
        f"subprocess.{name}": Sink(SHELL, keyword="args", condition="shell")
        for name in ("run", "call", "check_call", "check_output", "Popen")
    },
    "pickle.load": Sink(PICKLE, keyword="file"),
    "pickle.loads": Sink(PICKLE, keyword="data"),
    "pickle.Unpickler": Sink(PICKLE, keyword="file"),
    "marshal.load": Sink(PICKLE),
    "marshal.loads": Sink(PICKLE),
    "dill.load": Sink(PICKLE),
    "dill.loads": Sink(PICKLE),
    "shelve.open": Sink(PICKLE, keyword="filename"),
    "yaml.unsafe_load": Sink(PICKLE, keyword="stream"),
    "yaml.full_load": Sink(PICKLE, keyword="stream"),
    "yaml.load": Sink(PICKLE, keyword="stream", condition="loader"),
}

UNSAFE_YAML_LOADERS: Final = frozenset(
    f"yaml.{name}" for name in ("Loader", "CLoader", "FullLoader", "CFullLoader", "UnsafeLoader", "CUnsafeLoader")
)
SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh", "/bin/sh", "/bin/bash", "cmd", "cmd.exe", "powershell"})
SHELL_FLAGS: Final = frozenset({"-c", "-lc", "-ec", "-xc", "/c", "/C", "-Command"})

# Methods that run SQL, on objects that come from a database module or whose name says that they are a cursor.
SQL_METHODS: Final = frozenset({"execute", "executemany", "executescript", "exec_driver_sql"})
SQL_SINK: Final = Sink(SQL)
SQL_RECEIVERS: Final = re.compile(
    r"(^|_)(c|cu|cur|curs|cursor|con|conn|connection|db|dbh|database|sqlite|session|engine|transaction)\d*$",
    re.IGNORECASE,
)
SQL_MODULES: Final = frozenset(
    {
        "sqlite3",
        "psycopg2",
        "psycopg",
        "pymysql",
        "MySQLdb",
        "mysql",
        "cx_Oracle",
        "oracledb",
        "pyodbc",
        "sqlalchemy",
        "apsw",
    }
)

# What external functions return, where that is the class of a method above.
RETURNED_CLASSES: Final = {
    "requests.session": "requests.Session",
    "sqlite3.connect": "sqlite3.Connection",
    "sqlite3.Connection.cursor": "sqlite3.Cursor",
    "psycopg2.connect": "psycopg2.extensions.connection",
    "sqlalchemy.create_engine": "sqlalchemy.engine.Engine",
}

# Calls whose results are harmless whatever goes in: numbers, truth values, digests, quoted text, parsed literals.
HARMLESS_RESULTS: Final = frozenset(
    {
        "abs", "all", "any", "ast.literal_eval", "base64.b64encode", "base64.urlsafe_b64encode",
        "binascii.crc32", "binascii.hexlify", "bool", "callable", "complex", "dir", "divmod", "float",
        "hasattr", "hash", "hex", "html.escape", "id", "int", "ipaddress.ip_address", "ipaddress.ip_network",
        "isinstance", "issubclass", "len", "logging.getLogger", "oct", "ord", "os.access", "os.path.exists",
        "os.path.getmtime", "os.path.getsize", "os.path.isabs", "os.path.isdir", "os.path.isfile",
        "os.path.islink", "os.path.ismount", "os.path.lexists", "os.path.samefile", "os.stat", "pipes.quote",
        "pow", "print", "random.randint", "random.randrange", "random.uniform", "range", "re.escape", "round",
        "shlex.quote", "shutil.which", "sum", "type", "urllib.parse.quote", "urllib.parse.quote_plus",
        "uuid.UUID", "zlib.adler32", "zlib.crc32",
    }
)  # fmt: skip
HARMLESS_MODULES: Final = ("hashlib.", "hmac.", "datetime.", "time.", "decimal.", "math.", "calendar.")

# Methods whose results are harmless on any object.
HARMLESS_METHODS: Final = frozenset(
    {
        "bit_length", "close", "count", "digest", "endswith", "exists", "fileno", "find", "getcode",
        "hexdigest", "index", "is_absolute", "is_dir", "is_file", "isalnum", "isalpha", "isascii", "isatty",
        "isdecimal", "isdigit", "isdir", "isfile", "isidentifier", "islower", "isnumeric", "isspace", "istitle",
        "isupper", "rfind", "rindex", "startswith", "tell", "timestamp", "toordinal", "total_seconds",
        "utcoffset",
    }
)  # fmt: skip

# Methods that put their arguments into their object, and methods whose first argument is only a key.
MUTATING_METHODS: Final = frozenset(
    {
        "add", "append", "appendleft", "extend", "extendleft", "insert", "push", "put", "put_nowait",
        "setdefault", "update", "write", "writelines",
    }
)  # fmt: skip
KEYED_METHODS: Final = frozenset({"get", "pop", "setdefault", "getlist", "getfirst"})
# What returns a copy of its object or its only argument, with the same elements.
COPYING_METHODS: Final = frozenset({"copy"})
COPYING_FUNCTIONS: Final = frozenset({"copy.copy", "copy.deepcopy", "dict", "list", "tuple"})
# Attributes that are harmless on any object.
HARMLESS_ATTRIBUTES: Final = frozenset(
    {"__class__", "__doc__", "__module__", "__name__", "__qualname__", "pid", "returncode"}
)

# Tests that leave only harmless data on one of their branches: methods on the data, and functions of (pattern, data).
GUARD_METHODS: Final = frozenset({"isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier", "isnumeric"})
GUARD_FUNCTIONS: Final = frozenset({"re.fullmatch"})
GUARD_TYPES: Final = frozenset({"int", "float", "bool", "complex"})

_ALIASES: Final = {
    "six.moves.input": "input",
    "six.moves.cPickle": "pickle",
    "cPickle": "pickle",
    "_pickle": "pickle",
    "cloudpickle": "pickle",
    "simplejson": "json",
    "six.moves.urllib": "urllib",
    "posix.system": "os.system",
    "posix.environ": "os.environ",
}
_BUILTIN_MODULES: Final = ("builtins.", "__builtin__.", "__builtins__.")


def canonical(name: str) -> str:
    """The name that the tables use for a dotted name."""
    for module in _BUILTIN_MODULES:
        if name.startswith(module):
            return name[len(module) :]
    if name in _ALIASES:
        return _ALIASES[name]
    head, dot, last = name.rpartition(".")
    return f"{_ALIASES[head]}.{last}" if dot and head in _ALIASES else name


def is_in_tables(name: str) -> bool:
    """Whether a dotted name means anything to the analysis."""
    return name in UNTRUSTED_VALUES or name in UNTRUSTED_RESULTS or name in SINKS or name in HARMLESS_RESULTS


def untrusted_value(name: str) -> str | None:
    """Where the value of a dotted name, or of what it is an attribute of, comes from; None if it is not untrusted."""
    while name:
        if name in UNTRUSTED_VALUES:
            return UNTRUSTED_VALUES[name]
        name = name.rpartition(".")[0]
    return None


def last_name(expression: ast.expr) -> str:
    """The last name of a dotted expression or of the function that it calls: what a reader would call it."""
    while isinstance(expression, (ast.Call, ast.Subscript, ast.Await)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def constant_key(node: ast.expr | None) -> str | int | None:
    """The constant that an index or a key is; None for other expressions and for indices from the end."""
    if isinstance(node, ast.Constant) and (isinstance(node.value, str) or type(node.value) is int):
        return node.value
    return None


def is_harmless_result(name: str) -> bool:
    """Whether the result of a call of this name is harmless whatever goes in."""
    return name in HARMLESS_RESULTS or name.startswith(HARMLESS_MODULES)
