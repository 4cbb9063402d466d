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
    from holdfast import testing
    from holdfast.authoring.activity import (
        ActivityInfo,
        Cancelled,
        Retry,
        StreamActivity,
        activity,
        activity_info,
        heartbeat,
        idempotency_key,
    )
    from holdfast.authoring.activity import ActivityLike as Activity
    from holdfast.authoring.children import ChildHandle, start
    from holdfast.authoring.events import Event, event, events, raise_event
    from holdfast.authoring.handlers import Query, Update, on_query, on_update, updates_finished
    from holdfast.authoring.log import log
    from holdfast.authoring.state import set_status, state, wait_until
    from holdfast.authoring.workflow import WorkflowLike as Workflow
    from holdfast.authoring.workflow import workflow
    from holdfast.authoring.workflow_api import WorkflowInfo, continue_as_new, info, now, random, side_effect, uuid4
    from holdfast.client.client import Client
    from holdfast.client.engine import Engine, connect
    from holdfast.client.handle import Handle
    from holdfast.client.views.history import Change
    from holdfast.client.worker import Worker
    from holdfast.errors import (
        ActivityTimedOut,
        ClientClosed,
        CycleLimitExceeded,
        DeadlineExceeded,
        DuplicateName,
        ExpressionError,
        FlowError,
        FlowProblem,
        ForbiddenInWorkflow,
        HistoryMismatch,
        HoldfastError,
        InstanceClosed,
        InstanceConflict,
        InstanceNotFound,
        InvalidId,
        InvalidOption,
        MailboxFull,
        NestedTooDeep,
        NotInMainTask,
        NotInWorkflow,
        NotReadOnly,
        PayloadError,
        PayloadTooLarge,
        QueryFailed,
        ReleaseTooOld,
        RemoteError,
        StoreError,
        StoreReplaced,
        StreamRestarted,
        StreamTooLong,
        UnknownQuery,
        UnknownUpdate,
        UnknownWorkflow,
        UpdateConflict,
        UpdateFailed,
        UpdateRejected,
        UpdateUnfinished,
        UsageError,
        WorkerLost,
        WorkflowBlocked,
        WorkflowCancelled,
        WorkflowFailed,
        WorkflowTerminated,
        WrongEventLoop,
    )
    from holdfast.flows.flow import Flow

__all__ = [
    "Activity",
    "ActivityInfo",
    "ActivityTimedOut",
    "Cancelled",
    "Change",
    "ChildHandle",
    "Client",
    "ClientClosed",
    "CycleLimitExceeded",
    "DeadlineExceeded",
    "DuplicateName",
    "Engine",
    "Event",
    "ExpressionError",
    "Flow",
    "FlowError",
    "FlowProblem",
    "ForbiddenInWorkflow",
    "Handle",
    "HistoryMismatch",
    "HoldfastError",
    "InstanceClosed",
    "InstanceConflict",
    "InstanceNotFound",
    "InvalidId",
    "InvalidOption",
    "MailboxFull",
    "NestedTooDeep",
    "NotInMainTask",
    "NotInWorkflow",
    "NotReadOnly",
    "PayloadError",
    "PayloadTooLarge",
    "Query",
    "QueryFailed",
    "ReleaseTooOld",
    "RemoteError",
    "Retry",
    "StoreError",
    "StoreReplaced",
    "StreamActivity",
    "StreamRestarted",
    "StreamTooLong",
    "UnknownQuery",
    "UnknownUpdate",
    "UnknownWorkflow",
    "Update",
    "UpdateConflict",
    "UpdateFailed",
    "UpdateRejected",
    "UpdateUnfinished",
    "UsageError",
    "Worker",
    "WorkerLost",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowInfo",
    "WorkflowTerminated",
    "WrongEventLoop",
    "__version__",
    "activity",
    "activity_info",
    "connect",
    "continue_as_new",
    "event",
    "events",
    "heartbeat",
    "idempotency_key",
    "info",
    "log",
    "now",
    "on_query",
    "on_update",
    "raise_event",
    "random",
    "set_status",
    "side_effect",
    "start",
    "state",
    "testing",
    "updates_finished",
    "uuid4",
    "wait_until",
    "workflow",
]

_WHERE = {
    **{name: "errors" for name in __all__ if name not in {"__version__", "testing"}},
    "Activity": "authoring.activity",
    "ActivityInfo": "authoring.activity",
    "Cancelled": "authoring.activity",
    "ChildHandle": "authoring.children",
    "Client": "client.client",
    "Engine": "client.engine",
    "Event": "authoring.events",
    "Change": "client.views.history",
    "Flow": "flows.flow",
    "Handle": "client.handle",
    "Query": "authoring.handlers",
    "Retry": "authoring.activity",
    "StreamActivity": "authoring.activity",
    "Update": "authoring.handlers",
    "Worker": "client.worker",
    "Workflow": "authoring.workflow",
    "WorkflowInfo": "authoring.workflow_api",
    "activity": "authoring.activity",
    "activity_info": "authoring.activity",
    "connect": "client.engine",
    "continue_as_new": "authoring.workflow_api",
    "event": "authoring.events",
    "events": "authoring.events",
    "heartbeat": "authoring.activity",
    "idempotency_key": "authoring.activity",
    "info": "authoring.workflow_api",
    "log": "authoring.log",
    "now": "authoring.workflow_api",
    "on_query": "authoring.handlers",
    "on_update": "authoring.handlers",
    "raise_event": "authoring.events",
    "random": "authoring.workflow_api",
    "set_status": "authoring.state",
    "side_effect": "authoring.workflow_api",
    "start": "authoring.children",
    "state": "authoring.state",
    "updates_finished": "authoring.handlers",
    "uuid4": "authoring.workflow_api",
    "wait_until": "authoring.state",
    "workflow": "authoring.workflow",
}
"""The module of each name. A part is imported when one of its names is first used: importing costs little."""


if not TYPE_CHECKING:  # a checker must still find a name that is written wrongly

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - see TYPE_CHECKING

        where = _WHERE.get(name)
        if name == "testing":
            return import_module("holdfast.testing")
        if where is None:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        part = where.partition(".")[0]
        for other, place in _WHERE.items():  # a part at a time: nothing is left to be loaded in the middle of a turn
            if place.startswith(part):
                globals()[other] = getattr(import_module(f"holdfast.{place}"), other)
        value: object = globals()[name]
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
