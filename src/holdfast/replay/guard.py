"""Finds what workflow code must not do, and names the line that did it.

A workflow that reads a file, a clock or a random number runs well until its first replay, which then differs.
The guard turns that into an error on the first run. It watches in two ways:

- **Always, during a turn**: Python's audit events, which announce files, sockets, processes, threads (from
  3.12 on) and sleeping (from 3.13 on). One hook for the process; outside a turn it costs one look at an empty
  dictionary.
- **In strict turns only**: a profile function, which sees every call and so finds clocks and randomness, for
  which there are no audit events. It makes code slower, so the driver asks for it on a sample of turns.

Both raise `ForbiddenInWorkflow` where the call is made, so that the workflow fails there with a traceback
that ends at the line. It is a guard against mistakes, not a sandbox: reflection and C extensions get past it.
A finding that the workflow caught is in `Turn.findings`, and the run does not let such a turn count.

Code that was generated while the program ran (``<string>``, as the ``__init__`` of a dataclass) belongs to the
module that it was generated for.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_ident
from types import FrameType
from typing import Any, Final, Protocol, Self, cast

from holdfast.errors import ForbiddenInWorkflow
from holdfast.replay import guard_rules as rules

MAX_FINDINGS_PER_TURN: Final = 100
"""A workflow that catches the error in a loop makes no endless list."""

MAX_FILES_REMEMBERED: Final = 10_000

_turns: dict[int, "GuardedTurn"] = {}
"""The guarded turn of each thread that runs one. Empty nearly always, which is what makes the hook cheap."""

_hook_is_installed = False


class Guard:
    """Makes guarded turns. `user_roots` are directories whose files are workflow code although installed."""

    def __init__(self, user_roots: Iterable[str] = ()) -> None:
        self._user_roots = tuple(user_roots)
        self._is_user_file: dict[str, bool] = {}
        _install_hook()

    def turn(self, *, strict: bool = False) -> "GuardedTurn":
        """Return a context manager that guards this thread while a turn runs, one turn after another.

        With `strict`, clocks and randomness are found too, at the price of every call being looked at.
        """
        return GuardedTurn(self, strict)

    def is_user_file(self, path: str) -> bool:
        """Tell whether a source file is workflow code: neither Python's own nor an installed package's."""
        known = self._is_user_file.get(path)
        if known is None:
            if len(self._is_user_file) >= MAX_FILES_REMEMBERED:
                self._is_user_file.clear()
            is_listed = bool(self._user_roots) and path.startswith(self._user_roots)
            known = self._is_user_file[path] = is_listed or not rules.is_library_file(path)
        return known

    def guilty_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the workflow's frame that is to blame for what `frame` does, or None if nobody is.

        Nobody is if Python's import system, a debugger or Holdfast itself stands between. Where workflow code
        is installed like a package, the nearest frame outside the standard library is blamed.
        """
        installed: FrameType | None = None
        user: FrameType | None = None
        generated = False  # then a frame with a line that can be looked up is the better one to name
        while frame is not None:
            module = frame.f_globals.get("__name__")
            name = module if isinstance(module, str) else ""
            if rules.is_passing_module(name):
                return None
            if rules.is_own_module(name):
                return user or installed
            path = rules.source_of(frame)
            if (user is None or generated) and self.is_user_file(path):
                generated = rules.is_generated(frame)
                user = frame if user is None or not generated else user
            elif installed is None and "-packages" in path:
                installed = frame
            frame = frame.f_back
        return user or installed


class Guarded(Protocol):
    """A turn that is guarded, or one that is not."""

    @property
    def findings(self) -> Sequence[ForbiddenInWorkflow]: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...


class Unguarded:
    """A turn that nobody guards."""

    @property
    def findings(self) -> Sequence[ForbiddenInWorkflow]:
        """Nothing is found."""
        return ()

    def begin(self) -> None:
        """Nothing changes."""

    def end(self) -> None:
        """Nothing changes."""


class GuardSampler:
    """The turns of one workflow: the first ones are strict."""

    __slots__ = ("_guard", "_relaxed", "_strict_turns")

    def __init__(self, guard: Guard, strict_turns: int) -> None:
        self._guard = guard
        self._relaxed = guard.turn()
        self._strict_turns = strict_turns

    def turn(self) -> "GuardedTurn":
        """The next one."""
        if self._strict_turns == 0:
            return self._relaxed
        self._strict_turns -= 1
        return self._guard.turn(strict=True)


class GuardedTurn:
    """One guarded turn. `findings` has every mistake that was found, also those the workflow caught."""

    __slots__ = ("_guard", "_outer", "_previous_profile", "_strict", "_thread", "findings")

    def __init__(self, guard: Guard, strict: bool) -> None:
        self._guard = guard
        self._strict = strict
        self._thread = 0
        self._outer: GuardedTurn | None = None
        self._previous_profile: Any = None
        self.findings: list[ForbiddenInWorkflow] = []

    def begin(self) -> None:
        """Guard this thread from here on."""
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
        """Guard it no longer."""
        if self._strict:
            previous, self._previous_profile = self._previous_profile, None
            if previous is None or callable(previous):  # else it is that of a profiler in C, and still there
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
        """Raise `ForbiddenInWorkflow` for a call of `called` if workflow code is to blame for it."""
        guilty = self._guard.guilty_frame(frame)
        if guilty is None:
            return
        where = f"{guilty.f_code.co_filename}:{guilty.f_lineno}, in {guilty.f_code.co_name}"
        finding = ForbiddenInWorkflow(
            f"workflow code called {called} ({where}): a replay could not repeat it. {advice}."
        )
        if len(self.findings) < MAX_FINDINGS_PER_TURN:
            self.findings.append(finding)
        raise finding

    def _make_profile(self) -> Callable[[FrameType, str, Any], None]:
        """Return the profile function of a strict turn.

        CPython removes a profile function that raises, and raises its exception from the call that was being
        made: just where it belongs. Clocks and randomness are then unwatched for the rest of that turn.
        """
        is_user_file = self._guard.is_user_file
        suspects = rules.SUSPECTS

        def look(frame: FrameType, event: str, argument: Any) -> None:
            if event == "c_call":
                if is_user_file(rules.source_of(frame)):
                    found = rules.forbidden_builtin(argument)
                    if found is not None and not rules.is_in_side_effect(frame):
                        self.accuse(*found, frame)
            elif event == "call" and id(frame.f_code) in suspects:
                caller = frame.f_back
                if caller is not None and is_user_file(rules.source_of(caller)):
                    found = rules.forbidden_function(frame)
                    if found is not None and not rules.is_in_side_effect(caller):
                        self.accuse(*found, caller)

        return look


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and every one that it came from, or that is in its group, each once."""
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
    advice = rules.FORBIDDEN_EVENTS.get(event)
    if advice is None:
        return
    turn = _turns.get(get_ident())
    if turn is not None and not rules.is_passing_open(event, arguments):
        turn.accuse(event, advice, sys._getframe(1))  # noqa: SLF001 - the frame that raised the event
