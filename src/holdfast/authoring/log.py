"""Log records of workflow code and of the bodies of activities.

While an engine, a worker or a client that answers queries is open, a record factory is installed in `logging`. It adds
the ids of the instance and the attempt (`FIELDS`) to every record of such code, from any logger. Records that workflow
code makes while it is replayed, or while it is torn down, are dropped: they were written before.

A line of workflow code by `hf.log` is written with the commit of its turn, and not before (G11).
"""

import logging
import sys
import threading
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

from holdfast.authoring.activity import current_activity
from holdfast.core.run import ExecutionId, LogLine
from holdfast.errors import NotInWorkflow
from holdfast.replay.run import observed_run

workflow_logger: Final = logging.getLogger("holdfast.workflow")
activity_logger: Final = logging.getLogger("holdfast.activity")
ENGINE_LOGGER: Final = "holdfast"
"""Lines of this logger name their instance in the text. Some are written while workflow code or a body runs."""

FIELDS: Final = (
    "holdfast_instance",
    "holdfast_workflow",
    "holdfast_execution",
    "holdfast_activity",
    "holdfast_attempt",
    "holdfast_worker",
)
"""The attributes of a record of workflow code or of an activity. In workflow code activity and attempt are None."""
DROPPED: Final = -1
"""A level below that of every handler, so that `Logger.callHandlers` skips all of them."""
OF_LOGGING: Final = frozenset({"message", "asctime"})
"""Attributes that formatters set, besides those of a new record."""
MAKE_RECORD: Final = logging.Logger.makeRecord.__code__
MAX_FACTORY_FRAMES: Final = 20
"""Frames between `_extra_of_caller` and `Logger.makeRecord` that are searched."""
CALLER_DEPTH: Final = 2
"""Frames between `Log._write` and the code that logs."""


class Log:
    """`hf.log`: for workflow code and for the bodies of activities.

    In workflow code a line is written once: with the commit of the turn that logged it, and not again in a replay.
    Keyword arguments and the dictionary of `extra=` become attributes of the record. A name that `logging` uses
    already, such as `name`, gets an underscore appended.
    """

    def debug(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level DEBUG."""
        self._write(logging.DEBUG, message, arguments, extra)

    def info(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level INFO."""
        self._write(logging.INFO, message, arguments, extra)

    def warning(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level WARNING."""
        self._write(logging.WARNING, message, arguments, extra)

    def error(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level ERROR. `exc_info=True` adds the exception that is being handled."""
        self._write(logging.ERROR, message, arguments, extra)

    def exception(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level ERROR and the exception that is being handled."""
        extra.setdefault("exc_info", True)
        self._write(logging.ERROR, message, arguments, extra)

    def critical(self, message: str, *arguments: Any, **extra: Any) -> None:
        """Log with the level CRITICAL."""
        self._write(logging.CRITICAL, message, arguments, extra)

    def _write(self, level: int, message: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        error = _error_of(options.pop("exc_info", None))
        for unused in ("stack_info", "stacklevel"):
            options.pop(unused, None)
        extra = options | dict(options.pop("extra", None) or {})
        caller = sys._getframe(CALLER_DEPTH)  # noqa: SLF001 - as `logging` finds the caller
        place = (caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name)
        line = LogLine(level, message, arguments, extra, error, place)
        run = observed_run()
        if run is not None:
            run.context.add_line(line)
            return
        activity = current_activity.get()
        if activity is None:
            raise NotInWorkflow(
                "hf.log works in workflow code and in the body of an activity; elsewhere use Python's `logging`"
            )
        _emit(activity_logger, line, tuple(activity.identity))


log: Final = Log()


def write_line(line: LogLine, identity: ExecutionId) -> None:
    """Write a line of workflow code, once its turn is committed."""
    _emit(workflow_logger, line, _fields(identity))


def _emit(logger: logging.Logger, line: LogLine, fields: tuple[Any, ...]) -> None:
    if not logger.isEnabledFor(line.level):
        return
    error = line.error
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    file, number, function = line.place
    record = logger.makeRecord(logger.name, line.level, file, number, line.message, line.arguments, exc_info, function)
    for key, value in line.extra.items():
        is_taken = key in record.__dict__ or key in OF_LOGGING
        record.__dict__[f"{key}_" if is_taken else key] = value
    record.__dict__.update(zip(FIELDS, fields, strict=True))
    record.__dict__.setdefault("instance", fields[0])
    logger.handle(record)


def _error_of(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    return sys.exception() if exc_info else None


def _fields(identity: ExecutionId) -> tuple[Any, ...]:
    return identity.instance_id, identity.workflow, identity.execution, None, None, identity.worker or None


class _Factory:
    """Makes records by the previous factory, and fills them while an engine, a worker or a client is open."""

    __slots__ = ("is_needed", "previous")

    def __init__(self, previous: Callable[..., logging.LogRecord]) -> None:
        self.previous = previous
        self.is_needed = True

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.previous(name, *args, **kwargs)
        if self.is_needed and name != ENGINE_LOGGER:
            run = observed_run()
            if run is not None:
                if run.context.is_silent:
                    record.levelno = DROPPED
                _fill(record, _fields(run.identity))
            else:
                activity = current_activity.get()
                if activity is not None:
                    _fill(record, activity.identity)
        return record


def _fill(record: logging.LogRecord, values: Iterable[Any]) -> None:
    """Set `FIELDS`, except those in the `extra` of the caller: `Logger.makeRecord` refuses to overwrite one."""
    extra = _extra_of_caller()
    for name, value in zip(FIELDS, values, strict=True):
        if name not in extra:
            record.__dict__[name] = value


def _extra_of_caller() -> Container[Any]:
    """The `extra` of the calling `Logger.makeRecord`. Frames of a factory on top of ours are skipped."""
    frame = sys._getframe(1)  # noqa: SLF001 - `extra` is no argument of a factory
    for _ in range(MAX_FACTORY_FRAMES):
        if frame.f_code is MAKE_RECORD:
            return frame.f_locals["extra"] or ()
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ()


class Records:
    """Installs the factory once for a process, while an engine, a worker or a client that answers queries is open.

    Each installation makes a new factory. An earlier one below a factory that the program has set stays installed,
    without effect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._factory: _Factory | None = None

    def install(self) -> None:
        """Begin to fill records, on top of the current factory."""
        with self._lock:
            self._users += 1
            if self._factory is None:
                self._factory = _Factory(logging.getLogRecordFactory())
                logging.setLogRecordFactory(self._factory)

    def uninstall(self) -> None:
        """Restore the previous factory, unless the program has set another one on top."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._factory is not None:
                self._factory.is_needed = False
                if logging.getLogRecordFactory() is self._factory:
                    logging.setLogRecordFactory(self._factory.previous)
                self._factory = None


records: Final = Records()
