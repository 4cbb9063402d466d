"""Exceptions as data: recorded where they are raised, and raised again elsewhere with their type.

`failure_of` always succeeds and is bounded: endless messages, cyclic causes, huge groups and a ``str()`` that
raises all give a readable `RecordedFailure`. Characters that JSON or a database cannot store are replaced.

`to_exception` returns the original type where the caller's resolver knows it, so that ``except Declined``
works on the other side of the store, and otherwise a `RemoteError` with the name of the type. It never
imports a name that comes from data, and it runs none of the user's code: a class with its own ``__init__``
or ``__new__`` is not called. Such an exception is made by the built-in class it derives from, gets its
``args``, and gets the attributes that its ``__init__`` had set, as far as JSON can hold them. The result
equals the original even if ``__init__`` took other arguments than it passed to ``super().__init__``.
"""

import builtins
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from holdfast.errors import HoldfastError, PayloadError, RemoteError, RetryAfter, WorkflowFailed
from holdfast.payloads.encoding import encode
from holdfast.payloads.limits import (
    ARGUMENTS_LIMIT_BYTES,
    ARGUMENTS_MAX_DEPTH,
    FAILURES_LIMIT,
    MESSAGE_LIMIT_CHARACTERS,
    NOTES_LIMIT,
    TRACEBACK_LIMIT_CHARACTERS,
    TRACEBACK_LIMIT_FRAMES,
    is_deeper_than,
    shorten,
)

FAILED: Final = " failed: "
"""Between the id of an instance and its error."""

Resolver = Callable[[str], type[BaseException] | None]
"""Finds a class by its qualified name among registered code and builtins only; it never imports."""

_TYPE_NAME_LIMIT: Final = 500
_NOTES: Final = "__notes__"
_ENGINE: Final = str(Path(__file__).parents[1]) + os.sep
"""The folder of this package."""
_NEVER_RAISED_AGAIN: Final = (StopIteration, StopAsyncIteration, BaseExceptionGroup)
"""Python turns the first two into other errors inside coroutines; a group without members cannot be made."""


class RecordedFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exception with its causes. `arguments` is None if JSON cannot hold them."""

    type: str
    """The qualified name, such as ``builtins.KeyError`` or ``shop.payments.Declined``."""
    message: str
    arguments: list[Any] | None = None
    attributes: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    traceback: str = ""
    cause: "RecordedFailure | None" = None
    members: tuple["RecordedFailure", ...] = ()
    """Of an exception group."""
    retryable: bool | None = None
    """None leaves the decision to the retry policy."""
    next_delay_seconds: float | None = None
    """The delay before the next attempt; None leaves it to the retry policy."""
    bases: tuple[str, ...] = ()
    """The base classes of its type, below `Exception`: a reader may not have the class."""


MOST_BASES: Final = 8


class _ErrorType(msgspec.Struct):
    """The part of a `RecordedFailure` that names its type."""

    type: str


_error_type: Final = msgspec.json.Decoder(_ErrorType)


def error_name(encoded: bytes) -> str:
    """The type of an encoded failure without its module, by which filters find it (F4)."""
    return _error_type.decode(encoded).type.rpartition(".")[2]


def qualified_name(cls: type) -> str:
    """The name of a type in a `RecordedFailure`, by which a resolver finds it."""
    return shorten(f"{cls.__module__}.{cls.__qualname__}", _TYPE_NAME_LIMIT)


def describe_error(error: BaseException) -> str:
    """The name of the type of an exception, also of one that is not known here, and its message."""
    name = error.type_name if isinstance(error, RemoteError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name


def failed_message(instance_id: str, cause: BaseException) -> str:
    """The message of the `WorkflowFailed` of an instance.

    Through any number of children it names the instance itself, and the one in which the error was raised with the
    error. The instances between them are in the causes, so that the message does not grow with the depth.
    """
    if not isinstance(cause, WorkflowFailed):
        return f"{instance_id}{FAILED}{describe_error(cause)}"
    message = str(cause)
    if isinstance(cause.cause, WorkflowFailed):
        message = message.partition(FAILED)[2] or message
    return f"{instance_id}{FAILED}{message}"


def resolve_builtin(name: str) -> type[BaseException] | None:
    """The resolver that knows Python's own exceptions, by ``builtins.KeyError``."""
    module, _, attribute = name.partition(".")
    found = vars(builtins).get(attribute) if module == builtins.__name__ else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def failure_of(exception: BaseException, *, retryable: bool | None = None) -> RecordedFailure:
    """`exception` as data, with its causes, bounded. It never raises."""
    recorder = _Recorder()
    failure = recorder.record(exception)
    delay = exception.delay_seconds if isinstance(exception, RetryAfter) else None
    if retryable is None and delay is None:
        return failure
    return msgspec.structs.replace(failure, retryable=retryable, next_delay_seconds=delay)


