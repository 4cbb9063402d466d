"""What the guard forbids in workflow code, what to use instead, and whose code is whose.

Two tables. Audit events are raised by Python itself before it touches the outside; they are cheap to watch
and complete. Clocks and randomness raise none, so those functions are listed one by one.
"""

import datetime as dt
import os
import random  # noqa: TID251 - named here in order to be forbidden
import secrets  # noqa: TID251
import sys
import sysconfig
import threading
import time
import uuid
import zoneinfo
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any, Final

IN_AN_ACTIVITY: Final = "Do it in an activity and await that"
USE_SLEEP: Final = "Use 'await asyncio.sleep(...)', which is a durable timer in a workflow"
USE_NOW: Final = "Use hf.now(), which gives the same time in every replay"
USE_RANDOM: Final = "Use hf.random(), whose numbers are the same in every replay"
USE_UUID: Final = "Use hf.uuid4(), which gives the same id in every replay"
USE_TASKS: Final = "Use asyncio.create_task for concurrency, or do the work in an activity"

FORBIDDEN_EVENTS: Final[dict[str, str]] = {
    "time.sleep": USE_SLEEP,
    "_thread.start_new_thread": USE_TASKS,
    "_thread.start_joinable_thread": USE_TASKS,
    **dict.fromkeys(
        (
            *("open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename"),
            *("os.rmdir", "os.scandir", "os.symlink", "os.truncate", "os.utime", "glob.glob", "fcntl.flock"),
            *("fcntl.lockf", "mmap.__new__", "pathlib.Path.glob", "pathlib.Path.rglob", "tempfile.mkdtemp"),
            *("tempfile.mkstemp", "shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree"),
            *("shutil.make_archive", "shutil.unpack_archive"),
            *(
                "socket.__new__",
                "socket.bind",
                "socket.connect",
                "socket.getaddrinfo",
                "socket.gethostbyaddr",
            ),
            *("socket.gethostbyname", "socket.gethostname", "socket.getnameinfo", "socket.getservbyname"),
            *("socket.getservbyport", "socket.sendmsg", "socket.sendto", "socket.sethostname"),
            *(
                "subprocess.Popen",
                "os.system",
                "os.exec",
                "os.fork",
                "os.forkpty",
                "os.posix_spawn",
                "os.spawn",
            ),
            *("os.startfile", "os.kill", "os.killpg", "pty.spawn", "webbrowser.open"),
            *("sqlite3.connect", "urllib.Request", "http.client.connect", "http.client.send"),
            *("ftplib.connect", "imaplib.open", "poplib.connect", "smtplib.connect", "smtplib.send"),
            *("telnetlib.Telnet.open", "nntplib.connect", "syslog.openlog", "syslog.syslog"),
        ),
        IN_AN_ACTIVITY,
    ),
}
"""Audit events and what to use instead."""

FORBIDDEN_BUILTINS: Final[dict[object, tuple[str, str]]] = {
    **{
        getattr(time, name): (f"time.{name}", USE_NOW)
        for name in (
            *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
            *("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime"),
            *("clock_gettime_ns",),
        )
        if hasattr(time, name)
    },
    time.sleep: ("time.sleep", USE_SLEEP),  # Python raises an audit event for it from 3.13 on only.
    dt.datetime.now: ("datetime.now", USE_NOW),  # noqa: TID251
    getattr(dt.datetime, "utcnow"): ("datetime.utcnow", USE_NOW),  # noqa: B009 - naming it is deprecated
    dt.datetime.today: ("datetime.today", USE_NOW),  # noqa: TID251
    dt.date.today: ("date.today", USE_NOW),  # noqa: TID251
    random.random: ("random.random", USE_RANDOM),
    random.getrandbits: ("random.getrandbits", USE_RANDOM),
    os.urandom: ("os.urandom", USE_RANDOM),  # noqa: TID251
    **({os.getrandom: ("os.getrandom", USE_RANDOM)} if sys.platform == "linux" else {}),  # noqa: TID251
}
"""Functions written in C. Bound methods are equal if their objects are: an own ``Random(7)`` is not here."""


def _codes(module: Any, names: tuple[str, ...], advice: str) -> dict[CodeType, tuple[str, str]]:
    functions = ((name, getattr(module, name, None)) for name in names)
    return {
        function.__code__: (f"{module.__name__}.{name}", advice)
        for name, function in functions
        if isinstance(function, FunctionType)
    }


