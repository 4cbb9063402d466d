"""``@hf.workflow``: an async function that the engine runs durably."""

import inspect
from collections.abc import Callable, Coroutine, Iterable
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
    runtime_checkable,
)

from holdfast.authoring.child_options import ChildOptions, checked_child_options, deadline_of, ties_of
from holdfast.authoring.definition import Definition, refuse_method
from holdfast.authoring.retention import Retention, checked_retention
from holdfast.authoring.retry import Retry, checked_retry
from holdfast.authoring.validation import (
    Duration,
    checked_duration_ms,
    checked_integer,
    checked_name,
    checked_sequence,
    checked_timeout_ms,
    checked_version,
    start_deadline,
)
from holdfast.core.activity_options import RetryPolicy
from holdfast.core.admission import DEFAULT_MAILBOX_LIMIT, EventPolicy, EventPolicyOption, Mailbox
from holdfast.core.checks import parse_enum
from holdfast.core.deadlines import DEFAULT_GRACE_MS, Deadline
from holdfast.errors import Failure, InvalidOption, UsageError
from holdfast.replay.children import ChildCall, ChildTies
from holdfast.replay.run import current_run

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F_co = TypeVar("F_co", covariant=True)
FailureTypes = type[Exception] | Iterable[type[Exception]]
CONTINUE_AFTER_EVENTS: Final = 10_000
"""The length of the history from which on ``hf.info().should_continue`` is true. Replay is still quick then."""


class OnError(StrEnum):
    """What an exception that leaves the main function does to the instance (R18)."""

    FAIL = "fail"
    """The instance fails with it."""
    BLOCK = "block"
    """The instance is blocked, unless the workflow declares the exception."""


OnErrorOption = OnError | Literal["fail", "block"]


class BoundWorkflow(Generic[R_co]):
    """A workflow with its arguments, also those by keyword: ``engine.start(checkout.bind(order=order), id=...)``."""

    def __init__(self, workflow: "Workflow[..., Any]", encoded: bytes) -> None:
        self.workflow = workflow
        self.encoded = encoded


@runtime_checkable
class WorkflowLike(Protocol[P, R_co]):
    """``hf.Workflow`` for type checkers: a workflow with its parameters and its result (see `ActivityLike`)."""

    @property
    def fn(self) -> Callable[..., Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundWorkflow[R_co]: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R_co]: ...


