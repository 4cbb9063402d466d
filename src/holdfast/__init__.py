"""Holdfast: durable execution for Python.

A workflow is an ordinary ``async`` function. It survives crashes, restarts, deploys and dead machines, and every step
is recorded exactly once::

    import holdfast as hf

    @hf.activity
    async def charge(cents: int) -> str: ...

    @hf.workflow
    async def checkout(cents: int) -> str:
        return await charge(cents)

    async with hf.Engine("shop.db", workflows=[checkout], activities=[charge]) as engine:
        print(await engine.run(checkout, 300, id="order-42"))
"""

from holdfast._version import __version__

TYPE_CHECKING = False  # as typing has it; importing typing takes longer than everything else here

if TYPE_CHECKING:
    from holdfast import errors, testing
    from holdfast.audit.backup import backup
    from holdfast.authoring.activity import (
        ActivityInfo,
        Cancelled,
        StreamActivity,
        activity,
        activity_info,
        heartbeat,
        idempotency_key,
    )
    from holdfast.authoring.activity import ActivityLike as Activity
    from holdfast.authoring.attributes import attributes
    from holdfast.authoring.children import ChildHandle, start
    from holdfast.authoring.events import Event, cancel, event, events, raise_event
    from holdfast.authoring.handlers import (
        Query,
        Update,
        UpdateInfo,
        all_handlers_finished,
        on_query,
        on_update,
        update_info,
    )
    from holdfast.authoring.launcher import Launcher, LaunchTask
    from holdfast.authoring.log import log
    from holdfast.authoring.provided import context
    from holdfast.authoring.retention import Retention
    from holdfast.authoring.retry import Retry
    from holdfast.authoring.state import set_status, state, wait_until
    from holdfast.authoring.workflow import WorkflowLike as Workflow
    from holdfast.authoring.workflow import workflow
    from holdfast.authoring.workflow_api import (
        WorkflowInfo,
        continue_as_new,
        info,
        now,
        patched,
        random,
        side_effect,
        uuid4,
    )
    from holdfast.client.client import Client, connect
    from holdfast.client.command_launcher import CommandLauncher
    from holdfast.client.engine import Engine
    from holdfast.client.handle import Handle
    from holdfast.client.update_handle import UpdateHandle
    from holdfast.client.views.history import Change
    from holdfast.client.worker import Worker
    from holdfast.errors import (
        ActivityCancelled,
        ActivityClosed,
        ActivityNotFound,
        ActivityTimedOut,
        ClaimsExhausted,
        DeadlineExceeded,
        DeleteRefused,
        Failure,
        FilterError,
        FlowError,
        HoldfastError,
        InstanceClosed,
        InstanceConflict,
        InstanceNotBlocked,
        InstanceNotFound,
        InstanceNotPaused,
        InstanceNotRunning,
        InvalidId,
        MailboxFull,
        PayloadError,
        QueryFailed,
        RetryAfter,
        StoreError,
        StreamRestarted,
        UpdateFailed,
        UpdateRejected,
        WorkerLost,
        WorkflowBlocked,
        WorkflowCancelled,
        WorkflowFailed,
        WorkflowTerminated,
    )
    from holdfast.flows.flow import Flow

__all__ = [
    "Activity",
    "ActivityCancelled",
    "ActivityClosed",
    "ActivityInfo",
    "ActivityNotFound",
    "ActivityTimedOut",
    "Cancelled",
    "Change",
    "ChildHandle",
    "ClaimsExhausted",
    "Client",
    "CommandLauncher",
    "DeadlineExceeded",
    "DeleteRefused",
    "Engine",
    "Event",
    "Failure",
    "FilterError",
    "Flow",
    "FlowError",
    "Handle",
    "HoldfastError",
    "InstanceClosed",
    "InstanceConflict",
    "InstanceNotBlocked",
    "InstanceNotFound",
    "InstanceNotPaused",
    "InstanceNotRunning",
    "InvalidId",
    "LaunchTask",
    "Launcher",
    "MailboxFull",
    "PayloadError",
    "Query",
    "QueryFailed",
    "Retention",
    "Retry",
    "RetryAfter",
    "StoreError",
    "StreamActivity",
    "StreamRestarted",
    "Update",
    "UpdateFailed",
    "UpdateHandle",
    "UpdateInfo",
    "UpdateRejected",
    "Worker",
    "WorkerLost",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowInfo",
    "WorkflowTerminated",
    "__version__",
    "activity",
    "activity_info",
    "all_handlers_finished",
    "attributes",
    "backup",
    "cancel",
    "connect",
    "context",
    "continue_as_new",
    "errors",
    "event",
    "events",
    "heartbeat",
    "idempotency_key",
    "info",
    "log",
    "now",
    "on_query",
    "on_update",
    "patched",
    "raise_event",
    "random",
    "set_status",
    "side_effect",
    "start",
    "state",
    "testing",
    "update_info",
    "uuid4",
    "wait_until",
    "workflow",
]

