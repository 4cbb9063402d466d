"""Every error Holdfast raises, in one tree with one root.

A message names the thing, what was expected and what was found, and where it helps what to do next. Nothing
outside this tree is raised on purpose, except `hf.Cancelled`, which is a kind of `asyncio.CancelledError`; the
reference page ``docs/reference/errors.md`` draws the tree.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple


class HoldfastError(Exception):
    """The root: ``except HoldfastError`` catches whatever Holdfast raises on purpose."""


class UsageError(HoldfastError):
    """What was asked for cannot be understood. The command line shows its message and ends with code 2."""


class WrongEventLoop(UsageError):
    """A client, engine, handle or worker was called from another event loop than the one that opened it."""


class UnknownWord(HoldfastError):
    """A text that should name a state, an event or a policy, and names none."""


class InvariantBroken(HoldfastError):
    """Something that can never be true was found to be true: a bug, or a damaged store."""


class LedgerError(HoldfastError):
    """A number that is no activity ledger, or a step that the ledger's digits do not allow (L)."""


class CollationError(HoldfastError):
    """Anything wrong with a collation key (K)."""


class MalformedKey(CollationError):
    """A text that is no collation key, or no composite of them."""


class UnknownActivity(CollationError):
    """An activity that the key or the graph does not have."""


class IllegalMove(CollationError):
    """A move on a digit that does not allow it (K2). Nothing was changed."""


class MalformedGraph(CollationError):
    """Edges that do not make a directed graph without cycles."""


class CycleLimitExceeded(CollationError):
    """A cycle went round more often than its limit allows (K8)."""


class FlowProblem(NamedTuple):
    """One thing that is wrong with a flow. `line` is 0 where there are no lines; then `node` says where it is."""

    line: int
    message: str
    suggestion: str = ""
    severity: Literal["error", "warning"] = "error"
    node: str = ""

    def __str__(self) -> str:
        return f"{self.message} (did you mean {self.suggestion}?)" if self.suggestion else self.message


class FlowError(HoldfastError):
    """A flow that cannot be read. `problems` are those that were found; the message has a line for each.

    Beyond a hundred they are only counted: `left_out`.
    """

    def __init__(self, message: str, problems: tuple[FlowProblem, ...] = (), left_out: int = 0) -> None:
        super().__init__(message)
        self.problems = problems
        self.left_out = left_out


class ExpressionError(HoldfastError):
    """A CEL expression of a flow that cannot be read, or has no value. `column` counts from 1; 0 is unknown."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


class IllegalTransition(HoldfastError):
    """A state and an event that have no edge in the transition table (A1, A9). Nothing was changed."""


class LeaseError(HoldfastError):
    """A lease duration that cannot be granted, or a worker that beats twice at once (W1, W9)."""


class InstanceConflict(HoldfastError):
    """The id is taken by an instance of another workflow or with another input (G3)."""


class PayloadError(HoldfastError):
    """A value that JSON of its annotated type cannot hold, or JSON not of that type. Nothing was stored."""


class PayloadTooLarge(PayloadError):
    """A payload above its limit in bytes."""


class MalformedPayload(PayloadError):
    """Bytes from outside that are no JSON, or JSON that two readers would understand differently."""


class AnnotationError(PayloadError):
    """A type hint that payloads cannot be typed by, found when the function is registered."""


class ArgumentError(PayloadError):
    """A call whose arguments do not fit the function: one too many, one missing, or one of the wrong type."""


class RemoteError(HoldfastError):
    """An exception that was recorded elsewhere and whose type is not known here, or cannot be raised here.

    `type_name` keeps the qualified name of the original type; ``str()`` is its message. `attributes` has what the
    original had as attributes, as far as JSON can hold it within 16 KiB.
    """

    type_name: str
    attributes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, message: str, type_name: str = "", attributes: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.attributes = {} if attributes is None else dict(attributes)


class StoreError(HoldfastError):
    """The store cannot be opened, read or written. Nothing that was not acknowledged is promised."""


class StoreReplaced(StoreError):
    """A file of the SQLite store was removed or replaced while it was open. Nothing more is written or acknowledged.

    The engine or worker has stopped. The message says which file, and what became of acknowledged work.
    """


class ReleaseTooOld(StoreError):
    """A newer release has changed the store in a way that this one cannot work with. Nothing in it was touched."""


class ClientClosed(StoreError):
    """The client is closed, or was closed during the call. The instances are not affected."""


class WorkerLost(HoldfastError):
    """The worker that ran an activity is gone, and the activity may not be run again (A10)."""


class ClaimsExhausted(HoldfastError):
    """An activity was claimed too often by workers that were lost before they began it (L8)."""


class WorkflowCodeError(HoldfastError):
    """Workflow code did something that a deterministic replay cannot repeat."""


class NotInWorkflow(WorkflowCodeError):
    """Workflow code asked its event loop for input, output, a thread or a process. Activities do that."""


class ForbiddenInWorkflow(WorkflowCodeError):
    """Workflow code called something whose result differs from run to run. The message names the line."""


class NotInMainTask(WorkflowCodeError):
    """Only the main task of a workflow may continue it as new (G4); a task that it started may not."""


class NotReadOnly(WorkflowCodeError):
    """A query or a validator tried to change the workflow. Those may only look; an update may change it."""


class NestedTooDeep(WorkflowCodeError):
    """A workflow would have started a child with more parents above it than are allowed."""


class InvalidDelay(WorkflowCodeError, ValueError):
    """A delay or a due time that is no number of seconds."""


class TurnTooLong(HoldfastError):
    """A turn of a workflow went beyond its bound of steps, of time or of rounds (G12)."""


class HistoryMismatch(WorkflowCodeError):
    """The code took another step than its history records (G12). The message names the first difference."""


class InvalidOption(HoldfastError):
    """An option whose value makes no sense."""


class RetryPolicyError(InvalidOption):
    """A retry policy, or a question about one, whose numbers make no sense."""


class InvalidId(HoldfastError):
    """A name or id that is empty, too long, or has characters that names cannot have."""


class DuplicateName(HoldfastError):
    """Two definitions of one name in one engine."""


class UnknownWorkflow(HoldfastError):
    """A workflow that the engine was not given."""


class InstanceNotFound(HoldfastError):
    """No instance has this id."""


class InstanceClosed(HoldfastError):
    """The instance is finished, so this cannot be done any more."""


class WorkflowFailed(HoldfastError):
    """The workflow ended with an error, which is its `cause`."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.__cause__ = cause

    @property
    def cause(self) -> Exception | None:
        """The error, also where this one was recorded itself and is raised again."""
        return self.__cause__ if isinstance(self.__cause__, Exception) else None


