"""Every error that Holdfast raises, in one tree with the root `HoldfastError`.

A message names the thing that is wrong, what was expected and found, and the remedy where there is one. Holdfast
raises nothing else on purpose, except `holdfast.Cancelled`, which derives from `asyncio.CancelledError`, and
`TimeoutError` for the `timeout=` of a call. `holdfast` itself exports the errors that programs catch.
``docs/reference/errors.md`` draws the tree.

The qualified names are stored with failures, so an error keeps its name and its module.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

MAX_RETRY_AFTER_SECONDS: Final = 366 * 24 * 3_600
"""The longest delay that a body can choose for its retry."""


class HoldfastError(Exception):
    """The root: ``except HoldfastError`` catches every error that Holdfast raises on purpose."""


class UsageError(HoldfastError):
    """A call or a command that cannot work as it is written. The command line prints the message and exits with 2."""


class WrongEventLoop(UsageError):
    """A client, engine, handle or worker was called from an event loop other than the one that opened it."""


class UnknownWord(HoldfastError):
    """A string that is not the name of any state, event or policy, where one is expected."""


class InvariantBroken(HoldfastError):
    """An invariant does not hold: a bug in Holdfast, or a damaged store. Test environments raise it, too."""


class LedgerError(HoldfastError):
    """A number that is not an activity ledger, or a step that the digits of the ledger do not allow (L)."""


class CollationError(HoldfastError):
    """An error about a collation key (K)."""


class MalformedKey(CollationError):
    """A string that is not a collation key or a composite of collation keys."""


class UnknownActivity(CollationError):
    """An activity that is not part of the key or the graph."""


class IllegalMove(CollationError):
    """A move that the digit of an activity does not allow (K2). Nothing was changed."""


class MalformedGraph(CollationError):
    """Edges that do not form a directed acyclic graph."""


class CycleLimitExceeded(CollationError):
    """A cycle of a flow ran more rounds than its limit allows (K8)."""


class FlowProblem(NamedTuple):
    """One problem of a flow. `line` is 0 for a flow that was not read from a file; then `node` names the place."""

    line: int
    message: str
    suggestion: str = ""
    severity: Literal["error", "warning"] = "error"
    node: str = ""

    def __str__(self) -> str:
        return f"{self.message} (did you mean {self.suggestion}?)" if self.suggestion else self.message


class FlowError(HoldfastError):
    """An invalid flow. `problems` lists what is wrong, at most a hundred entries; the message has a line for each.

    `left_out` is the number of further problems.
    """

    def __init__(self, message: str, problems: tuple[FlowProblem, ...] = (), left_out: int = 0) -> None:
        super().__init__(message)
        self.problems = problems
        self.left_out = left_out


class ExpressionError(HoldfastError):
    """A CEL expression of a flow that is invalid or cannot be evaluated. `column` counts from 1; 0 if unknown."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


class IllegalTransition(HoldfastError):
    """An event that is not allowed in the current state (A1, A9). Nothing was changed."""


class LeaseError(HoldfastError):
    """A lease duration that cannot be granted, or a worker that sends two heartbeats at once (W1, W9)."""


class InstanceConflict(HoldfastError):
    """The id belongs to an instance of another workflow, or with another input (G3)."""


class PayloadError(HoldfastError):
    """A value that cannot be encoded as its annotated type, or JSON that is not of that type. Nothing was stored."""


class PayloadTooLarge(PayloadError):
    """A payload larger than its limit in bytes."""


class MalformedPayload(PayloadError):
    """External bytes that are not valid JSON, or are ambiguous JSON, such as an object with a key twice."""


class AnnotationError(PayloadError):
    """A type hint that payloads cannot have. It is found when the function is decorated or registered."""


class ArgumentError(PayloadError):
    """A call whose arguments do not fit the function: one too many, one missing, or one of the wrong type."""