_NAMES = {
    "audit.backup": ("backup",),
    "authoring.activity": (
        "Activity",
        "ActivityInfo",
        "Cancelled",
        "StreamActivity",
        "activity",
        "activity_info",
        "heartbeat",
        "idempotency_key",
    ),
    "authoring.attributes": ("attributes",),
    "authoring.children": ("ChildHandle", "start"),
    "authoring.events": ("Event", "cancel", "event", "events", "raise_event"),
    "authoring.handlers": (
        "Query",
        "Update",
        "UpdateInfo",
        "all_handlers_finished",
        "on_query",
        "on_update",
        "update_info",
    ),
    "authoring.launcher": ("LaunchTask", "Launcher"),
    "authoring.log": ("log",),
    "authoring.provided": ("context",),
    "authoring.retention": ("Retention",),
    "authoring.retry": ("Retry",),
    "authoring.state": ("set_status", "state", "wait_until"),
    "authoring.workflow": ("Workflow", "workflow"),
    "authoring.workflow_api": (
        "WorkflowInfo",
        "continue_as_new",
        "info",
        "now",
        "patched",
        "random",
        "side_effect",
        "uuid4",
    ),
    "client.client": ("Client", "connect"),
    "client.command_launcher": ("CommandLauncher",),
    "client.engine": ("Engine",),
    "client.handle": ("Handle",),
    "client.update_handle": ("UpdateHandle",),
    "client.views.history": ("Change",),
    "client.worker": ("Worker",),
    "errors": (
        "ActivityCancelled",
        "ActivityClosed",
        "ActivityNotFound",
        "ActivityTimedOut",
        "ClaimsExhausted",
        "DeadlineExceeded",
        "Failure",
        "DeleteRefused",
        "FilterError",
        "FlowError",
        "HoldfastError",
        "InstanceClosed",
        "InstanceConflict",
        "InstanceNotBlocked",
        "InstanceNotFound",
        "InstanceNotPaused",
        "InstanceNotRunning",
        "InvalidId",
        "MailboxFull",
        "PayloadError",
        "QueryFailed",
        "RetryAfter",
        "StoreError",
        "StreamRestarted",
        "UpdateFailed",
        "UpdateRejected",
        "WorkerLost",
        "WorkflowBlocked",
        "WorkflowCancelled",
        "WorkflowFailed",
        "WorkflowTerminated",
    ),
    "flows.flow": ("Flow",),
}
"""The public names by module. A package is imported when one of its names is first used."""

_MOVED = frozenset(
    (
        "ClientClosed",
        "CycleLimitExceeded",
        "DuplicateName",
        "ExpressionError",
        "FlowProblem",
        "ForbiddenInWorkflow",
        "HistoryMismatch",
        "InvalidOption",
        "NestedTooDeep",
        "NotInMainTask",
        "NotInWorkflow",
        "NotReadOnly",
        "PayloadTooLarge",
        "ReleaseTooOld",
        "RemoteError",
        "StoreReplaced",
        "StreamTooLong",
        "UnknownQuery",
        "UnknownUpdate",
        "UnknownWorkflow",
        "UpdateConflict",
        "UpdateUnfinished",
        "UsageError",
        "WrongEventLoop",
    )
)
"""Errors that this module exported before; they are in `holdfast.errors` only from the next release on."""

_RENAMED = {"updates_finished": "all_handlers_finished"}
"""Former names, which work in this release only."""


if not TYPE_CHECKING:  # a type checker must still report a misspelled name

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - see TYPE_CHECKING

        if name in {"errors", "testing"}:
            return import_module(f"holdfast.{name}")
        if name in _MOVED:
            from warnings import warn  # noqa: PLC0415 - see TYPE_CHECKING

            warn(f"holdfast.{name} has moved: use holdfast.errors.{name}", DeprecationWarning, stacklevel=2)
            return getattr(import_module("holdfast.errors"), name)
        if name in _RENAMED:
            from warnings import warn  # noqa: PLC0415 - see TYPE_CHECKING

            warn(f"holdfast.{name} is called holdfast.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
            return __getattr__(_RENAMED[name])
        package = next((module.partition(".")[0] for module, names in _NAMES.items() if name in names), None)
        if package is None:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        for module, names in _NAMES.items():  # the whole package, so that nothing is imported in the middle of a turn
            if module.partition(".")[0] == package:
                part = import_module(f"holdfast.{module}")
                globals().update({each: getattr(part, each) for each in names})
        value: object = globals()[name]
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
