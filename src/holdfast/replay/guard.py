"""The determinism guard: finds forbidden calls of workflow code, and names their line.

A workflow that reads a file, a clock or a random number runs well until its first replay, which then differs.
The guard turns that into an error on the first run. It observes in two ways:

- **Always, during a turn**: Python's audit events, which announce files, sockets, processes, threads (from
  3.12 on) and sleeping (from 3.13 on). There is one hook for the process; outside a turn it costs one test of an empty
  dictionary.
- **In strict turns only**: a profile function, which sees every call and so finds clocks and randomness, for
  which there are no audit events. It slows the code down, so it is used for a sample of turns.

Both raise `ForbiddenInWorkflow` from the call, so that the workflow fails there with a traceback that ends at the
line. The guard finds mistakes; it is no sandbox, and reflection and C extensions bypass it. A finding that the workflow
caught is in `GuardedTurn.findings`, and the run refuses such a turn.

Generated code (``<string>``, as the ``__init__`` of a dataclass) belongs to the module that it was generated for.

The first half of the module has the tables: forbidden audit events, forbidden functions, and modules that may act on
behalf of Python or of a debugger.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import get_ident
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any, Final, Protocol, Self, cast

from holdfast.errors import ForbiddenInWorkflow

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
"""Audit events, each with its replacement."""

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
"""Functions written in C. Bound methods are equal if their objects are: those of a ``Random(7)`` are allowed."""


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
"""All of them by identity: Python computes the hash of a code object from its whole content on every call."""

_HIDDEN_RANDOM: Final = getattr(random, "_inst")  # noqa: B009 - the instance behind random.choice and its like


def forbidden_builtin(function: object) -> tuple[str, str] | None:
    """The name of a forbidden C function and its replacement; None if it is allowed."""
    return FORBIDDEN_BUILTINS.get(function) if type(function) is BuiltinFunctionType else None


def forbidden_function(frame: FrameType) -> tuple[str, str] | None:
    """The name of the forbidden Python function that `frame` has just entered, and its replacement; None if allowed."""
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


# ---------------------------------------------------------------------- the owner of a frame

PASSING_MODULES: Final = (
    *("importlib", "zipimport", "pkgutil", "runpy", "linecache", "traceback", "tokenize", "inspect"),
    *("warnings", "logging", "zoneinfo", "tzdata", "gettext", "locale", "encodings"),
    *("pdb", "bdb", "tracemalloc"),
    *("coverage", "pydevd", "debugpy", "_pytest", "hypothesis"),
)
"""Modules, with their submodules, that do I/O on behalf of Python or of a debugger: importing reads files, formatting a
traceback reads source, a log may be rotated."""

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
    """Whether `hf.side_effect` computes a value in this frame: a recorded value may differ from run to run."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and is_own_module(module):
            return frame.f_code.co_name == "side_effect"
        frame = frame.f_back
    return False


def is_generated(frame: FrameType) -> bool:
    """Whether the code of a frame was compiled from a text that is in no file."""
    path = frame.f_code.co_filename
    return path.startswith("<") and not path.startswith(_FROZEN)


def source_of(frame: FrameType) -> str:
    """The file whose code a frame runs; for generated code, the file of the module that it was made for.

    Python's ``exec`` gives it the globals of that module, as dataclasses do. Other generators have globals of their own
    (attrs); there the module of the class of ``self`` is used. Code without either belongs to the program, as of
    ``python -c``.
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
    """Whether a source file belongs to Python itself or to an installed package."""
    return path.startswith((_FROZEN, *_STANDARD_PATHS)) or any(mark in path for mark in _LIBRARY_MARKS)


def is_passing_module(name: str) -> bool:
    """Whether a module acts on behalf of Python itself or of a debugger."""
    return name.partition(".")[0] in PASSING_MODULES or name.startswith("_frozen_importlib")


def is_passing_open(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a file is time zone data, which Python reads from C, without a frame of its own."""
    path = arguments[0] if event == "open" and arguments else None
    return isinstance(path, str) and path.startswith(zoneinfo.TZPATH)


def is_own_module(name: str) -> bool:
    """Whether a module is part of Holdfast."""
    return name.partition(".")[0] == _PACKAGE


MAX_FINDINGS_PER_TURN: Final = 100
"""Bounds the list for a workflow that catches the error in a loop."""

MAX_FILES_REMEMBERED: Final = 10_000

_turns: dict[int, "GuardedTurn"] = {}
"""The guarded turn of each thread that runs one. It is empty nearly always, so that the hook is cheap."""

_hook_is_installed = False