def error_names(exception: BaseException) -> tuple[str, ...]:
    """The names by which a retry policy knows an error: of its type and base types, qualified and short.

    An error whose type is not known here has the name of its type.
    """
    names = [qualified_name(cls) for cls in type(exception).__mro__]
    if isinstance(exception, RemoteError):
        names.insert(0, exception.type_name)
    return tuple(dict.fromkeys(name for full in names for name in (full, full.rpartition(".")[2])))


class _Recorder:
    """Walks causes and groups; each exception is recorded once, and at most `FAILURES_LIMIT` of them."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def record(self, exception: BaseException) -> RecordedFailure:
        self._seen.add(id(exception))
        message = _message_of(exception)
        members: list[RecordedFailure] = []
        notes = _notes_of(exception)
        if (group := _as_group(exception)) is not None:
            message = _clean(str(group.message))
            members = [self.record(member) for member in group.exceptions if self._is_new(member)]
            if left_out := len(group.exceptions) - len(members):
                notes.append(f"{left_out} more exceptions of this group were left out")
        cause = _cause_of(exception)
        arguments = None if members else _storable_arguments(exception)
        return RecordedFailure(
            type=_clean(qualified_name(type(exception))),
            message=message,
            arguments=arguments,
            attributes=_storable_attributes(exception),
            notes=tuple(notes),
            traceback=_traceback_of(exception),
            cause=self.record(cause) if cause is not None and self._is_new(cause) else None,
            members=tuple(members),
            bases=_bases_of(type(exception)),
        )

    def _is_new(self, exception: BaseException) -> bool:
        return id(exception) not in self._seen and len(self._seen) < FAILURES_LIMIT


def _bases_of(kind: type[BaseException]) -> tuple[str, ...]:
    """The base classes of a type; none for a built-in one, whose bases are known."""
    if kind.__module__ == "builtins":
        return ()
    below = [base for base in kind.__mro__[1:] if base not in (Exception, BaseException, object)]
    return tuple(_clean(qualified_name(base)) for base in below[:MOST_BASES])


def _as_group(exception: BaseException) -> BaseExceptionGroup[BaseException] | None:
    return cast("Any", exception) if isinstance(exception, BaseExceptionGroup) else None


def _cause_of(exception: BaseException) -> BaseException | None:
    if exception.__cause__ is not None or exception.__suppress_context__:
        return exception.__cause__
    return exception.__context__


def _clean(text: str, limit_characters: int = MESSAGE_LIMIT_CHARACTERS) -> str:
    """`text`, shortened, without lone surrogates and NUL, which cannot be stored."""
    short = shorten(text, limit_characters)
    return short.encode(errors="replace").decode().replace("\0", "?")


def _message_of(exception: BaseException) -> str:
    try:
        return _clean(str(exception))
    except Exception as error:  # noqa: BLE001  str() is the user's code
        return f"<str() of {type(exception).__qualname__} raised {type(error).__qualname__}>"


def _notes_of(exception: BaseException) -> list[str]:
    notes: Any = getattr(exception, _NOTES, None)
    if notes.__class__ is not list:
        return []
    return [_clean(note) for note in notes[:NOTES_LIMIT] if isinstance(note, str)]


def _traceback_of(exception: BaseException) -> str:
    """The traceback from the first frame of the user's code; frames of the engine before it are left out.

    An error that the engine raises on purpose has no traceback: its message is complete.
    """
    frames = traceback.extract_tb(exception.__traceback__, limit=-TRACEBACK_LIMIT_FRAMES)
    default = len(frames) if isinstance(exception, HoldfastError) else 0
    first = next((at for at, frame in enumerate(frames) if not frame.filename.startswith(_ENGINE)), default)
    shown = traceback.StackSummary.from_list(frames[first:])
    return _clean("".join(shown.format()).rstrip(), TRACEBACK_LIMIT_CHARACTERS)


def _storable_arguments(exception: BaseException) -> list[Any] | None:
    arguments: Sequence[Any] = exception.args
    if isinstance(exception, OSError) and exception.filename is not None:
        arguments = (exception.errno, exception.strerror, exception.filename)
    return [*arguments] if all(map(_is_storable, arguments)) and _is_storable([*arguments]) else None


def _storable_attributes(exception: BaseException) -> dict[str, Any]:
    attributes = getattr(exception, "__dict__", {})
    storable = {
        name: value
        for name, value in attributes.items()
        if name.isidentifier() and name != _NOTES and _is_storable(value)
    }
    return storable if _is_storable(storable) else {}


def _is_storable(value: object) -> bool:
    """Whether JSON holds `value` without an annotation, within the limit."""
    if isinstance(value, str | bytes) and len(value) > ARGUMENTS_LIMIT_BYTES:
        return False
    try:
        data = encode(value, Any)
    except PayloadError:
        return False
    return len(data) <= ARGUMENTS_LIMIT_BYTES and not is_deeper_than(ARGUMENTS_MAX_DEPTH, data)


def to_exception(failure: RecordedFailure, resolve: Resolver) -> Exception:
    """The exception that `failure` records, ready to be raised; its causes are in ``__cause__``."""
    members = [to_exception(member, resolve) for member in failure.members]
    exception = _rebuild(failure, resolve(failure.type), members)
    if isinstance(exception, RemoteError) and exception.type_name == failure.type:
        exception.add_note(f"Its type was {failure.type}, which is not known here")
    for note in failure.notes:
        exception.add_note(note)
    if failure.traceback:
        exception.add_note(f"Recorded traceback (most recent call last):\n{failure.traceback}")
    if failure.cause is not None:
        exception.__cause__ = to_exception(failure.cause, resolve)
    return exception


def _rebuild(failure: RecordedFailure, cls: type[BaseException] | None, members: list[Exception]) -> Exception:
    if members:
        return _rebuild_group(failure, cls, members)
    if cls is not None and issubclass(cls, Exception) and not issubclass(cls, _NEVER_RAISED_AGAIN):
        arguments = [failure.message] if failure.arguments is None else failure.arguments
        try:
            return _make(cls, arguments, failure.attributes)
        except (TypeError, ValueError, AttributeError):
            pass  # a built-in that these arguments do not fit: the name and message are kept instead
    unknown = RemoteError(failure.message, failure.type, failure.attributes)
    if failure.bases:
        unknown.bases = failure.bases
    return unknown


def _rebuild_group(failure: RecordedFailure, cls: type[BaseException] | None, members: list[Exception]) -> Exception:
    if cls is not None and issubclass(cls, ExceptionGroup):
        group_class = cast("type[ExceptionGroup[Exception]]", cls)
        if group_class.__new__ is ExceptionGroup.__new__ and group_class.__init__ is ExceptionGroup.__init__:
            return group_class(failure.message, members)
    return ExceptionGroup(failure.message, members)


def _make(cls: type[Exception], arguments: Sequence[Any], attributes: dict[str, Any]) -> Exception:
    """An instance of `cls` as its own ``__init__`` left it, without running code of `cls`."""
    base = next(ancestor for ancestor in cls.__mro__ if ancestor.__module__ == builtins.__name__)
    builtin = cast("type[Exception]", base)
    exception = builtin.__new__(cls, *arguments)
    builtin.__init__(exception, *arguments)
    if attributes:
        vars(exception).update(attributes)
    return exception