class Workflow(Definition, Generic[P, R]):
    """A function marked by `workflow`, with its name and version. An engine or a worker runs it.

    A call in workflow code runs it as a child of that workflow.
    """

    __slots__ = ("continue_after", "deadline", "declared_failures", "mailbox", "retention", "retry", "version")

    is_flow = False
    """Whether it is a graph without code."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        version: str,
        mailbox: Mailbox | None = None,
        *,
        continue_after: int = CONTINUE_AFTER_EVENTS,
        deadline: Deadline | None = None,
        retry: RetryPolicy | None = None,
        declared_failures: tuple[type[Exception], ...] | None = None,
        retention: Retention | None = None,
    ) -> None:
        super().__init__(fn, name)
        self.version = version
        self.mailbox = mailbox
        self.continue_after = continue_after
        self.deadline = deadline
        self.retry = retry
        self.declared_failures = declared_failures
        """The exceptions that fail an instance, while others block it (R18). None: every exception fails it."""
        self.retention = retention

    @property
    def first_key(self) -> str | None:
        """The collation key of a flow before its first turn (K1); None for code."""
        return None

    @property
    def fingerprint(self) -> str:
        """The hash of the version of a flow; empty for code."""
        return ""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that a flow names for its activities; empty for code."""
        return ()

    @property
    def bundled_code(self) -> tuple[Definition, ...]:
        """The activities and workflows that a flow was built from; they are registered with it."""
        return ()

    def check_against(self, activity: Callable[[str], Any]) -> None:
        """Raise if a flow names an activity that `activity` does not find; code names none."""

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundWorkflow[R]:
        """The workflow with its arguments, checked against the signature, for a later start."""
        return BoundWorkflow(self, self.signature.encode_arguments(args, kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        return self.run_as_child(args, kwargs, start_deadline(self.deadline, ...), None)

    def run_as_child(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], deadline: Deadline | None, ties: ChildTies | None
    ) -> Coroutine[object, object, R]:
        """Run it as a child of the workflow whose code calls this."""
        run = current_run()
        if run is None:
            raise UsageError(
                f"{self.name} is a workflow: run it with `await engine.run({self.__name__}, ...)`; "
                f"`{self.__name__}.fn` is the plain function"
            )
        encoded = self.signature.encode_arguments(args, kwargs)
        run.context.checked(encoded, f"{self.name}(): the payload of the arguments")
        call: Any = run.children.run(ChildCall(self.name, self.version, encoded, self.signature, deadline), ties)
        call.__qualname__ = self.name  # as for an activity
        typed: Coroutine[object, object, R] = call
        return typed

    def with_options(self, **options: Unpack[ChildOptions]) -> "WorkflowWithOptions[P, R]":
        """This workflow with options for its calls as a child: ``ship.with_options(id="s-1")(order)``.

        They are those of ``hf.start``.
        """
        return WorkflowWithOptions(self, options)


class WorkflowWithOptions(Generic[P, R]):
    """A workflow with options for its calls as a child, made by `with_options`. It is called as the workflow is."""

    __slots__ = ("_deadline", "_given", "_ties", "workflow")

    def __init__(self, workflow: Workflow[P, R], given: ChildOptions) -> None:
        self.workflow = workflow
        self._given = checked_child_options(f"{workflow.name}.with_options", given)
        self._ties = ties_of(given)
        self._deadline = start_deadline(workflow.deadline, deadline_of(given))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        return self.workflow.run_as_child(args, kwargs, self._deadline, self._ties)

    def with_options(self, **options: Unpack[ChildOptions]) -> "WorkflowWithOptions[P, R]":
        """These options, changed by further ones."""
        merged: ChildOptions = {**self._given, **options}
        return WorkflowWithOptions(self.workflow, merged)

    def __repr__(self) -> str:
        return f"<workflow {self.workflow.name} with options of its own>"


AnyWorkflow = Workflow[..., Any] | WorkflowLike[..., Any]
"""A workflow or a flow with any parameters."""

if TYPE_CHECKING:

    class WorkflowOf(Workflow[..., Any], Generic[F_co]):
        """A workflow as type checkers see it, with the type of its function; see `activity.ActivityOf`."""

        def bind(self: "WorkflowOf[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs) -> BoundWorkflow[R]: ...

        def __call__(
            self: "WorkflowOf[Callable[P, R]]", *args: P.args, **kwargs: P.kwargs
        ) -> Coroutine[object, object, R]: ...

        def with_options(
            self: "WorkflowOf[Callable[P, R]]", **options: Unpack[ChildOptions]
        ) -> "WorkflowWithOptions[P, R]": ...


class WorkflowDecorator(Protocol):
    """The decorator that `workflow(...)` with options returns."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> "WorkflowOf[Callable[P, R]]": ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> "WorkflowOf[Callable[P, R]]": ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "",
    event_policy: EventPolicyOption = EventPolicy.MAILBOX,
    mailbox_limit: int = DEFAULT_MAILBOX_LIMIT,
    continue_after: int = CONTINUE_AFTER_EVENTS,
    deadline: Duration | None = None,
    deadline_grace: Duration = DEFAULT_GRACE_MS / 1000,
    retry: Retry | None = None,
    on_error: OnErrorOption = OnError.FAIL,
    fails_with: FailureTypes = (),
    retention: Retention | None = None,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "",
    event_policy: EventPolicyOption = EventPolicy.MAILBOX,
    mailbox_limit: int = DEFAULT_MAILBOX_LIMIT,
    continue_after: int = CONTINUE_AFTER_EVENTS,
    deadline: Duration | None = None,
    deadline_grace: Duration = DEFAULT_GRACE_MS / 1000,
    retry: Retry | None = None,
    on_error: OnErrorOption = OnError.FAIL,
    fails_with: FailureTypes = (),
    retention: Retention | None = None,
) -> Any:
    """Mark an async function as a workflow. Its code must be deterministic: side effects belong into activities.

    Several versions of one `name` may be registered beside each other: an instance stays on the version of its first
    turn, and a start that names no version takes the highest (`hf.info().version`).
    `event_policy`: events that are not awaited are kept, up to `mailbox_limit` of them, or, with
    "drop_unsubscribed", dropped with a warning. `continue_after` is the length of the history, in events, from which on
    `hf.info().should_continue` is true. An instance that has not ended `deadline` after its start is cancelled, and
    fails with `DeadlineExceeded`; its clean-up may take `deadline_grace`. With `retry`, a failed execution is followed
    by the next one of the same instance, with the same input; without, an instance fails with its first error.
    `retention` says how long its closed instances are kept; without it that of the engine or worker applies.

    With ``on_error="block"`` an instance fails with an `hf.Failure` or a type in `fails_with` only. Any other exception
    that leaves the function blocks it with the traceback, and changed code continues it.
    """
    policy = parse_enum(EventPolicy, event_policy, "policy for events")
    kept = checked_retention(retention)
    checked_integer(continue_after, "continue_after", least=1)
    checked_version(version)
    chosen = checked_retry(retry)
    again = None if chosen is None else chosen.policy()
    rules = Mailbox(policy, checked_integer(mailbox_limit, "mailbox_limit", least=1))
    declared = _declared_failures(parse_enum(OnError, on_error, "value of on_error"), fails_with)
    limit = Deadline(checked_timeout_ms(deadline, "deadline"), checked_duration_ms(deadline_grace, "deadline_grace"))

    def mark(function: Callable[..., Any]) -> Workflow[Any, Any]:
        if not inspect.iscoroutinefunction(function):
            raise InvalidOption(f"@hf.workflow marks an `async def`, not {function!r}")
        if inspect.isfunction(function):
            refuse_method(function, "@hf.workflow")
        mailbox = None if rules == Mailbox() else rules
        own_deadline = None if limit == Deadline(None) else limit
        return Workflow(
            function,
            checked_name(function.__name__ if name is None else name, "a workflow"),
            version,
            mailbox,
            continue_after=continue_after,
            deadline=own_deadline,
            retry=again,
            declared_failures=declared,
            retention=kept,
        )

    return mark if fn is None else mark(fn)


def _declared_failures(on_error: OnError, fails_with: FailureTypes) -> tuple[type[Exception], ...] | None:
    """The types that fail an instance, `Failure` first; None if every exception does."""
    types = checked_sequence((fails_with,) if isinstance(fails_with, type) else fails_with, "fails_with")
    for each in types:
        given: Any = each
        if not (isinstance(given, type) and issubclass(given, Exception)):
            raise InvalidOption(f"fails_with takes types of exceptions, such as (Declined, ValueError), not {each!r}")
    return None if on_error is OnError.FAIL else (Failure, *types)