class Guard:
    """Makes guarded turns. `user_roots` are directories whose files are workflow code although installed."""

    def __init__(self, user_roots: Iterable[str] = ()) -> None:
        self._user_roots = tuple(user_roots)
        self._is_user_file: dict[str, bool] = {}
        _install_hook()

    def turn(self, *, strict: bool = False) -> "GuardedTurn":
        """A context manager that guards this thread during a turn. It can be used again for the next turn.

        With `strict` it also finds clocks and randomness, by a profile function that sees every call.
        """
        return GuardedTurn(self, strict)

    def is_user_file(self, path: str) -> bool:
        """Whether a source file is workflow code: neither Python's own nor an installed package's."""
        known = self._is_user_file.get(path)
        if known is None:
            if len(self._is_user_file) >= MAX_FILES_REMEMBERED:
                self._is_user_file.clear()
            is_listed = bool(self._user_roots) and path.startswith(self._user_roots)
            known = self._is_user_file[path] = is_listed or not is_library_file(path)
        return known

    def culprit_frame(self, frame: FrameType | None) -> FrameType | None:
        """The frame of the workflow that caused the call in `frame`, or None.

        None if Python's import system, a debugger or Holdfast itself is between them. Where workflow code is installed
        like a package, it is the nearest frame outside the standard library.
        """
        installed: FrameType | None = None
        user: FrameType | None = None
        generated = False  # a frame further out that has a source line is the better one to name
        while frame is not None:
            module = frame.f_globals.get("__name__")
            name = module if isinstance(module, str) else ""
            if is_passing_module(name):
                return None
            if is_own_module(name):
                return user or installed
            path = source_of(frame)
            if (user is None or generated) and self.is_user_file(path):
                generated = is_generated(frame)
                user = frame if user is None or not generated else user
            elif installed is None and "-packages" in path:
                installed = frame
            frame = frame.f_back
        return user or installed


class Guarded(Protocol):
    """The guard of one turn: `GuardedTurn` or `Unguarded`."""

    @property
    def findings(self) -> Sequence[ForbiddenInWorkflow]: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...


class Unguarded:
    """A turn without a guard."""

    findings: Sequence[ForbiddenInWorkflow] = ()

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class GuardSampler:
    """The turns of one workflow: the first ones are strict."""

    __slots__ = ("_guard", "_relaxed", "_strict_turns")

    def __init__(self, guard: Guard, strict_turns: int) -> None:
        self._guard = guard
        self._relaxed = guard.turn()
        self._strict_turns = strict_turns

    def turn(self) -> "GuardedTurn":
        """The guard of the next turn."""
        if self._strict_turns == 0:
            return self._relaxed
        self._strict_turns -= 1
        return self._guard.turn(strict=True)


class GuardedTurn:
    """One guarded turn. `findings` has all forbidden calls, also those whose error the workflow caught."""

    __slots__ = ("_guard", "_outer", "_previous_profile", "_strict", "_thread", "findings")

    def __init__(self, guard: Guard, strict: bool) -> None:
        self._guard = guard
        self._strict = strict
        self._thread = 0
        self._outer: GuardedTurn | None = None
        self._previous_profile: Any = None
        self.findings: list[ForbiddenInWorkflow] = []

    def begin(self) -> None:
        """Begin to guard this thread."""
        thread = self._thread = get_ident()
        self._outer = _turns.get(thread)
        _turns[thread] = self
        if self.findings:
            self.findings = []
        if self._strict:
            self._previous_profile = previous = sys.getprofile()
            if previous is None or callable(previous):
                sys.setprofile(self._make_profile())

    def end(self) -> None:
        """Stop guarding this thread."""
        if self._strict:
            previous = self._previous_profile
            self._previous_profile = None
            if previous is None or callable(previous):  # else a profiler in C is still installed
                sys.setprofile(previous)
        if self._outer is None:
            del _turns[self._thread]
        else:
            _turns[self._thread] = self._outer

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def accuse(self, called: str, advice: str, frame: FrameType | None) -> None:
        """Raise `ForbiddenInWorkflow` if workflow code made the call of `called`."""
        culprit = self._guard.culprit_frame(frame)
        if culprit is None:
            return
        where = f"{culprit.f_code.co_filename}:{culprit.f_lineno}, in {culprit.f_code.co_name}"
        finding = ForbiddenInWorkflow(
            f"workflow code called {called} ({where}): a replay could not repeat it. {advice}."
        )
        if len(self.findings) < MAX_FINDINGS_PER_TURN:
            self.findings.append(finding)
        raise finding

    def _make_profile(self) -> Callable[[FrameType, str, Any], None]:
        """The profile function of a strict turn.

        CPython removes a profile function that raises, and raises its exception from the call that was being
        made. Clocks and randomness are then unobserved for the rest of that turn.
        """
        is_user_file = self._guard.is_user_file
        suspects = SUSPECTS

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if event == "c_call":
                if is_user_file(source_of(frame)):
                    found = forbidden_builtin(argument)
                    if found is not None and not is_in_side_effect(frame):
                        self.accuse(*found, frame)
            elif event == "call" and id(frame.f_code) in suspects:
                caller = frame.f_back
                if caller is not None and is_user_file(source_of(caller)):
                    found = forbidden_function(frame)
                    if found is not None and not is_in_side_effect(caller):
                        self.accuse(*found, caller)

        return profile


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, its causes and contexts, and the members of its groups, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]
            if isinstance(each, BaseExceptionGroup):
                waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions


def _install_hook() -> None:
    global _hook_is_installed  # noqa: PLW0603 - an audit hook can never be removed, so there is one per process
    if not _hook_is_installed:
        _hook_is_installed = True
        sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _turns:
        return
    advice = FORBIDDEN_EVENTS.get(event)
    if advice is None:
        return
    turn = _turns.get(get_ident())
    if turn is not None and not is_passing_open(event, arguments):
        turn.accuse(event, advice, sys._getframe(1))  # noqa: SLF001 - the frame that raised the event
