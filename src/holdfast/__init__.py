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
from holdfast.authoring.activity import Activity, activity
from holdfast.authoring.activity_context import ActivityInfo, activity_info, heartbeat, idempotency_key
from holdfast.authoring.inside import WorkflowInfo, info, log, now, random, side_effect, uuid4
from holdfast.authoring.retry import Retry
from holdfast.authoring.workflow import Workflow, workflow
from holdfast.client.client import Client
from holdfast.client.engine import Engine, connect
from holdfast.client.handle import Handle
from holdfast.errors import (
    ActivityTimedOut,
    DuplicateName,
    ForbiddenInWorkflow,
    HistoryMismatch,
    HoldfastError,
    InstanceClosed,
    InstanceConflict,
    InstanceNotFound,
    InvalidId,
    InvalidOption,
    NotInWorkflow,
    PayloadError,
    RemoteError,
    StoreError,
    UnknownWorkflow,
    UsageError,
    WorkerLost,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
)

__all__ = [
    "Activity",
    "ActivityInfo",
    "ActivityTimedOut",
    "Client",
    "DuplicateName",
    "Engine",
    "ForbiddenInWorkflow",
    "Handle",
    "HistoryMismatch",
    "HoldfastError",
    "InstanceClosed",
    "InstanceConflict",
    "InstanceNotFound",
    "InvalidId",
    "InvalidOption",
    "NotInWorkflow",
    "PayloadError",
    "RemoteError",
    "Retry",
    "StoreError",
    "UnknownWorkflow",
    "UsageError",
    "WorkerLost",
    "Workflow",
    "WorkflowBlocked",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowInfo",
    "__version__",
    "activity",
    "activity_info",
    "connect",
    "heartbeat",
    "idempotency_key",
    "info",
    "log",
    "now",
    "random",
    "side_effect",
    "uuid4",
    "workflow",
]