class RemoteError(HoldfastError):
    """Stands for a recorded exception whose type the registered code does not name, or cannot construct.

    ``str()`` is the original message, `type_name` the qualified name of the original type. `attributes` has the
    attributes of the original that JSON can hold, up to 16 KiB.
    """

    type_name: str
    attributes: Mapping[str, Any] = MappingProxyType({})
    bases: tuple[str, ...] = ()
    """The qualified names of the base classes of that type, as far as they were recorded."""

    def __init__(self, message: str, type_name: str = "", attributes: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.attributes = {} if attributes is None else dict(attributes)


class StoreError(HoldfastError):
    """The store cannot be opened, read or written. The outcome of the call is unknown unless the message states it."""


class StoreReplaced(StoreError):
    """A file of an open SQLite store was removed or replaced. Nothing more is written or acknowledged.

    The engine or worker has stopped. The message names the file and states where acknowledged work is.
    """


class ReleaseTooOld(StoreError):
    """A newer release migrated the store to a schema that this release cannot use. Nothing was changed."""


class ClientClosed(StoreError):
    """The client is closed, or was closed during the call. Instances are not affected."""


class WorkerLost(HoldfastError):
    """The worker that ran an activity was lost, and the activity must not run again (A10)."""


class ClaimsExhausted(HoldfastError):
    """An activity was claimed too often by workers that were lost before they started it (L8)."""


class WorkflowCodeError(HoldfastError):
    """Workflow code did something that a deterministic replay cannot repeat."""


class NotInWorkflow(WorkflowCodeError):
    """A call of a workflow that belongs in an activity (I/O, threads, clients), or one that only workflows may make."""


class ForbiddenInWorkflow(WorkflowCodeError):
    """Workflow code called a function whose result differs between runs. The message names the line."""


class UndeclaredError(WorkflowCodeError):
    """A workflow with ``on_error="block"`` raised an exception that it does not declare, so it is BLOCKED (R18)."""


class NotInMainTask(WorkflowCodeError):
    """A task that the workflow started called `continue_as_new`; only the main task may (G4)."""


class NotReadOnly(WorkflowCodeError):
    """A query or a validator tried to change the workflow. Only the code of an update may."""


class NestedTooDeep(WorkflowCodeError):
    """A workflow tried to start a child with more ancestors than are allowed."""


class InvalidDelay(WorkflowCodeError, ValueError):
    """A delay or a due time that is not a number of seconds."""


class TurnTooLong(HoldfastError):
    """A turn of a workflow exceeded its limit of steps, of time or of rounds (G12)."""


class HistoryMismatch(WorkflowCodeError):
    """The code does not repeat the steps in its history (G12). The message shows the first difference."""


class ContextFailed(HoldfastError):
    """The `context=` of a worker raised before it had made a context. The worker does not start."""


class InvalidOption(HoldfastError):
    """An option with an invalid value."""


class RetryPolicyError(InvalidOption):
    """A retry policy with invalid numbers."""


class InvalidAttribute(InvalidOption):
    """An attribute whose name or value is not allowed, or one too many (F1). Nothing was stored."""


class FilterError(HoldfastError):
    """An error about a search for instances (F). Nothing was read."""


class InvalidFilter(FilterError):
    """A filter that cannot be read. `column` counts from 1; 0 if the filter as a whole is wrong."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


class FilterTooBroad(FilterError):
    """A filter that no index supports, on a store with many instances (F8). The message states what to add."""


class InvalidCursor(FilterError):
    """A cursor that was changed, or that belongs to another filter, order or store (F7)."""


class SearchTimedOut(FilterError, TimeoutError):
    """A search that took longer than its limit (F9)."""


class InvalidId(HoldfastError):
    """A name or id that is empty, too long, or has characters that are not allowed."""


class DuplicateName(HoldfastError):
    """Two definitions with the same name were registered."""


class UnknownWorkflow(HoldfastError):
    """A workflow that is not registered."""


class InstanceNotFound(HoldfastError):
    """No instance has the id."""


class InstanceClosed(HoldfastError):
    """The instance has ended, so it takes no more events, updates or requests."""


class DeleteRefused(HoldfastError):
    """The instance and its family are not deleted; nothing was changed (R31)."""


class FamilyOpen(DeleteRefused):
    """A member of the family is open: end it first, or wait for its end."""


class NotARoot(DeleteRefused):
    """The instance is a child, and is deleted with the root of its family."""


class FamilyKept(DeleteRefused):
    """A member of the family has the attribute `keep`, which keeps all of it (R33)."""


class ArchiveError(HoldfastError):
    """A file that is not an archive of this store, or an archive that is damaged or cannot be written (R35)."""


class InstanceNotBlocked(HoldfastError):
    """The instance is not BLOCKED, so there is nothing to retry (G12)."""


class Failure(HoldfastError):
    """Raised by the user's code, or derived from, to fail a workflow on purpose.

    A workflow with ``on_error="block"`` fails with it, and is blocked by any exception that it does not declare (R18).
    """


class InstanceNotPaused(HoldfastError):
    """The instance is not PAUSED, so there is nothing to resume (R22)."""


class InstanceNotRunning(HoldfastError):
    """The instance is BLOCKED or was asked to cancel, so it cannot be paused (R20)."""


class NothingExhausted(HoldfastError):
    """None of the activities of the instance has used up its retries, so there is no failure to let through (R27)."""


class WorkflowFailed(HoldfastError):
    """The workflow failed. `cause` is the error that ended it."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.__cause__ = cause

    @property
    def cause(self) -> Exception | None:
        """The error that ended the workflow, also for a `WorkflowFailed` that was itself recorded."""
        return self.__cause__ if isinstance(self.__cause__, Exception) else None


class MailboxFull(HoldfastError):
    """An event was rejected, because the mailbox of the workflow is full. Events are taken again when it reads some."""


class UnknownQuery(HoldfastError):
    """The workflow has no query of this name. `handlers` are the names that it has."""

    def __init__(self, message: str, handlers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.handlers = handlers


class QueryFailed(HoldfastError):
    """The code of a query raised `cause`. Nothing was changed."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateRejected(HoldfastError):
    """The workflow rejected an update: its validator raised `cause`. Nothing was changed or recorded."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateConflict(HoldfastError):
    """The id of an update belongs to an update with another name or other arguments. Nothing was changed."""


class UpdateNotFound(HoldfastError):
    """No update of the instance has the id. Rejected updates are kept for ten minutes."""


class UnknownUpdate(UpdateRejected):
    """The workflow has no update of this name. `handlers` are the names that it has."""

    def __init__(self, message: str, handlers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.handlers = handlers


class NodeNotHeld(HoldfastError):
    """A release of a node that is not held: its digit is not 5, it still waits, or there is no such node (K11)."""


class UpdateFailed(HoldfastError):
    """The code of an update raised `cause`."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateUnfinished(UpdateFailed):
    """The workflow ended, or continued as new, before the code of an accepted update had finished."""


class WorkflowCancelled(HoldfastError):
    """The workflow ended because it was cancelled."""


class DeadlineExceeded(HoldfastError, TimeoutError):
    """The workflow did not end within its deadline. It is the `cause` of the `WorkflowFailed`."""


class WorkflowTerminated(HoldfastError):
    """The workflow was terminated: it ended at once, without running its code. `reason` is the caller's, if given."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class WorkflowBlocked(HoldfastError):
    """The workflow is blocked (G12): its code does not match its history, never awaits, or kills its workers."""


class ActivityCancelled(HoldfastError):
    """An activity was cancelled from outside of its workflow: by `handle.cancel_activity`, a command or a row (A1).

    It is an ordinary exception, and the activity is not retried. The error of a body that failed after the request is
    its ``__cause__``.
    """


class ActivityNotFound(HoldfastError):
    """No activity of the instance has the name, or several have it and the call does not say which."""


class ActivityClosed(HoldfastError):
    """The activity has its answer, or its workflow does not wait for it any more, so it cannot be cancelled."""


class RetryAfter(HoldfastError):
    """Raised by the body of an activity, or by a workflow that has a retry policy, to choose the delay of its retry.

    ``raise hf.RetryAfter(30)``, with seconds or a timedelta, is a failure of the attempt as any other: the policy says
    whether another one follows, and `delay_seconds`, at most 366 days, replaces the delay of the policy.
    """

    def __init__(self, delay: "float | timedelta", message: str = "") -> None:
        self.delay_seconds = _retry_after_seconds(delay)
        super().__init__(message or f"retry after {self.delay_seconds:g} s")


def _retry_after_seconds(delay: object) -> float:
    """The delay in seconds; `InvalidOption` for anything else than a delay in the limits."""
    seconds: object = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_RETRY_AFTER_SECONDS:
        return float(seconds)
    raise InvalidOption(f"hf.RetryAfter takes 0 to {MAX_RETRY_AFTER_SECONDS:,} seconds or a timedelta, not {delay!r}")


class ActivityTimedOut(HoldfastError, TimeoutError):
    """An activity did not start, end or send a heartbeat in time."""

    kind: Literal["schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat"] | None = None
    """The time-out that passed first; None if the failure was stored by a release that did not record it."""


class StreamRestarted(HoldfastError):
    """A generator activity started again after `delivered` values of an earlier attempt were delivered.

    A workflow that catches it and continues to iterate gets the values of the new attempt.
    """

    def __init__(self, message: str, delivered: int = 0) -> None:
        super().__init__(message)
        self.delivered = delivered


class StreamTooLong(HoldfastError):
    """An attempt yielded more values than its ledger can count (L12)."""


class WorkerFenced(HoldfastError):
    """This worker has lost its lease, so it must not commit: other workers take over its work (W7)."""


class ProcessDied(HoldfastError):
    """The process that ran the body of an activity ended before the body."""