class MailboxFull(HoldfastError):
    """An event was refused: as many as the workflow allows are waiting in its mailbox already."""


class UnknownQuery(HoldfastError):
    """The workflow answers no query of this name. `handlers` are the names of those that it answers."""

    def __init__(self, message: str, handlers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.handlers = handlers


class QueryFailed(HoldfastError):
    """The code that answers a query raised an error, which is its `cause`. Nothing was changed by it."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateRejected(HoldfastError):
    """The workflow did not accept an update: its validator raised `cause`. Nothing was changed or recorded."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateConflict(HoldfastError):
    """The id of an update belongs to another one: of another name, or with other arguments. Nothing was changed."""


class UnknownUpdate(UpdateRejected):
    """The workflow has no update of this name. `handlers` are the names of those that it has."""

    def __init__(self, message: str, handlers: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.handlers = handlers


class UpdateFailed(HoldfastError):
    """The code of an update raised an error, which is its `cause`."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class UpdateUnfinished(UpdateFailed):
    """The workflow ended or began anew while the code of an update that it had accepted was still at work."""


class WorkflowCancelled(HoldfastError):
    """The workflow was cancelled."""


class DeadlineExceeded(HoldfastError, TimeoutError):
    """The workflow did not end within its deadline: the cause of its failure, unless its code gave a result then."""


class WorkflowTerminated(HoldfastError):
    """The workflow was ended from outside, and none of its code was run for it. `reason` is what was said then."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class WorkflowBlocked(HoldfastError):
    """The workflow is parked for its code (G12): it does not match its history, never awaits, or kills its workers."""


class ActivityTimedOut(HoldfastError, TimeoutError):
    """An activity did not start, answer or beat in time."""


class StreamRestarted(HoldfastError):
    """An activity that yields begins again after values of an earlier attempt were delivered: `delivered` of them.

    Whoever catches it and goes on iterating gets the values of the new attempt.
    """

    def __init__(self, message: str, delivered: int = 0) -> None:
        super().__init__(message)
        self.delivered = delivered


class StreamTooLong(HoldfastError):
    """An attempt yielded more values than its ledger can count (L12)."""


class WorkerFenced(HoldfastError):
    """This worker lost its lease: somebody else has its work, and it must stop acting (W7)."""


class ProcessDied(HoldfastError):
    """The process that ran the body of an activity ended before the body did."""