FORBIDDEN_FUNCTIONS: Final[dict[CodeType, tuple[str, str]]] = {
    **_codes(uuid, ("uuid1", "uuid4"), USE_UUID),
    threading.Thread.start.__code__: ("threading.Thread.start", USE_TASKS),  # no audit event before 3.12
    **_codes(secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow"), USE_RANDOM),
}
"""Functions written in Python, by their code."""

METHODS_OF_RANDOM: Final[dict[CodeType, str]] = {
    member.__code__: name
    for owner in (random.SystemRandom, random.Random)
    for name, member in vars(owner).items()
    if not name.startswith("_") and hasattr(member, "__code__")
}

SUSPECTS: Final = frozenset(id(code) for code in (*FORBIDDEN_FUNCTIONS, *METHODS_OF_RANDOM))
"""All of them by identity: Python works the hash of a code out anew each time, from all that is in it."""

_HIDDEN_RANDOM: Final = getattr(random, "_inst")  # noqa: B009 - the instance behind random.choice and its like


def forbidden_builtin(function: object) -> tuple[str, str] | None:
    """Return the name of a C function and what to use instead, if it is forbidden."""
    return FORBIDDEN_BUILTINS.get(function) if type(function) is BuiltinFunctionType else None


def forbidden_function(frame: FrameType) -> tuple[str, str] | None:
    """Return the name of the Python function that `frame` has just entered, if it is forbidden."""
    code = frame.f_code
    found = FORBIDDEN_FUNCTIONS.get(code)
    if found is not None:
        return found
    name = METHODS_OF_RANDOM.get(code)
    if name is None:
        return None
    generator = frame.f_locals.get("self")
    if generator is _HIDDEN_RANDOM or isinstance(generator, random.SystemRandom):
        return (f"random.{name}", USE_RANDOM)
    return None


# ---------------------------------------------------------------------- whose code is it

PASSING_MODULES: Final = (
    *("importlib", "zipimport", "pkgutil", "runpy", "linecache", "traceback", "tokenize", "inspect"),
    *("warnings", "logging", "zoneinfo", "tzdata", "gettext", "locale", "encodings"),
    *("pdb", "bdb", "tracemalloc"),
    *("coverage", "pydevd", "debugpy", "_pytest", "hypothesis"),
)
"""Modules, with what is below them, that touch the outside on behalf of Python or of somebody debugging.
Importing reads files, formatting a traceback reads source, a log may be rotated."""

_PACKAGE: Final = "holdfast"
_FROZEN: Final = "<frozen "
_STANDARD_PATHS: Final = tuple(
    directory + os.sep
    for directory in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        str(Path(os.__file__).parent),
    }
)
_LIBRARY_MARKS: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_in_side_effect(frame: FrameType | None) -> bool:
    """Tell whether `hf.side_effect` computes a value in this frame: what is recorded may differ from run to run."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and is_own_module(module):
            return frame.f_code.co_name == "side_effect"
        frame = frame.f_back
    return False


def is_generated(frame: FrameType) -> bool:
    """Tell whether the code of a frame was compiled from a text that is in no file."""
    path = frame.f_code.co_filename
    return path.startswith("<") and not path.startswith(_FROZEN)


def source_of(frame: FrameType) -> str:
    """Return the file whose code a frame runs; for generated code, the file of the module that it was made for.

    Python's ``exec`` gives it the globals of that module, as dataclasses do. Other generators have globals of their own
    (attrs); there the class of its ``self`` tells. Without either it is a program's own, as of ``python -c``.
    """
    path = frame.f_code.co_filename
    if path[:1] != "<" or path.startswith(_FROZEN):
        return path
    file = frame.f_globals.get("__file__")
    if not isinstance(file, str) and "__name__" not in frame.f_globals:
        module = sys.modules.get(type(frame.f_locals.get("self")).__module__)
        file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else path


def is_library_file(path: str) -> bool:
    """Tell whether a source file belongs to Python itself or to an installed package."""
    return path.startswith((_FROZEN, *_STANDARD_PATHS)) or any(mark in path for mark in _LIBRARY_MARKS)


def is_passing_module(name: str) -> bool:
    """Tell whether what a module does is done on behalf of Python itself or of a debugger."""
    return name.partition(".")[0] in PASSING_MODULES or name.startswith("_frozen_importlib")


def is_passing_open(event: str, arguments: tuple[Any, ...]) -> bool:
    """Tell whether a file is time zone data, which Python reads from C, without a frame of its own."""
    path = arguments[0] if event == "open" and arguments else None
    return isinstance(path, str) and path.startswith(zoneinfo.TZPATH)


def is_own_module(name: str) -> bool:
    """Tell whether a module is Holdfast's."""
    return name.partition(".")[0] == _PACKAGE
