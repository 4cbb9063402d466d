"""The public names of the classes that users hold, and the errors that `holdfast` exports (decision 37)."""

import inspect
import warnings

import pytest

import holdfast as hf
from holdfast import errors

CLIENT = {
    *(
        "builds",
        "close",
        "count",
        "delete",
        "get",
        "get_update",
        "list",
        "prune",
        "queues",
        "restored",
        "run",
        "start",
        "workers",
    ),
}
ENGINE = CLIENT | {"abandoned_threads", "open"}
WORKER = {"drain", "key", "run", "running", "stop", "wait"}
HANDLE = {
    "set_attributes",
    "cancel",
    "cancel_activity",
    "children",
    "describe",
    "export_history",
    "history",
    "id",
    "is_new",
    "number",
    "query",
    "raise_event",
    "release",
    "result",
    "pause",
    "resume",
    "retry_blocked",
    "sent_update",
    "start_update",
    "state",
    "terminate",
    "update",
    "watch",
}
ENVIRONMENT = ENGINE | {
    "calls",
    "crash",
    "crash_at_every_commit",
    "deaths",
    "duplicate",
    "now",
    "real_time",
    "replace",
    "restore",
    "run_sync",
    "skip",
}
CAUGHT = {
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
}
MOVED = {
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
}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (hf.Client, CLIENT),
        (hf.Engine, ENGINE),
        (hf.Worker, WORKER),
        (hf.Handle, HANDLE),
        (hf.testing.Environment, ENVIRONMENT),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_class_has_these_public_names_and_no_others(kind: type, names: set[str]) -> None:
    annotated = {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
    assert {name for name in {*dir(kind), *annotated} if not name.startswith("_")} == names


def test_the_package_exports_the_errors_that_programs_catch() -> None:
    exported = {name for name in hf.__all__ if hasattr(errors, name)}
    assert exported == CAUGHT
    assert all(getattr(hf, name) is getattr(errors, name) for name in exported)


@pytest.mark.parametrize("name", sorted(MOVED))
def test_an_error_that_has_moved_is_found_for_one_release_with_a_warning_that_names_its_place(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"use holdfast\.errors\.{name}$") as caught:
        assert getattr(hf, name) is getattr(errors, name)
    assert caught[0].filename == __file__


def test_errors_is_a_module_of_the_package() -> None:
    with warnings.catch_warnings(action="error"):
        assert hf.errors is errors
